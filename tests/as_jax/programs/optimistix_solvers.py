"""optimistix: roots, fixed points, least squares and minima, and derivatives of their results."""

import json

import jax
import jax.numpy as jnp
import optimistix as optx


def kepler(eccentric, args):
    mean, e = args
    return eccentric - e * jnp.sin(eccentric) - mean


@jax.jit
def root(args):
    return optx.root_find(kepler, optx.Newton(rtol=1e-5, atol=1e-6), args[0], args).value


@jax.jit
def bisected(args):
    solver = optx.Bisection(rtol=1e-5, atol=1e-6)
    return optx.root_find(kepler, solver, jnp.float32(1.0), args,
                          options={"lower": 0.0, "upper": 3.0}).value


@jax.jit
def fixed_point(a):
    return optx.fixed_point(lambda y, a: jnp.cos(a * y), optx.FixedPointIteration(1e-5, 1e-6),
                            jnp.float32(0.5), a).value


def residuals(params, data):
    x, y = data
    return params[0] * jnp.exp(-params[1] * x) - y


@jax.jit
def fit(data):
    solver = optx.LevenbergMarquardt(rtol=1e-6, atol=1e-6)
    return optx.least_squares(residuals, solver, jnp.array([1.0, 1.0]), data).value


def rosenbrock(y, scale):
    return jnp.sum(scale * (y[1:] - y[:-1] ** 2) ** 2 + (1 - y[:-1]) ** 2)


@jax.jit
def minimum(scale):
    solver = optx.BFGS(rtol=1e-5, atol=1e-6)
    return optx.minimise(rosenbrock, solver, jnp.array([-0.5, 0.8, 0.3]), scale).value


def main():
    args = (jnp.float32(1.2), jnp.float32(0.3))
    x = jnp.linspace(0, 2, 20)
    data = x, 2.5 * jnp.exp(-1.3 * x) + 0.01 * jnp.sin(9 * x)
    print(json.dumps({
        "root": root(args).tolist(), "bisection": bisected(args).tolist(),
        "derivative": [g.tolist() for g in jax.grad(root)(args)],
        "fixed_point": fixed_point(jnp.float32(0.9)).tolist(),
        "implicit": jax.grad(fixed_point)(jnp.float32(0.9)).tolist(),
        "fit": fit(data).tolist(), "minimum": minimum(jnp.float32(10.0)).tolist()}))


if __name__ == "__main__":
    main()
