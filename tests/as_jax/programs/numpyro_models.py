"""numpyro: NUTS on eight schools, SVI on a regression, predictive draws, log densities."""

import json

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS, SVI, Predictive, Trace_ELBO, log_likelihood
from numpyro.infer.autoguide import AutoNormal

EFFECTS = jnp.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = jnp.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def schools(errors, effects=None):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("schools", 8):
        with numpyro.handlers.reparam(config={"theta": numpyro.infer.reparam.LocScaleReparam(0)}):
            theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("effects", dist.Normal(theta, errors), obs=effects)


def regression(x, y=None):
    w = numpyro.sample("w", dist.Normal(jnp.zeros(3), 1).to_event(1))
    sigma = numpyro.sample("sigma", dist.Exponential(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.StudentT(4, x @ w, sigma), obs=y)


def main():
    mcmc = MCMC(NUTS(schools), num_warmup=300, num_samples=600, progress_bar=False)
    mcmc.run(jax.random.PRNGKey(0), ERRORS, EFFECTS)
    draws = mcmc.get_samples()
    x = jax.random.normal(jax.random.key(1), (40, 3))
    y = x @ jnp.array([1.0, -2.0, 0.5]) + 0.1 * jnp.sin(jnp.arange(40.0))
    svi = SVI(regression, AutoNormal(regression), numpyro.optim.Adam(0.02), Trace_ELBO())
    result = svi.run(jax.random.PRNGKey(2), 300, x, y, progress_bar=False)
    prior = Predictive(regression, num_samples=5)(jax.random.PRNGKey(3), x)
    density = log_likelihood(regression, {"w": jnp.eye(3), "sigma": jnp.ones(3)}, x, y)["y"]
    print(json.dumps({
        "sampled": [float(draws["mu"].mean()), float(draws["tau"].mean()),
                    *draws["theta"].mean(0).tolist()],
        "loss": result.losses[::60].tolist(), "location": result.params["w_auto_loc"].tolist(),
        "prior": prior["y"][0, :5].tolist(), "density": density[:, ::10].tolist()}))


if __name__ == "__main__":
    main()
