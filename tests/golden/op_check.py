"""Comparison of fnx's answer to a generated call with JAX's."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from tests.golden import op_cases

TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 2e-5, "float64": 1e-12}


def difference(case: op_cases.Case, want: list[dict[str, Any]] | str, fnx: Any, jit: bool = False
               ) -> str:
    """Return what differs, or nothing."""
    jnp, lax = (importlib.import_module(f"fnx.{name}") for name in ("numpy", "lax"))
    try:
        got = [np.asarray(x) for x in op_cases.evaluate(case, fnx, jnp, lax, jit)]
    except fnx.errors.FnxError as error:
        return "" if isinstance(want, str) else f"refused: {error}"
    if isinstance(want, str):
        return f"not refused, JAX: {want}"
    if len(got) != len(want):
        return f"{len(want)} results, got {len(got)}"
    for i, (x, w) in enumerate(zip(got, want)):
        if (str(x.dtype), list(x.shape)) != (w["dtype"], w["shape"]):
            return f"result {i}: {w['dtype']}{w['shape']}, got {x.dtype}{list(x.shape)}"
        y = np.array(w["values"], w["dtype"]).reshape(w["shape"])
        said = _values(x, y, case.exact)
        if said:
            return f"result {i}: {said}"
    return ""


def _values(x: Any, y: Any, exact: bool) -> str:
    if exact or x.dtype.kind not in "fV":
        same = (x == y) & (np.signbit(x) == np.signbit(y)) | (x != x) & (y != y) \
            if x.dtype.kind == "f" else x == y
        return "" if np.all(same) else f"{y.ravel().tolist()}, got {x.ravel().tolist()}"
    a, b = x.astype(np.float64), y.astype(np.float64)
    finite = np.isfinite(b)
    largest = np.max(np.abs(b), initial=1.0, where=finite)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return f"not finite in other places: {b.tolist()}, got {a.tolist()}"
    error = np.max(np.abs(a - b), initial=0.0, where=finite) / largest
    return "" if error < TOLERANCE[str(x.dtype)] else f"differs by {error:.2g}"
