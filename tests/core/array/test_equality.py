"""Exact equality: it separates values that are equal to Python but not to a program."""

import dataclasses
import math
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fnx.core.array.equality import StaticValue, exactly_equal


@dataclasses.dataclass(frozen=True)
class Options:
    value: Any


SCALARS = st.sampled_from([0, 1, 2, 0.0, -0.0, 1.0, True, False, None, "1", b"1", math.nan, 1j,
                           0j, -0j, np.float32(0), np.float32(-0.0), np.float64(1), np.int32(1)])
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=2).map(tuple)
                      | st.frozensets(inner, max_size=2) | st.builds(Options, inner),
                      max_leaves=4)


def text(x: Any) -> Any:
    """Return a value in full: with the type and the sign of everything in it."""
    if isinstance(x, tuple):
        return tuple(map(text, x))
    if isinstance(x, frozenset):
        return frozenset(map(text, x))
    if isinstance(x, Options):
        return Options, text(x.value)
    return type(x), repr(x)


@settings(deadline=None, max_examples=300)
@given(VALUES, VALUES)
def test_same_means_equal_in_full(a: Any, b: Any) -> None:
    assert exactly_equal(a, b) == (text(a) == text(b))
    assert (StaticValue(a) == StaticValue(b)) == exactly_equal(a, b)
    if exactly_equal(a, b) and a == b:
        assert hash(StaticValue(a)) == hash(StaticValue(b))


def test_new_objects_of_one_value_are_the_same() -> None:
    assert exactly_equal(float("nan"), float("nan")) and exactly_equal((1, ("a",)), (1, tuple("a")))
    assert not exactly_equal((1,), (1, 2)) and not exactly_equal(Options(1), (1,))
    assert not exactly_equal(Options(np.float32(0)), Options(()))
