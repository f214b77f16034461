"""e3nn-jax: spherical harmonics, tensor products, rotations, and equivariance of a layer."""

import json

import e3nn_jax as e3nn
import jax
import jax.numpy as jnp


@jax.jit
def layer(x, positions):
    y = e3nn.spherical_harmonics("0e + 1o + 2e", positions, normalize=True)
    out = e3nn.tensor_product(x, y, filter_ir_out=["0e", "1o", "2e"])
    return e3nn.scalar_activation(out.filter(["0e"]), [jax.nn.gelu])


def main():
    x = e3nn.normal("2x0e + 1o", jax.random.key(0), (5,))
    positions = e3nn.normal("1o", jax.random.key(1), (5,))
    out = layer(x, positions)
    rotation = e3nn.rand_matrix(jax.random.key(2))
    transformed = layer(x.transform_by_matrix(rotation), positions.transform_by_matrix(rotation))
    product = e3nn.tensor_product(x, positions)
    angles = e3nn.matrix_to_angles(rotation)
    gradient = jax.grad(lambda p: jnp.sum(
        e3nn.spherical_harmonics("2e", e3nn.IrrepsArray("1o", p), True).array ** 3))(
            jnp.array([0.3, -0.2, 0.9]))
    print(json.dumps({
        "out": out.array.tolist(), "transformed": transformed.array.tolist(),
        "product": product.array.tolist(), "rotation": rotation.tolist(),
        "angles": [float(a) for a in angles], "gradient": gradient.tolist(),
        "dims": [ir.dim for _, ir in product.irreps], "size": product.irreps.dim,
        "clebsch": e3nn.clebsch_gordan(1, 1, 2).tolist(),
        "norm": e3nn.norm(product).array.tolist()}))


if __name__ == "__main__":
    main()
