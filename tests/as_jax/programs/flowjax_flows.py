"""flowjax: density of an autoregressive flow, fitted to data; a spline coupling flow."""

import json

import jax
import jax.numpy as jnp
import jax.random as jr
from flowjax.bijections import RationalQuadraticSpline
from flowjax.distributions import Normal
from flowjax.flows import coupling_flow, masked_autoregressive_flow
from flowjax.train import fit_to_data


def main():
    key, data_key, flow_key, train_key = jr.split(jr.key(0), 4)
    noise = jr.normal(data_key, (200, 2))
    x = jnp.stack([noise[:, 0], 0.5 * noise[:, 0] ** 2 + 0.3 * noise[:, 1]], -1)
    flow = masked_autoregressive_flow(flow_key, base_dist=Normal(jnp.zeros(2)), flow_layers=2,
                                      nn_width=8)
    before = flow.log_prob(x[:5])
    fitted, losses = fit_to_data(train_key, flow, x, learning_rate=5e-3, max_epochs=3,
                                 show_progress=False)
    spline = coupling_flow(key, base_dist=Normal(jnp.zeros(2)), flow_layers=2, nn_width=8,
                           transformer=RationalQuadraticSpline(knots=4, interval=3))
    print(json.dumps({
        "before": before.tolist(), "losses": losses["train"], "checks": losses["val"],
        "after": fitted.log_prob(x[:5]).tolist(), "spline": spline.log_prob(x[:5]).tolist(),
        "draw": fitted.sample(jr.key(3), (2,)).tolist(),
        "gradient": jax.grad(lambda x: spline.log_prob(x))(jnp.array([0.2, -0.4])).tolist()}))


if __name__ == "__main__":
    main()
