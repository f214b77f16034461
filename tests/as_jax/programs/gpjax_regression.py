"""gpjax: exact Gaussian process regression: likelihood, fit, and predictions."""

import json

import gpjax as gpx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax

jax.config.update("jax_enable_x64", True)


def main():
    x = jnp.linspace(-3.0, 3.0, 25)[:, None]
    data = gpx.Dataset(X=x, y=jnp.sin(2 * x) + 0.1 * jnp.cos(9 * x))
    prior = gpx.Prior(mean_function=gpx.mean_functions.Zero(), kernel=gpx.kernels.Matern52())
    model = prior * gpx.likelihoods.Gaussian()
    before = gpx.objectives.conjugate_mll(model, data)
    fitted, history = gpx.fit(
        model=model, objective=lambda m, d: -gpx.objectives.conjugate_mll(m, d), train_data=data,
        optim=optax.adam(0.05), num_iters=20, key=jr.key(0), verbose=False)
    latent = fitted.condition(data).predict(jnp.linspace(-2, 2, 5)[:, None])
    print(json.dumps({"before": float(before), "history": history.tolist(),
                      "mean": latent.mean.tolist(),
                      "after": float(gpx.objectives.conjugate_mll(fitted, data))}))


if __name__ == "__main__":
    main()
