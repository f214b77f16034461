"""jaxlie: rigid transforms: composition, exponential maps, pose averaging on the manifold."""

import json

import jax
import jax.numpy as jnp
import jaxlie


@jax.jit
def chain(twists):
    poses = jax.vmap(jaxlie.SE3.exp)(twists)
    first = jaxlie.SE3(poses.wxyz_xyz[0])
    for i in range(1, 4):
        first = first @ jaxlie.SE3(poses.wxyz_xyz[i])
    return first


@jax.jit
def average(poses, start):
    def loss(mean):
        errors = jax.vmap(lambda p: (mean.inverse() @ jaxlie.SE3(p)).log())(poses.wxyz_xyz)
        return jnp.mean(errors ** 2)

    def step(mean, _):
        value, grads = jaxlie.manifold.value_and_grad(loss)(mean)
        return jaxlie.manifold.rplus(mean, -grads), value
    return jax.lax.scan(step, start, None, length=10)


def main():
    twists = 0.5 * jax.random.normal(jax.random.key(0), (4, 6))
    pose = chain(twists)
    poses = jax.vmap(jaxlie.SE3.exp)(twists)
    mean, losses = average(poses, jaxlie.SE3.identity())
    turn = jaxlie.SO3.from_rpy_radians(0.1, -0.3, 0.7)
    plane = jaxlie.SE2.from_xy_theta(1.0, 2.0, 0.4)
    print(json.dumps({
        "pose": pose.as_matrix().tolist(), "log": pose.log().tolist(),
        "adjoint": pose.adjoint().tolist(), "mean": mean.wxyz_xyz.tolist(),
        "losses": losses.tolist(), "matrix": turn.as_matrix().tolist(),
        "angles": [float(a) for a in turn.as_rpy_radians()],
        "point": (turn @ jnp.array([1.0, 0.0, 2.0])).tolist(),
        "plane": (plane.inverse() @ jnp.array([0.5, 0.5])).tolist(),
        "jacobian": jax.jacobian(lambda t: jaxlie.SO3.exp(t).as_matrix())(
            jnp.array([0.1, 0.2, 0.3])).tolist()}))


if __name__ == "__main__":
    main()
