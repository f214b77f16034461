"""The op table, and PyTorch's decompositions of the ops that it lacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, decomposition_table

from fnx.torch import elementwise, indexing, nn, randoms, reductions, shapes
from fnx.torch.entry import OpEntry, Table

ROWS: Table = {**elementwise.TABLE, **reductions.TABLE, **shapes.TABLE, **indexing.TABLE,
               **nn.TABLE, **randoms.TABLE}
# Rows that scripts/torch_conformance.py does not confirm: PyTorch computes these ops.
UNCONFIRMED = frozenset({
    "_batch_norm_with_update_functional", "_conj", "_index_put_impl",
    "_native_batch_norm_legit", "_native_batch_norm_legit_functional",
    "_native_batch_norm_legit_no_training", "_reshape_alias", "_reshape_copy", "addmv",
    "avg_pool1d", "baddbmm", "conj_physical", "contiguous", "convert_element_type", "copy",
    "fix", "gcd", "imag", "iota", "isfinite", "lcm", "matmul", "negative",
    "new_ones", "numpy_T", "polar", "real", "reshape", "sort", "special_i0e", "special_i1e",
    "square", "sym_numel", "take", "true_divide", "view_as", "view_as_real", "zero"})
TABLE: Table = {name: row for name, row in ROWS.items() if name not in UNCONFIRMED}
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
