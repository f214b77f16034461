"""chex: a dataclass as a pytree, assertions inside and outside of jit, variants of a test."""

import json
import unittest

import chex
import jax
import jax.numpy as jnp


@chex.dataclass
class State:
    position: chex.Array
    velocity: chex.Array
    step: int


@jax.jit
def leapfrog(state: State, dt: float) -> State:
    chex.assert_equal_shape([state.position, state.velocity])
    half = state.velocity - 0.5 * dt * state.position
    position = state.position + dt * half
    return state.replace(position=position, velocity=half - 0.5 * dt * position,
                         step=state.step + 1)


@jax.jit
@chex.assert_max_traces(n=1)
def counted(x):
    return jnp.sum(x ** 2)


def is_refused(f, *args):
    try:
        f(*args)
    except AssertionError:
        return 1
    return 0


class Means(chex.TestCase):
    @chex.variants(with_jit=True, without_jit=True, with_device=True, without_device=True)
    def test_mean(self):
        mean = self.variant(lambda x: jnp.mean(x) * 2)(jnp.arange(5.0))
        self.assertEqual(mean, 4)


def main():
    state = State(position=jnp.ones(3), velocity=jnp.arange(3.0), step=0)
    for _ in range(10):
        state = leapfrog(state, 0.1)
    tests = unittest.defaultTestLoader.loadTestsFromTestCase(Means).run(unittest.TestResult())
    sums = [float(counted(jnp.arange(4.0) + i)) for i in range(2)]
    chex.assert_tree_all_finite(state)
    chex.assert_trees_all_close(state, state.replace(position=state.position + 1e-8), rtol=1e-5)
    print(json.dumps({
        "state": [state.position.tolist(), state.velocity.tolist(), [int(state.step)] * 3],
        "sums": sums, "variants": [tests.testsRun, len(tests.failures + tests.errors)],
        "energy": float(jnp.sum(state.position ** 2 + state.velocity ** 2)),
        "refused": [is_refused(chex.assert_shape, state.position, (4,)),
                    is_refused(chex.assert_type, state.position, int),
                    is_refused(chex.assert_rank, state.position, {2, 3}),
                    is_refused(chex.assert_trees_all_equal, state, state.replace(step=3)),
                    is_refused(chex.assert_shape, state.position, (3,))]}))


if __name__ == "__main__":
    main()
