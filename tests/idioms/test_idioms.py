"""A few programs run: if rejected, then by an fnx error, and two runs give the same.

``scripts/compare_idioms.py`` compares them with JAX.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
from fnx.core.support.errors import FnxError
from tests.idioms.on_purpose import on_purpose
from tests.idioms.programs import CALLS, program, run, shortest


def _answer(text: str, call: int) -> Any:
    try:
        return fnx.tree.leaves(run(text, fnx, call))
    except FnxError as error:
        return type(error)


@pytest.mark.cases(4)
@pytest.mark.parametrize("seed", range(100, 112))
def test_programs_are_refused_by_errors_of_fnx_and_repeat(seed: int) -> None:
    text = program(seed)
    for call in range(CALLS):
        first, again = _answer(text, call), _answer(text, call)
        if isinstance(first, type):
            assert first is again
            continue
        assert len(first) == len(again)
        for x, y in zip(first, again):
            if hasattr(x, "__array__"):
                np.testing.assert_array_equal(np.asarray(x), np.asarray(y))
            else:
                assert x == y


def test_programs_differ_and_can_be_drawn_again() -> None:
    texts = [program(seed) for seed in range(30)]
    assert len(set(texts)) == 30 and texts == [program(seed) for seed in range(30)]


def test_a_program_is_made_shorter() -> None:
    text = "a = 1\nfor i in range(3):\n    a += i\nb = 2\nc = 1 / 0\ncalls = [lambda: b]"

    def fails(text: str) -> bool:
        try:
            run(text, fnx, 0)
        except ZeroDivisionError:
            return True
        except Exception:
            return False
        return False
    assert shortest(text, fails) == "c = 1 / 0"


def test_what_differs_on_purpose_says_why() -> None:
    assert on_purpose("x", "answers; JAX refuses: TracerBoolConversionError at")
    assert not on_purpose("x", "refuses: TracedValueError") and not on_purpose("x", "")
    assert on_purpose("    lambda: jax.grad(lambda s: f2(x * s))(2.0),", "weak True, JAX False")
    assert not on_purpose("    lambda: f2(x)", "weak True, JAX False")
