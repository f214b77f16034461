"""TensorFlow Probability on JAX: distributions, a bijector, HMC, a Gaussian process."""

import json

import jax
import jax.numpy as jnp
from tensorflow_probability.substrates import jax as tfp

tfb, tfd, tfk = tfp.bijectors, tfp.distributions, tfp.math.psd_kernels


@jax.jit
def log_density(w):
    return tfd.Independent(tfd.Normal(jnp.array([1.0, -0.5]), jnp.array([0.5, 1.5])),
                           1).log_prob(w)


@jax.jit
def chain(key):
    kernel = tfp.mcmc.HamiltonianMonteCarlo(log_density, step_size=0.3, num_leapfrog_steps=4)
    return tfp.mcmc.sample_chain(300, jnp.zeros(2), kernel=kernel, num_burnin_steps=50,
                                 trace_fn=lambda _, results: results.is_accepted, seed=key)


@jax.jit
@jax.value_and_grad
def likelihood(params):
    x = jnp.linspace(0, 3, 10)[:, None]
    kernel = tfk.ExponentiatedQuadratic(jnp.exp(params["amplitude"]), jnp.exp(params["scale"]))
    process = tfd.GaussianProcess(kernel, x, observation_noise_variance=0.1)
    return process.log_prob(jnp.sin(2 * x[:, 0]))


def main():
    draws, accepted = chain(jax.random.PRNGKey(0))
    value, grads = likelihood({"amplitude": jnp.zeros(()), "scale": jnp.array(-0.5)})
    flow = tfb.Chain([tfb.Softplus(), tfb.Shift(0.5), tfb.Scale(2.0)])
    positive = tfd.TransformedDistribution(tfd.Normal(0.0, 1.0), flow)
    mixture = tfd.MixtureSameFamily(tfd.Categorical(probs=[0.3, 0.7]),
                                    tfd.Normal([-1.0, 1.0], [0.2, 0.5]))
    print(json.dumps({
        "sampled": draws.mean(0).tolist(), "sampled_acceptance": float(accepted.mean()),
        "likelihood": float(value), "gradient": [float(g) for g in grads.values()],
        "positive": positive.log_prob(jnp.array([0.3, 1.0, 4.0])).tolist(),
        "draw": positive.sample(3, seed=jax.random.PRNGKey(1)).tolist(),
        "mixture": mixture.log_prob(jnp.array([-1.0, 0.0, 1.0])).tolist(),
        "gamma": tfd.Gamma(2.0, 3.0).cdf(jnp.array([0.2, 0.9])).tolist(),
        "kl": float(tfd.kl_divergence(tfd.Beta(2.0, 3.0), tfd.Beta(1.0, 1.0)))}))


if __name__ == "__main__":
    main()
