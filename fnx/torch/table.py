"""The op table, and PyTorch's decompositions of the ops that it lacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, decomposition_table

from fnx.torch import bags, elementwise, fourier, indexing, nn, randoms, reductions, shapes
from fnx.torch.entry import OpEntry, Table

TABLE: Table = {**elementwise.TABLE, **reductions.TABLE, **shapes.TABLE, **indexing.TABLE,
                **bags.TABLE, **fourier.TABLE, **nn.TABLE, **randoms.TABLE}
NAMESPACES = ("aten", "prims")


def entry_of(target: Any) -> OpEntry | None:
    """Return the entry of an op; None if the table lacks it."""
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in NAMESPACES:
        return None
    return TABLE.get(target._opname)


def is_computed(target: Any) -> bool:
    """Whether fnx computes a call of a graph: an op of the table, or Python on numbers."""
    return entry_of(target) is not None or not isinstance(target, torch._ops.OperatorBase)


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Return PyTorch's decompositions of the ops that the table lacks."""
    return {op: f for op, f in {**decomposition_table, **core_aten_decompositions()}.items()
            if entry_of(op) is None}
