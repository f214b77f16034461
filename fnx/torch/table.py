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
    "_native_batch_norm_legit_no_training", "_pdist_forward", "_reshape_alias", "_reshape_copy",
    "addmv", "angle", "argmin", "avg_pool1d", "baddbmm", "conj_physical", "contiguous",
    "convert_element_type", "copy", "digamma", "embedding", "erf", "erfc", "erfinv", "eye",
    "fix", "full_like", "gcd", "gelu", "hardtanh", "hypot", "igammac", "imag", "index_add",
    "iota", "isfinite", "isinf", "lcm", "lgamma", "lift_fresh", "lift_fresh_copy", "logsumexp",
    "matmul", "nansum", "negative", "new_ones", "numpy_T", "polar", "prod", "real", "reshape",
    "roll", "round", "scatter_reduce", "select_scatter", "sign", "signbit", "sinc", "sort",
    "special_erfcx", "special_i0e", "special_i1e", "split_with_sizes", "square", "squeeze_copy",
    "sym_numel", "take", "true_divide", "unfold", "var", "view_as", "view_as_real", "view_copy",
    "zero"})
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
