"""dynamax: a hidden Markov model fitted by EM, a Kalman filter and smoother."""

import json

import jax
import jax.numpy as jnp
import jax.random as jr
from dynamax.hidden_markov_model import GaussianHMM
from dynamax.linear_gaussian_ssm import LinearGaussianSSM


def main():
    hmm = GaussianHMM(num_states=2, emission_dim=1)
    params, props = hmm.initialize(
        jr.PRNGKey(0), initial_probs=jnp.array([0.5, 0.5]),
        transition_matrix=jnp.array([[0.9, 0.1], [0.2, 0.8]]),
        emission_means=jnp.array([[-1.0], [1.0]]), emission_covariances=jnp.ones((2, 1, 1)) * 0.3)
    states, emissions = hmm.sample(params, jr.PRNGKey(1), num_timesteps=60)
    fitted, evidence = hmm.fit_em(params, props, emissions, num_iters=5, verbose=False)
    posterior = hmm.smoother(fitted, emissions)

    ssm = LinearGaussianSSM(state_dim=2, emission_dim=1)
    lgssm, _ = ssm.initialize(
        jr.PRNGKey(2), dynamics_weights=jnp.array([[1.0, 0.1], [-0.1, 0.95]]),
        dynamics_covariance=0.01 * jnp.eye(2), emission_weights=jnp.array([[1.0, 0.0]]),
        emission_covariance=0.1 * jnp.eye(1))
    _, observed = ssm.sample(lgssm, jr.PRNGKey(3), num_timesteps=30)
    smoothed = jax.jit(ssm.smoother)(lgssm, observed)
    print(json.dumps({
        "evidence": evidence.tolist(), "means": fitted.emissions.means.tolist(),
        "states": states.tolist(), "path": hmm.most_likely_states(fitted, emissions).tolist(),
        "smoothed": posterior.smoothed_probs[::10].tolist(),
        "filtered": smoothed.filtered_means[::5].tolist(),
        "smoother": smoothed.smoothed_means[::5].tolist(),
        "likelihood": float(ssm.marginal_log_prob(lgssm, observed))}))


if __name__ == "__main__":
    main()
