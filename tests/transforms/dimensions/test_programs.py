"""A function that is traced once with dimensions is the function of arrays, for all lengths."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given, settings

import fnx
from fnx.core.levels import interp
from fnx.core.rewriting.lengths import length_at
from fnx.core.tracing.trace import ClosedFunction
from fnx.transforms.abstract_eval import trace_closed
from fnx.transforms.dispatch.bounded_lengths import BoundedTrace, trace_bounded
from tests.transforms.dimensions.programs import PROGRAMS, B, T


def _avals(shapes: list[Any], lengths: dict[Any, int]) -> list[fnx.ShapeDtypeStruct]:
    pairs = [s if isinstance(s[-1], str) else (s, "float32") for s in shapes]
    return [fnx.ShapeDtypeStruct(tuple([length_at(n, lengths) if lengths else n for n in shape]),
                                 dtype) for shape, dtype in pairs]


def _struct(aval: Any) -> fnx.ShapeDtypeStruct:
    return fnx.ShapeDtypeStruct(aval.shape, aval.dtype)


def _values(closed: ClosedFunction, function: Any, avals: list[Any]) -> list[Any]:
    rng = np.random.default_rng(0)
    args = [rng.normal(size=a.shape).astype("float32") if a.dtype.kind == "f"
            else rng.integers(0, 3, a.shape).astype(a.dtype) for a in avals]
    captured = [fnx.core.array.array.Array(c)._numpy() for c in closed.captures]
    return interp.apply(function, [*args, *captured])


@pytest.mark.cases(13)
@pytest.mark.parametrize("name", PROGRAMS)
@settings(max_examples=5, deadline=None)
@given(t=st.integers(1, 64), b=st.integers(1, 16))
@example(t=1, b=1)
@example(t=1, b=5)
def test_lengths_of_a_call(name: str, t: int, b: int) -> None:
    f, shapes = PROGRAMS[name]
    lengths = {T.node: t, B.node: b}
    general, avals = _avals(shapes, {}), _avals(shapes, lengths)

    def trace(avals: Any) -> ClosedFunction:
        return trace_closed(f, tuple(avals), "test")[0]

    direct = trace(avals)
    closed = BoundedTrace().find(lengths, lambda: trace_bounded(
        [x._aval for x in general], lambda new: trace([_struct(a) for a in new]), lengths),
        lambda: direct)
    function = closed.function
    assert [(x.shape, x.dtype) for x in function.src] == \
        [(x.shape, x.dtype) for x in direct.function.src]
    if function is not direct.function:  # with an axis of length 1, say, that needs no EXPAND
        for got, want in zip(_values(closed, function, avals),
                             _values(direct, direct.function, avals), strict=True):
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)
