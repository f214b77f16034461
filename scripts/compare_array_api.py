"""Compare fnx.numpy with array_api_strict on the calls of the array API standard, 2024.12.

    python scripts/compare_array_api.py [text...]   calls that contain one of the texts; default all

Compared are values (including signs of real zeros), dtypes and shapes, with 64-bit defaults. Item
assignment is excluded. The exit status says whether something differs.
"""

from __future__ import annotations

import importlib.util
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import fnx.numpy as jnp  # noqa: E402
from fnx.core.support.config import override  # noqa: E402

UNSIGNED = ("xp.sign(", "xp.maximum(", "xp.minimum(")  # where the standard leaves the sign open
TOLERANCE = {"float32": 4e-6, "float64": 1e-14, "complex64": 8e-6, "complex128": 3e-14}


def load_cases() -> Any:
    spec = importlib.util.spec_from_file_location("api_cases",
                                                  ROOT / "tests" / "golden" / "api_cases.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def leaves(x: Any) -> list[Any]:
    """Return the arrays, numbers and dtypes of a result."""
    if isinstance(x, (tuple, list)):
        return [y for item in x for y in leaves(item)]
    return [x]


def plain(x: Any) -> Any:
    """Convert a value for comparison: to a NumPy array, or else to text."""
    if hasattr(x, "__array_namespace__"):
        return np.asarray(x._array if hasattr(x, "_as_array") else x)
    return str(x).rpartition(".")[2] if not isinstance(x, (bool, int, float)) else x


def difference(got: Any, want: Any, unsigned: bool = False, sums: bool = False) -> str:
    """Describe how two results differ; empty if they do not. ``unsigned``: ignore signs of zeros.
    ``sums``: each element is a sum of all, so errors are relative to the largest."""
    ours, theirs = [plain(x) for x in leaves(got)], [plain(x) for x in leaves(want)]
    if len(ours) != len(theirs):
        return f"{len(ours)} results, asked {len(theirs)}"
    for x, y in zip(ours, theirs):
        if not isinstance(y, np.ndarray):
            if x != y and not str(x).endswith(str(y)):
                return f"{x!r}, asked {y!r}"
            continue
        if (x.dtype, x.shape) != (y.dtype, y.shape):
            return f"{x.dtype}{x.shape}, asked {y.dtype}{y.shape}"
        if sums and y.dtype.kind in "fc":
            same = np.abs(x - y) <= TOLERANCE[y.dtype.name] * np.abs(y).max(initial=0)
        elif y.dtype.kind == "c":
            near = TOLERANCE[y.dtype.name]
            size = np.where(np.isfinite(y), np.abs(y), 0)  # of which a part has an error
            same = np.all([np.isclose(p, q, rtol=near, atol=near * size, equal_nan=True)
                           for p, q in ((x.real, y.real), (x.imag, y.imag))], 0)
        elif y.dtype.kind != "f":
            same = x == y
        else:
            with np.errstate(all="ignore"):
                near = np.isclose(x, y, rtol=TOLERANCE[y.dtype.name], atol=0, equal_nan=True)
                same = near & (unsigned | (np.signbit(x) == np.signbit(y)) | np.isnan(y))
        if not np.all(same):
            at = np.argwhere(~np.atleast_1d(same))[0]
            return f"{np.atleast_1d(x)[tuple(at)]!r}, asked {np.atleast_1d(y)[tuple(at)]!r} at {at}"
    return ""


class Both:
    """Evaluate expressions with fnx.numpy and with array_api_strict."""

    def __init__(self) -> None:
        self.cases = load_cases()
        self.strict = __import__("array_api_strict")
        self._seen: dict[str, Any] = {}

    def inputs(self, dtype: str) -> tuple[dict[str, Any], dict[str, Any]]:
        if dtype not in self._seen:
            self._seen[dtype] = (self.cases.inputs(jnp.asarray, dtype) | {"xp": jnp},
                                 self.cases.inputs(self.strict.asarray, dtype)
                                 | {"xp": self.strict})
        found: tuple[dict[str, Any], dict[str, Any]] = self._seen[dtype]
        return found

    def differ(self, dtype: str, expression: str) -> str | None:
        """Describe how the results differ; None if array_api_strict refuses the call."""
        with override(x64=True), warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            here, there = self.inputs(dtype)
            try:
                want = eval(expression, dict(there))
            except Exception:
                return None
            try:
                return difference(eval(expression, dict(here)), want,
                                  expression.startswith(UNSIGNED),
                                  expression.startswith("xp.fft."))
            except Exception as error:
                return f"refuses: {type(error).__name__} {str(error)[:160]}"


def main() -> None:
    both, total, wrong, refused = Both(), 0, 0, 0
    for dtype, expression in both.cases.cases():
        if sys.argv[1:] and not any(text in expression for text in sys.argv[1:]):
            continue
        if both.cases.on_purpose(dtype, expression):
            continue
        total += 1
        found = both.differ(dtype, expression)
        refused += found is None
        if found:
            wrong += 1
            print(f"{dtype}: {expression}: {found}", flush=True)
    print(f"{total} calls, {refused} that array_api_strict refuses, {wrong} differ")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
