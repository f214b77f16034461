"""Record JAX's answers to generated calls in tests/golden/ops.json, which the tests replay on fnx.

    python scripts/record_jax_ops.py                            record it
    python scripts/record_jax_ops.py compare 500 convolution    compare live: so many of a family

The calls are those of ``tests/golden/op_cases.py``: values and gradients, or that JAX refuses.
"""

from __future__ import annotations

import collections
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden"
RECORDED = 24  # cases per family

sys.path.insert(0, str(ROOT))
op_cases = importlib.import_module("tests.golden.op_cases")


def number(x: Any) -> Any:
    """Round a float to the digits that its dtype has."""
    return float(f"{float(x):.9g}") if isinstance(x, float | np.floating) else x.item()


def answer(case: Any) -> list[dict[str, Any]] | str:
    """Return JAX's result as plain data, or the name of the error that it raises."""
    try:
        with jax.numpy_dtype_promotion("standard"):
            found = op_cases.evaluate(case, jax, jax.numpy, jax.lax)
    except Exception as error:
        return type(error).__name__
    return [{"dtype": str(a.dtype), "shape": list(a.shape),
             "values": [number(v) for v in a.ravel()]} for a in map(np.asarray, found)]


def record() -> None:
    lines = [f'  "jax": {json.dumps(jax.__version__)}']
    for family in op_cases.FAMILIES:
        rows = ",\n".join("    " + json.dumps(answer(c))
                          for c in op_cases.cases(family, RECORDED))
        lines.append(f'  "{family}": [\n{rows}\n  ]')
    (GOLDEN / "ops.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def compare(count: int, families: list[str], first: int) -> int:
    """Print every case in which fnx differs; return their number."""
    fnx = importlib.import_module("fnx")
    check = importlib.import_module("tests.golden.op_check")
    differ = 0
    for family in families or list(op_cases.FAMILIES):
        found: collections.Counter[str] = collections.Counter()
        for case in op_cases.cases(family, count, first):
            said = check.difference(case, answer(case), fnx)
            found["differ" if said else "agree"] += 1
            if said:
                print(f"{family} {case.seed}: {case.expression}\n    {case.operands}\n    {said}")
        differ += found["differ"]
        print(f"{family}: {found['agree']} of {count} agree", flush=True)
    return differ


if __name__ == "__main__":
    if sys.argv[1:2] == ["compare"]:
        sys.exit(min(1, compare(int(sys.argv[2]), sys.argv[3:], 10_000)))
    record()
