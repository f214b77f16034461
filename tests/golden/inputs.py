"""Inputs that golden expressions may name; ``jnp`` and its like are JAX's or fnx's."""

from __future__ import annotations

from typing import Any

import numpy as np

TRANSFORMS = ("grad", "hessian", "jacfwd", "jacrev", "jvp", "linear_transpose", "linearize",
              "value_and_grad", "vjp", "vmap")


def names(top: Any, jnp: Any, lax: Any, nn: Any, random: Any) -> dict[str, Any]:
    """Return small arrays of each dtype and shape, made by the given modules."""
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    return {
        "np": np, "jnp": jnp, "lax": lax, "nn": nn, "random": random,
        **{name: getattr(top, name) for name in TRANSFORMS}, "k": random.PRNGKey(42),
        "b": jnp.asarray(np.array([True, False, True])),
        "i": jnp.asarray(np.array([1, 2, 3], np.int32)),
        "u": jnp.asarray(np.array([3, 1, 2], np.uint32)),
        "f": jnp.asarray(np.array([0.5, 1.5, 2.25], np.float32)),
        "v": jnp.asarray(np.arange(5, dtype=np.float32)),
        "m": jnp.asarray(x[0, :2, :3] - 2),
        "s": jnp.asarray(x[1, :3, :3]),
        "x": jnp.asarray(x),
        "out": jnp.asarray(np.array([0, 7, -1, -9], np.int32)),
        "odd": jnp.asarray(np.array([1.0, -0.0, np.nan, np.inf, -np.inf], np.float32)),
    }
