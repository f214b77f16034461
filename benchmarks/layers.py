"""Workloads of one op each: the convolutions of ResNet-18 and -50 (He et al., 2015), and sorting.

    python benchmarks/compare.py conv7x7_s2 conv3x3_s2 sort1M
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

BATCH = 8
# Input channels, output channels, image size, kernel size, stride.
LAYERS = {
    "conv7x7_s2": (3, 64, 224, 7, 2), "conv3x3_64": (64, 64, 56, 3, 1),
    "conv3x3_s2": (64, 128, 56, 3, 2), "conv3x3_256": (256, 256, 14, 3, 1),
    "conv3x3_512": (512, 512, 7, 3, 1), "conv1x1_256": (64, 256, 56, 1, 1),
    "conv1x1_s2": (256, 512, 56, 1, 2)}


def layer(inside: int, outside: int, size: int, kernel: int, stride: int
          ) -> Callable[[Any], tuple[Callable[..., Any], tuple[Any, ...]]]:
    def build(ns: Any) -> Any:
        draw = np.random.default_rng(0)
        x, w = (ns.jnp.asarray(draw.standard_normal(shape).astype("float32")) for shape in (
            (BATCH, inside, size, size), (outside, inside, kernel, kernel)))
        edge = kernel // 2
        return ns.jax.jit(lambda x, w: ns.lax.conv_general_dilated(
            x, w, (stride, stride), ((edge, edge), (edge, edge)))), (x, w)
    return build


def sort(count: int, *more: int) -> Callable[[Any], tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Sort float32 values along the last axis."""
    def build(ns: Any) -> Any:
        x = np.random.default_rng(0).standard_normal((*more, count)).astype("float32")
        return ns.jax.jit(ns.jnp.sort), (ns.jnp.asarray(x),)
    return build


def argsort(count: int) -> Callable[[Any], tuple[Callable[..., Any], tuple[Any, ...]]]:
    def build(ns: Any) -> Any:
        x = np.random.default_rng(0).integers(0, count, count).astype("int32")
        return ns.jax.jit(ns.jnp.argsort), (ns.jnp.asarray(x),)
    return build


SINGLE = {**{name: layer(*sizes) for name, sizes in LAYERS.items()},
          "sort1M": sort(1 << 20), "sort_rows": sort(256, 4096), "argsort1M": argsort(1 << 20)}
