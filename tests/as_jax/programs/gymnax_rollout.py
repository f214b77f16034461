"""gymnax: rollouts of CartPole, Pendulum and a bsuite environment, batched and scanned."""

import json

import gymnax
import jax
import jax.numpy as jnp


def rollout(name, policy, steps=60, batch=4):
    env, params = gymnax.make(name)

    def episode(key):
        start, key = jax.random.split(key)
        obs, state = env.reset(start, params)

        def step(carry, key):
            obs, state = carry
            obs, state, reward, done, *_ = env.step(key, state, policy(obs), params)
            return (obs, state), (obs, reward, done)
        return jax.lax.scan(step, (obs, state), jax.random.split(key, steps))[1]
    return jax.jit(jax.vmap(episode))(jax.random.split(jax.random.key(0), batch))


def main():
    obs, rewards, dones = rollout("CartPole-v1", lambda o: (o[2] + 0.3 * o[3] > 0).astype(int))
    swing, costs, _ = rollout("Pendulum-v1", lambda o: jnp.clip(-o[2:], -1, 1))
    _, catches, _ = rollout("Catch-bsuite", lambda o: jnp.argmax(o.sum(0)) % 3)
    env, params = gymnax.make("MountainCar-v0")
    action = env.action_space(params).sample(jax.random.key(5))
    print(json.dumps({
        "cart": obs[:, 20].tolist(), "rewards": rewards.sum(1).tolist(),
        "done": dones.sum(1).tolist(), "swing": swing[:, 10].tolist(),
        "costs": costs[:, :10].sum(1).tolist(), "catches": catches.sum(1).tolist(),
        "action": int(action), "high": env.observation_space(params).high.tolist()}))


if __name__ == "__main__":
    main()
