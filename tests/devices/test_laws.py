"""Words of transforms that end in jit, on devices: a seeded sample (all: ``make device-laws``)."""

from __future__ import annotations

import os
import random
from functools import cache
from typing import Any

import pytest

from tests.devices.conftest import found
from tests.laws.matrix import Matrix, cells
from tests.laws.matrix_cases import public_cases

SEED = int(os.environ.get("TEST_SEED", "9"))
WORDS = 30


@cache
def sample() -> list[tuple[Matrix, Any]]:
    """Functions, and words for them."""
    chosen, public = random.Random(SEED), public_cases()[0]
    cases = [chosen.choice(public) for _ in range(WORDS)]
    return [chosen.choice(list(cells([case], "opencl"))) for case in cases]


@pytest.mark.parametrize("i", range(WORDS))
def test_a_word_on_opencl_is_what_the_interpreter_says(i: int) -> None:
    found("opencl")
    matrix, word = sample()[i]
    matrix.check(word)
