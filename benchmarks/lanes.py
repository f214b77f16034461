"""Workloads under vmap: per-example gradients, and batch elements with data-dependent trip counts.

As in workloads.py, each builder takes a namespace with the modules of JAX or of fnx.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def per_example_grads(ns: Any, batch: int = 512, width: int = 64) -> Any:
    """The gradients of an MLP's loss with respect to its weights, for each example of a batch."""
    jax, jnp = ns.jax, ns.jnp
    generator = np.random.default_rng(0)
    sizes = (32, width, width, 8)
    weights = [(jnp.asarray((generator.standard_normal((n, m)) * 0.1).astype("float32")),
                jnp.zeros(m, "float32")) for n, m in zip(sizes, sizes[1:])]
    x, y = (jnp.asarray(generator.standard_normal((batch, n)).astype("float32"))
            for n in (sizes[0], sizes[-1]))

    def loss(weights: Any, x: Any, y: Any) -> Any:
        for w, b in weights[:-1]:
            x = jnp.tanh(x @ w + b)
        w, b = weights[-1]
        return jnp.sum((x @ w + b - y) ** 2)

    return jax.jit(jax.vmap(jax.grad(loss), (None, 0, 0))), (weights, x, y)


def newton_lanes(ns: Any, lanes: int = 10_000) -> Any:
    """Square roots by Newton's method, until each batch element has converged."""
    jnp, lax = ns.jnp, ns.lax

    def root(a: Any) -> Any:
        return lax.while_loop(lambda s: jnp.abs(s * s - a) > 1e-4 * a, lambda s: (s + a / s) / 2, a)

    values = np.random.default_rng(0).uniform(1, 100, lanes).astype("float32")
    return ns.jax.jit(ns.jax.vmap(root)), (jnp.asarray(values),)


LANES = {"per_example_grads": per_example_grads, "newton_lanes": newton_lanes}
