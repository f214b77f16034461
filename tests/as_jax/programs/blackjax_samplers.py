"""blackjax: NUTS with window adaptation, HMC and random-walk Metropolis."""

import json

import blackjax
import jax
import jax.numpy as jnp
import jax.scipy.stats as stats

X = jax.random.normal(jax.random.key(7), (50, 2))
Y = X @ jnp.array([1.5, -0.7]) + 0.3 * jax.random.normal(jax.random.key(8), (50,))


def log_density(params):
    scale = jnp.exp(params["log_scale"])
    return jnp.sum(stats.norm.logpdf(Y, X @ params["w"], scale)) + \
        stats.norm.logpdf(params["log_scale"]) + jnp.sum(stats.norm.logpdf(params["w"]))


def run(kernel, state, key, count):
    def step(state, key):
        state, info = kernel(key, state)
        return state, (state.position, info)
    return jax.lax.scan(step, state, jax.random.split(key, count))[1]


START = {"w": jnp.zeros(2), "log_scale": jnp.zeros(())}


@jax.jit
def nuts(key):
    warm, draw = jax.random.split(key)
    adaptation = blackjax.window_adaptation(blackjax.nuts, log_density)
    (state, parameters), _ = adaptation.run(warm, START, 200)
    return run(blackjax.nuts(log_density, **parameters).step, state, draw, 300)


@jax.jit
def hmc(key):
    sampler = blackjax.hmc(log_density, 0.03, jnp.ones(3), 8)
    return run(sampler.step, sampler.init(START), key, 20)


@jax.jit
def random_walk(key):
    sampler = blackjax.normal_random_walk(log_density, jnp.eye(3) * 0.05)
    return run(sampler.step, sampler.init(START), key, 50)


def main():
    draws, info = nuts(jax.random.key(0))
    steps, moves = hmc(jax.random.key(1))
    walk, walked = random_walk(jax.random.key(2))
    print(json.dumps({
        "sampled": [*draws["w"].mean(0).tolist(), float(draws["log_scale"].mean())],
        "sampled_acceptance": float(info.acceptance_rate.mean()),
        "hmc": steps["w"][-1].tolist(), "hmc_acceptance": moves.acceptance_rate[:10].tolist(),
        "walk": walk["w"][-1].tolist(), "accepted": walked.is_accepted.tolist()}))


if __name__ == "__main__":
    main()
