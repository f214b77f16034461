"""A few mutants of files; ``python -m tests.attack.files`` checks many."""

from __future__ import annotations

import sys

import pytest

from fnx.transforms.kernel_lang import verify
from tests.attack import entries, files, mutants

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")


@pytest.mark.cases(1)
@pytest.mark.parametrize("seed", range(15))
def test_a_mutant_is_refused_or_safe(seed: int) -> None:
    assert files.check(seed)


def test_a_node_whose_checks_take_too_long_is_named() -> None:
    assert files.check(6137) == "fnx refused"


def test_kinds_are_all_drawn() -> None:
    assert {mutants.mutant(seed)[0] for seed in range(20)} == set(mutants.KINDS)


def test_a_kernel_that_reads_elsewhere_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the bounds proofs, one of the first mutants of kernels reads out of bounds."""
    monkeypatch.setattr(verify, "find_fault", lambda *given: None)
    monkeypatch.setattr(verify, "find_operand_fault", lambda *given: None)

    def is_found(seed: int) -> bool:
        try:
            files.check(seed)
        except AssertionError as error:
            return "expected 0 <= index" in str(error) or "ended by" in str(error)
        return False

    kernels = [seed for seed in range(500) if mutants.drawn(seed)[1] in mutants.KERNELS]
    assert any(map(is_found, kernels))


@pytest.mark.cases(1)
@pytest.mark.parametrize("seed", range(6))
def test_an_entry_of_the_cache_is_a_miss_or_right(seed: int) -> None:
    assert entries.check(seed)
