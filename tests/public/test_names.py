"""A sample of the calls of tests/golden/name_cases.py answers as JAX did when it was recorded.

Record it again with ``scripts/compare_jax.py --record``; without that option all calls are compared
with the installed JAX (``make compare``).
"""

from __future__ import annotations

import functools
import importlib.util
import json
import re
import sys
import warnings
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
WIDE_CASES = load(GOLDEN / "wide_cases.py")
DIFFERENCES = load(GOLDEN / "differences.py")
WIDE: dict[str, Any] = json.loads((GOLDEN / "wide.json").read_text())
EDGES: dict[str, Any] = json.loads((GOLDEN / "edges.json").read_text())
PARTS = 24


def seen() -> dict[str, Any]:
    """Return the names in the expressions."""
    probe = functools.partial(DIFFERENCES.probe, fnx, fnx.numpy)
    return {**load(GOLDEN / "inputs.py").names(fnx, fnx.numpy, fnx.lax, fnx.nn, fnx.random),
            **CASES.more(fnx.numpy), "special": fnx.scipy.special,
            "stats": fnx.scipy.stats, "top": fnx, "probe": probe,
            **WIDE_CASES.operands(fnx.numpy, bool(fnx.config.x64))}


@pytest.fixture(scope="module", name="seen")
def names() -> dict[str, Any]:
    return seen()


@pytest.mark.parametrize("part", range(PARTS))
def test_answers_as_jax_does(part: int, seen: dict[str, Any]) -> None:
    for expression in list(RECORDED)[part::PARTS]:
        if not DIFFERENCES.on_purpose(expression):
            try:
                compare(expression, tree.leaves(eval(expression, dict(seen))))
            except Exception as wrong:
                wrong.add_note(f"in {expression}")
                raise


def compare(expression: str, found: list[Any]) -> None:
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


def wanted(dtype: str, weak: bool, shape: list[int], values: list[Any]) -> tuple[Any, ...]:
    whole = re.fullmatch(r"u?int(?:8|16|32|64)", dtype)
    data = np.array(values, dtype if whole else None).reshape(shape)
    return dtype, weak, tuple(shape), data


@pytest.mark.cases(16)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("mode", WIDE)
def test_every_function_over_every_dtype(mode: str, part: int) -> None:
    """A sample of tests/golden/wide_cases.py, and gradients, in both modes."""
    check(mode, list(WIDE[mode].items())[part::PARTS])


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("mode", EDGES)
def test_where_nothing_is_left_and_lists_of_several_kinds(mode: str, part: int) -> None:
    """A sample of degenerate_cases.py and list_cases.py, and gradients, in both modes."""
    check(mode, [(re.sub(r"\b(?:top|jax)\.jit\(", "(", call), answer)
                 for call, answer in list(EDGES[mode].items())[part::4]])


def check(mode: str, calls: list[tuple[str, Any]]) -> None:
    """Check that recorded calls answer as JAX did."""
    wrong = []
    with fnx.enable_x64(mode == "x64"), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        names = seen()
        for call, recorded in calls:
            is_gradient = call.startswith("grad(")
            found = DIFFERENCES.difference(
                DIFFERENCES.answer(call, names, tree.leaves), [wanted(*r) for r in recorded],
                CASES.tolerance(call) * (10 if is_gradient else 1),
                not any(name in call for name in CASES.WITHOUT_WEAK), 1.0 if is_gradient else 1e-30)
            wrong += [f"{call}: {found}"] * bool(found)
    assert not wrong, "\n".join(wrong)


def test_the_recording_is_a_sample_of_the_cases() -> None:
    calls = {e for family in CASES.FAMILIES.values() for e in family}
    assert len(RECORDED) > 200 and set(RECORDED) <= calls
