"""Arguments for user-written kernels: arrays, and abstract values that stand for them."""

from __future__ import annotations

from typing import Any

import numpy as np

import fnx


def normal(*shape: int) -> Any:
    """Return normally distributed numbers, the same at each call."""
    return np.random.default_rng(3).standard_normal(shape).astype("float32")


def spec(*shape: int, dtype: str = "float32") -> Any:
    return fnx.ShapeDtypeStruct(shape, dtype)
