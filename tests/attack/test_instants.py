"""Ctrl-C at every check point of some calls (tests/attack/instants.py)."""

from __future__ import annotations

import pytest

from tests.attack.instants import attack


@pytest.mark.cases(2)
@pytest.mark.parametrize("name", ["print", "donation in flight", "donated to a loop", "eager"])
def test_ctrl_c_at_every_place(name: str) -> None:
    counts = attack([name], seed=0, count=None, seconds=None)
    print(counts)
    assert counts.whole == [name] and counts.interrupts[name] > 20
    assert not counts.wrong, counts
