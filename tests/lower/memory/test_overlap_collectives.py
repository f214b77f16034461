"""The order of launches around collectives keeps what depends on what."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fnx.core.ir import build, dtypes
from fnx.core.ir.uop import UOp
from fnx.lower.memory.dependences import dependences
from fnx.lower.memory.overlap_collectives import _order

NODES = [build.param(i, dtypes.float32, (2,)) for i in range(5)]
step = st.tuples(st.sets(st.sampled_from(NODES)), st.sets(st.sampled_from(NODES), max_size=2),
                 st.sampled_from(["", "start", "wait", "effect"]))


@given(st.lists(step, max_size=12))
def test_the_order_keeps_dependences(drawn: list[tuple[set[UOp], set[UOp], str]]) -> None:
    steps = [(uses | writes, writes, phase) for uses, writes, phase in drawn]
    order = _order(steps)
    assert sorted(order) == [*range(len(steps))]
    at = {i: position for position, i in enumerate(order)}
    for i, before in enumerate(dependences([(u, w, p == "effect") for u, w, p in steps])):
        assert all(at[k] < at[i] for k in before)
