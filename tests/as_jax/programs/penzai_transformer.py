"""penzai: named arrays, a small net taken apart and patched, its gradients."""

import json

import jax
import jax.numpy as jnp
from penzai import pz


def affine(name, seed, inputs, outputs):
    return pz.nn.Affine.from_config(name=name, init_base_rng=jax.random.key(seed),
                                    input_axes=inputs, output_axes=outputs)


def build():
    return pz.nn.Sequential([
        affine("first", 0, {"features": 4}, {"hidden": 8}), pz.nn.Elementwise(jax.nn.gelu),
        affine("last", 1, {"hidden": 8}, {"out": 2})])


def main():
    model = build()
    x = pz.nx.wrap(jnp.sin(jnp.arange(12.0)).reshape(3, 4)).tag("batch", "features")
    rest, params = pz.unbind_params(model, freeze=True)
    out = jax.jit(lambda params, x: pz.bind_variables(rest, params)(x))(params, x)
    patched = pz.select(model).at_instances_of(pz.nn.Elementwise).apply(
        lambda layer: pz.nn.Elementwise(jnp.tanh))

    @jax.jit
    @jax.value_and_grad
    def loss(params):
        y = pz.bind_variables(rest, params)(x)
        return jnp.mean(y.unwrap("batch", "out") ** 2)
    value, grads = loss(params)
    total = pz.nx.nmap(jnp.sum)(x.untag("features"))
    print(json.dumps({
        "out": out.unwrap("batch", "out").tolist(),
        "patched": patched(x).unwrap("batch", "out").tolist(), "loss": float(value),
        "norms": [float(jnp.linalg.norm(g)) for g in jax.tree.leaves(grads)],
        "named": total.unwrap("batch").tolist(),
        "count": len(pz.select(model).at_instances_of(pz.Parameter).get_sequence())}))


if __name__ == "__main__":
    main()
