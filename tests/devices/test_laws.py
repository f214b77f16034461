"""Compositions of transforms that end in jit, on devices: a seeded sample (all: ``make
device-laws``)."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from tests.devices.conftest import found
from tests.laws.matrix import Matrix, cells
from tests.laws.matrix_cases import Case, public_cases
from tests.laws.matrix_devices import computed, is_refused, judge, looked_at

SEED = int(os.environ.get("TEST_SEED", "9"))
WORDS = 12


@pytest.mark.cases(1)
@pytest.mark.parametrize("device", ["opencl", "webgpu"])
def test_words_are_what_the_interpreter_says(device: str) -> None:
    found(device)
    rng, public = random.Random(SEED), public_cases()[0]
    chosen = [rng.choice(list(cells([rng.choice(public)], device))) for _ in range(WORDS)]
    answers = [(cell, error) for cell, error in looked_at(chosen, device)
               if not is_refused(error, device)]
    assert [f"{cell[0].case.name} {cell[1]}: {e}" for cell, e in answers if e is not None] == []
    assert len(answers) > WORDS // 2


@pytest.mark.parametrize("device", ["opencl", "webgpu"])
def test_a_wrong_word_is_found_among_others(device: str) -> None:
    """For one of two cases, another function is computed than the one that is checked."""
    found(device)
    right, other = public_cases()[0][:2]
    wrong = Matrix(Case(right.name, lambda xs: tuple([y * (1 + 1e-3) for y in right.f(xs)]),
                        right.xs), "interp")
    got: Any = computed([(Matrix(right, "interp"), ("jit",)), (Matrix(other, "interp"), ("jit",))],
                        device)
    judge((Matrix(right, "interp"), ("jit",)), got[0], device)
    with pytest.raises(AssertionError):
        judge((wrong, ("jit",)), got[0], device)


def test_what_fails_is_told_apart_from_what_is_computed_with_it() -> None:
    found("opencl")
    right = public_cases()[0][0]

    def failing(xs: Any) -> Any:
        raise ValueError("not here")

    broken = Matrix(Case("broken", failing, right.xs), "interp")
    chosen = [(Matrix(right, "interp"), ("jit",)), (broken, ("jit",)),
              (Matrix(right, "interp"), ("grad", "jit"))]
    assert [type(error) for _, error in looked_at(chosen, "opencl")] == [
        type(None), ValueError, type(None)]
