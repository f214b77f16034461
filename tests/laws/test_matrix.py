"""A seeded sample of the transform matrix. ``make matrix`` runs all of it."""

from __future__ import annotations

import random

import pytest

from tests.laws.matrix import Matrix, Word, words
from tests.laws.matrix_cases import Case, public_cases, structural_cases
from tests.laws.matrix_statistics import distributions

STRUCTURAL = structural_cases()
ROWS = 10


def check(cases: list[Case], chosen: list[tuple[int, Word]], device: str) -> None:
    made = {i: Matrix(cases[i], device) for i, _ in chosen}
    wrong = []
    for i, word in chosen:
        try:
            made[i].check(word)
        except Exception as e:
            wrong.append(f"{cases[i].name} under {' '.join(word)}: {type(e).__name__}: {e}")
    assert not wrong, "\n".join(wrong)
    print(f"{len(made)} functions, {len(chosen)} words on {device}")


def test_the_cases_are_there() -> None:
    assert len(public_cases()[0]) >= 200
    assert {c.name for c in STRUCTURAL} >= {
        "scan", "while", "cond", "checkpoint", "call", "custom_vjp", "custom_jvp", "gather",
        "scatter"}


@pytest.mark.cases(1)
@pytest.mark.parametrize("row", range(ROWS))
def test_public_functions(row: int) -> None:
    """All single transforms and three longer compositions; two compositions for special
    functions."""
    rng, cases = random.Random(row), public_cases()[0][row::ROWS]
    longer = words(2) + words(3)
    chosen = [(i, word) for i in range(len(cases))
              for word in (rng.sample(words(1) + longer, 2) if "scipy" in cases[i].name
                           else words(1) + rng.sample(longer, 3))]
    check(cases, chosen, "interp")


@pytest.mark.cases(2)
@pytest.mark.parametrize("case", STRUCTURAL, ids=lambda c: c.name)
def test_structural_functions(case: Case) -> None:
    check([case], [(0, word) for word in words(1) + words(2)], "interp")


@pytest.mark.cases(1)
@pytest.mark.parametrize("row", range(4))
def test_distributions(row: int) -> None:
    """One composition for each distribution."""
    rng, cases = random.Random(row), distributions()[row::4]
    check(cases, [(i, rng.choice(words(1) + words(2))) for i in range(len(cases))], "interp")


@pytest.mark.cases(1)
@pytest.mark.parametrize("part", range(4))
def test_on_the_machine(part: int) -> None:
    rng, cases = random.Random(0), [*public_cases()[0], *STRUCTURAL]
    cells = [(i, word) for i in range(len(cases)) for word in words(1) + words(2)]
    for i, word in rng.sample(cells, 60)[part::4]:
        check(cases, [(i, word)], "cpu")
