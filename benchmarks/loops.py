"""Workloads that are loops: a recurrent cell, an ODE, a Markov chain, a fixed point.

As in workloads.py, each builder takes a namespace with the modules of JAX or of fnx.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def _normals(ns: Any, scale: float) -> Any:
    generator = np.random.default_rng(0)

    def draw(*shape: int) -> Any:
        values = generator.standard_normal(shape) * scale
        return ns.jnp.asarray(values.astype("float32"))

    return draw


def _lstm(ns: Any, length: int, width: int, batch: int) -> Any:
    """The mean of squares of all outputs of an LSTM, as a function of its weights and inputs."""
    jnp, nn = ns.jnp, ns.jax.nn
    normal = _normals(ns, 0.1)
    weights = (normal(width, 4 * width), normal(width, 4 * width), normal(4 * width))
    xs = normal(length, batch, width)

    def loss(weights: Any, xs: Any) -> Any:
        wx, wh, b = weights

        def cell(state: Any, x: Any) -> Any:
            h, c = state
            i, f, g, o = jnp.split(x @ wx + h @ wh + b, 4, -1)
            c = nn.sigmoid(f) * c + nn.sigmoid(i) * jnp.tanh(g)
            h = nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zeros = jnp.zeros((batch, width), "float32")
        return jnp.mean(ns.lax.scan(cell, (zeros, zeros), xs)[1] ** 2)

    return loss, (weights, xs)


def lstm(ns: Any, length: int = 200, width: int = 64, batch: int = 16) -> Any:
    loss, args = _lstm(ns, length, width, batch)
    return ns.jax.jit(loss), args


def lstm_grad(ns: Any, length: int = 200, width: int = 64, batch: int = 16) -> Any:
    loss, args = _lstm(ns, length, width, batch)
    return ns.jax.jit(ns.jax.grad(loss)), args


def rk4(ns: Any, steps: int = 10_000, dt: float = 0.001) -> Any:
    """The Lorenz system by the classical Runge-Kutta method; returns the path, too."""
    jnp = ns.jnp

    def slope(s: Any) -> Any:
        x, y, z = s
        return jnp.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z])

    def step(s: Any, _: Any) -> Any:
        a = slope(s)
        b = slope(s + dt / 2 * a)
        c = slope(s + dt / 2 * b)
        d = slope(s + dt * c)
        s = s + dt / 6 * (a + 2 * b + 2 * c + d)
        return s, s

    start = jnp.asarray(np.array([1.0, 1.0, 1.0], "float32"))
    return ns.jax.jit(lambda s: ns.lax.scan(step, s, None, length=steps)), (start,)


def hmc(ns: Any, draws: int = 500, leaps: int = 10, points: int = 200, features: int = 8) -> Any:
    """A Hamiltonian Monte Carlo chain for a logistic regression."""
    jax, jnp, lax, random = ns.jax, ns.jnp, ns.lax, ns.random
    normal = _normals(ns, 1.0)
    x = normal(points, features)
    y = jnp.asarray((np.arange(points) % 3 == 0).astype("float32"))

    def potential(w: Any, x: Any, y: Any) -> Any:
        z = x @ w
        return jnp.sum(jnp.logaddexp(0.0, z) - y * z) + 0.5 * jnp.sum(w * w)

    force = jax.grad(potential)

    def chain(key: Any, w: Any, x: Any, y: Any) -> Any:
        def leap(_: Any, state: Any) -> Any:
            w, p = state
            p = p - 0.01 * force(w, x, y)
            w = w + 0.02 * p
            return w, p - 0.01 * force(w, x, y)

        def draw(w: Any, key: Any) -> Any:
            one, other = random.split(key)
            p = random.normal(one, w.shape)
            v, q = lax.fori_loop(0, leaps, leap, (w, p))
            before = potential(w, x, y) + 0.5 * jnp.sum(p * p)
            after = potential(v, x, y) + 0.5 * jnp.sum(q * q)
            w = jnp.where(jnp.log(random.uniform(other)) < before - after, v, w)
            return w, w

        return lax.scan(draw, w, random.split(key, draws))

    return jax.jit(chain), (random.PRNGKey(0), jnp.zeros(features, "float32"), x, y)


def fixed_point(ns: Any, width: int = 64) -> Any:
    """z = tanh(W z + x), by iteration until nothing changes."""
    jnp = ns.jnp
    normal = _normals(ns, 1.0)
    w, x = normal(width, width), normal(width)
    w = w * (0.9 / np.linalg.norm(np.asarray(w), 2))

    def solve(w: Any, x: Any) -> Any:
        def moves(state: Any) -> Any:
            z, before, steps = state
            return (jnp.max(jnp.abs(z - before)) > 1e-6) & (steps < 1000)

        def step(state: Any) -> Any:
            z, _, steps = state
            return jnp.tanh(w @ z + x), z, steps + 1

        return ns.lax.while_loop(moves, step, (jnp.tanh(x), x, 0))[0]

    return ns.jax.jit(solve), (w, x)


LOOPS = {"lstm": lstm, "lstm_grad": lstm_grad, "rk4": rk4, "hmc": hmc, "fixed_point": fixed_point}
