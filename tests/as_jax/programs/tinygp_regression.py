"""tinygp: a Gaussian process with a sum of kernels; likelihood, gradients, predictions."""

import json

import jax
import jax.numpy as jnp
import optax
from tinygp import GaussianProcess, kernels, transforms

X = jnp.sort(jax.random.uniform(jax.random.key(0), (30,), maxval=10.0))
Y = jnp.sin(X) + 0.1 * jnp.cos(7 * X)


def build(params, x):
    kernel = jnp.exp(params["amplitude"]) * kernels.ExpSquared(jnp.exp(params["scale"])) + \
        0.1 * kernels.Matern32(2.0)
    return GaussianProcess(kernel, x, diag=jnp.exp(params["noise"]), mean=params["mean"])


@jax.jit
@jax.value_and_grad
def loss(params):
    return -build(params, X).log_probability(Y)


@jax.jit
def predict(params, x):
    _, conditioned = build(params, X).condition(Y, x)
    return conditioned.loc, conditioned.variance


def main():
    params = {"amplitude": jnp.zeros(()), "scale": jnp.zeros(()), "noise": jnp.array(-2.0),
              "mean": jnp.zeros(())}
    optimizer = optax.adam(0.05)
    opt, losses = optimizer.init(params), []
    for _ in range(20):
        value, grads = loss(params)
        updates, opt = optimizer.update(grads, opt)
        params = optax.apply_updates(params, updates)
        losses.append(float(value))
    loc, variance = predict(params, jnp.linspace(0, 10, 7))
    warped = transforms.Linear(jnp.array(0.5), kernels.Cosine(1.5))
    draw = GaussianProcess(warped, X[:5], diag=0.1).sample(jax.random.key(3), (2,))
    print(json.dumps({"losses": losses, "loc": loc.tolist(), "variance": variance.tolist(),
                      "draw": draw.tolist()}))


if __name__ == "__main__":
    main()
