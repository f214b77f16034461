"""A few programs of both attacks; tests/laws has more of the generators that they draw from."""

from __future__ import annotations

import pytest

from tests.attack import compositions, kernels, loops


@pytest.mark.parametrize("seed", range(100, 108))
def test_loops_in_portions_are_the_python_programs(seed: int) -> None:
    with loops.portions_of(1 + seed % 3):
        loops.check(seed)


def test_searched_kernels_are_those_of_the_compilers_choice_under_words() -> None:
    assert sum(kernels.searched(seed) for seed in range(8)) >= 3


@pytest.mark.parametrize("seed", (4, 8, 13, 14, 20, 24, 1077))
def test_structures_inside_structures_are_the_plain_functions(seed: int) -> None:
    compositions.check(seed)
