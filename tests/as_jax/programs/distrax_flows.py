"""distrax: distributions, a bijector chain, a mixture, a hidden Markov model, gradients."""

import json

import distrax
import jax
import jax.numpy as jnp


@jax.jit
def evidence(params, x):
    mixture = distrax.MixtureSameFamily(
        distrax.Categorical(logits=params["logits"]),
        distrax.Normal(params["loc"], jnp.exp(params["log_scale"])))
    return jnp.sum(mixture.log_prob(x))


@jax.jit
def flow(x):
    bijector = distrax.Chain([distrax.Tanh(), distrax.ScalarAffine(0.5, 1.5)])
    base = distrax.Independent(distrax.Normal(jnp.zeros(3), 1.0), 1)
    return distrax.Transformed(base, distrax.Block(bijector, 1)).log_prob(x)


@jax.jit
def markov(observations):
    hmm = distrax.HMM(init_dist=distrax.Categorical(probs=jnp.array([0.6, 0.4])),
                      trans_dist=distrax.Categorical(probs=jnp.array([[0.9, 0.1], [0.2, 0.8]])),
                      obs_dist=distrax.Normal(jnp.array([-1.0, 1.0]), jnp.array([0.5, 1.0])))
    alphas, betas, gammas, evidence = hmm.forward_backward(observations)
    return gammas, evidence, hmm.viterbi(observations)


def main():
    x = jnp.linspace(-2, 2, 11)
    params = {"logits": jnp.zeros(3), "loc": jnp.array([-1.0, 0.0, 1.5]),
              "log_scale": jnp.array([0.1, -0.3, 0.2])}
    grads = jax.grad(evidence)(params, x)
    gammas, total, path = markov(x)
    normal = distrax.MultivariateNormalDiag(jnp.arange(3.0), jnp.array([1.0, 2.0, 0.5]))
    samples, log_prob = normal.sample_and_log_prob(seed=jax.random.key(0), sample_shape=(4,))
    print(json.dumps({
        "evidence": float(evidence(params, x)), "gradient": [g.tolist() for g in grads.values()],
        "flow": flow(jnp.array([0.1, -0.4, 0.8])).tolist(), "gammas": gammas.tolist(),
        "total": float(total), "path": path.tolist(), "samples": samples.tolist(),
        "log_prob": log_prob.tolist(),
        "kl": float(distrax.Gamma(2.0, 1.0).kl_divergence(distrax.Gamma(3.0, 2.0))),
        "entropy": float(distrax.Beta(2.0, 3.0).entropy())}))


if __name__ == "__main__":
    main()
