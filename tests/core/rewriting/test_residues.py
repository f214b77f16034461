"""Quotients of multiples: only those that stay in the bounds of the division are replaced."""

from __future__ import annotations

import pytest

from fnx.core.ir import build, ops
from fnx.core.ir.uop import toposort
from fnx.core.rewriting.residues import select_multiples


@pytest.mark.parametrize("rows,is_replaced", [(5, True), (6, False)])
def test_a_quotient_past_the_last_is_not_taken(rows: int, is_replaced: bool) -> None:
    """Of (6, 5) in steps of 6 the last row has no multiple, and its number is no quotient."""
    i, j = build.range_(rows, 0), build.range_(5, 1)
    x, n = build.add(build.mul(i, build.index_const(5)), j), build.index_const(6)
    valid, value = build.lt(build.rem(x, n), build.index_const(1)), build.idiv(x, n)
    condition, quotient = select_multiples(valid, value)
    assert (quotient is i) is is_replaced
    assert any(node.op is ops.REM for node in toposort([condition])) is not is_replaced
