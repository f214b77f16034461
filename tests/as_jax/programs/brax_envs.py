"""brax: rollouts of the inverted pendulum, stepped by scan, and the gradient of a reward."""

import json

import jax
import jax.numpy as jnp
from brax import envs

ENV = envs.get_environment("inverted_pendulum", backend="generalized")


@jax.jit
def rollout(key, gain):
    def step(state, _):
        action = jnp.clip(-gain * state.obs[1:2], -1, 1)
        state = ENV.step(state, action)
        return state, (state.obs, state.reward)
    return jax.lax.scan(step, ENV.reset(key), None, length=20)[1]


@jax.jit
@jax.grad
def sensitivity(gain):
    observations, _ = rollout(jax.random.key(1), gain)
    return jnp.sum(observations[:, 1] ** 2)


def main():
    observations, rewards = rollout(jax.random.key(0), 2.0)
    print(json.dumps({"observations": observations[::5].tolist(), "rewards": rewards.tolist(),
                      "sensitivity": float(sensitivity(jnp.float32(2.0)))}))


if __name__ == "__main__":
    main()
