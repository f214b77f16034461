"""A sample of the calls of tests/golden/name_cases.py answers as JAX did when it was recorded.

Record it anew with ``scripts/compare_jax.py --record``; without that option all calls are compared
with the JAX that is installed (``make compare``).
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.lax
import fnx.nn
import fnx.numpy
import fnx.random
import fnx.scipy.special
import fnx.scipy.stats
from fnx.core.array import tree

ROOT = Path(__file__).resolve().parent.parent.parent
GOLDEN = ROOT / "tests" / "golden"
RECORDED: dict[str, Any] = json.loads((GOLDEN / "names.json").read_text())


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"golden_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


CASES = load(GOLDEN / "name_cases.py")


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    return {**load(GOLDEN / "inputs.py").names(fnx, fnx.numpy, fnx.lax, fnx.nn, fnx.random),
            **CASES.more(fnx.numpy), "special": fnx.scipy.special,
            "stats": fnx.scipy.stats, "top": fnx}


@pytest.mark.parametrize("expression", [e for e in RECORDED if not CASES.on_purpose(e)])
def test_answers_as_jax_does(expression: str, seen: dict[str, Any]) -> None:
    found = tree.leaves(eval(expression, dict(seen)))
    want = RECORDED[expression]
    assert [str(getattr(x, "dtype", type(x).__name__)) for x in found] == [w[0] for w in want]
    for x, (dtype, weak, shape, values) in zip(found, want):
        given, wanted = np.asarray(x), np.array(values).reshape(shape)
        assert given.shape == tuple(shape)
        assert dtype == "bool" or getattr(x, "weak_type", False) == weak \
            or any(name in expression for name in CASES.WITHOUT_WEAK)
        if given.dtype.kind == "f":
            rtol = CASES.tolerance(expression)
            size = np.abs(wanted[np.isfinite(wanted)]).max(initial=0)
            np.testing.assert_allclose(given, wanted, rtol=rtol, atol=rtol * size / 10)
        else:
            np.testing.assert_array_equal(given, wanted)


def test_the_recording_is_a_sample_of_the_cases() -> None:
    calls = {e for family in CASES.FAMILIES.values() for e in family}
    assert len(RECORDED) > 200 and set(RECORDED) <= calls
