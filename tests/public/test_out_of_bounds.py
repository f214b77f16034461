"""Out-of-bounds static indices: as in JAX, with one warning per line that has one."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.numpy as jnp
from fnx.core.support.config import override
from fnx.core.support.errors import OutOfBoundsError, OutOfBoundsWarning

COMPILED = True  # indices become data
X = np.arange(3, dtype=np.float32)
M = np.arange(6, dtype=np.float32).reshape(2, 3)

# (the call, the result of JAX 0.10.2, whether users are warned)
CASES: list[tuple[Callable[[Any, Any], Any], Any, bool]] = [
    (lambda x, m: x[10], 2, True), (lambda x, m: x[-10], 0, True),
    (lambda x, m: m[5], [3, 4, 5], True), (lambda x, m: m[0, 7], 2, True),
    (lambda x, m: m[5, 1:], [4, 5], True), (lambda x, m: m[..., 9], [2, 5], True),
    (lambda x, m: m[None, 9], [[3, 4, 5]], True), (lambda x, m: m[10, 10], 5, True),
    (lambda x, m: m[np.int32(9)], [3, 4, 5], True),
    (lambda x, m: m[np.array([0, 1]), 5], [2, 5], True),
    (lambda x, m: m[5, np.array([0, 1])], [3, 4], True),
    (lambda x, m: x.at[10].get(), 2, True), (lambda x, m: x.at[10].get(mode="clip"), 2, False),
    (lambda x, m: x.at[10].get(mode="fill"), np.nan, False),
    (lambda x, m: x.at[-9].get(mode="fill", fill_value=-1), -1, False),
    (lambda x, m: x.at[10].get(mode="drop"), np.nan, False),
    (lambda x, m: m.at[1, 9].get(mode="fill"), np.nan, False),
    (lambda x, m: x.at[10].set(9), X, True), (lambda x, m: x.at[-10].add(9), X, True),
    (lambda x, m: x.at[10].set(9, mode="drop"), X, False),
    (lambda x, m: x.at[10].set(9, mode="clip"), [0, 1, 9], False),
    (lambda x, m: x.at[-10].add(9, mode="clip"), [9, 1, 2], False),
    (lambda x, m: m.at[5, np.array([0, 1])].set(7), M, True),
    (lambda x, m: m.at[0, 4].multiply(7), M, True), (lambda x, m: jnp.take(x, 10), np.nan, False),
    (lambda x, m: jnp.take_along_axis(x, np.array([7]), 0), [np.nan], False),
    (lambda x, m: jnp.take_along_axis(x, np.array([7, -1]), 0, mode="drop"), [np.nan, 2], False),
    (lambda x, m: jnp.take_along_axis(x, np.array([-1]), mode="drop",
                                      wrap_negative_indices=False), [np.nan], False),
    (lambda x, m: jnp.put(x, np.array([-1, -9]), 9, inplace=False), [9, 1, 9], False),
    (lambda x, m: jnp.put(x, np.array([-1]), 9, "clip", inplace=False), [9, 1, 2], False),
    (lambda x, m: jnp.put(x, np.array([7]), 9, "clip", inplace=False), [0, 1, 9], False),
    (lambda x, m: jnp.put(x, np.array([-1, 4]), 9, "wrap", inplace=False), [0, 9, 9], False),
    (lambda x, m: jnp.put(x[:0], np.array([1]), 9, inplace=False), [], False),
    (lambda x, m: x[1:10], [1, 2], False), (lambda x, m: x[-9:2], [0, 1], False),
]


@pytest.mark.parametrize("case", CASES)
def test_static_indices_outside_mean_what_they_mean_in_jax(case: Any) -> None:
    f, want, warned = case
    for call in (f, fnx.jit(f)):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            found = call(jnp.asarray(X), jnp.asarray(M))
        np.testing.assert_array_equal(np.asarray(found), np.asarray(want, np.float32))
        assert {w.category for w in seen} == {OutOfBoundsWarning} if warned else not seen
        if warned:
            assert seen[0].filename == __file__
            text = str(seen[0].message)
            assert "index < " in text and "got" in text and "check_index" in text


def test_a_line_warns_once() -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        for _ in range(3):
            jnp.asarray(X)[77]
    assert len(seen) == 1


def test_check_index_makes_it_an_error_whatever_the_mode() -> None:
    for f, _, _ in CASES[:6]:
        with override(check_index=True), pytest.raises(OutOfBoundsError):
            fnx.jit(lambda x, m, f=f: f(x, m))(X, M)
    with override(check_index=True), pytest.raises(OutOfBoundsError):
        jnp.asarray(X).at[10].get(mode="fill")


def test_gradients_of_what_is_read_and_dropped() -> None:
    with pytest.warns(OutOfBoundsWarning):
        np.testing.assert_array_equal(np.asarray(fnx.grad(lambda x: x[10] * 2)(X)), [0, 0, 2])
    slope = fnx.grad(lambda v: jnp.asarray(X).at[9].set(v, mode="drop").sum())(1.0)
    assert float(slope) == 0


def index_tuples() -> st.SearchStrategy[tuple[Any, ...]]:
    arrays = st.lists(st.integers(-6, 6), min_size=2, max_size=2).map(np.array)
    entry = st.integers(-6, 6) | arrays | st.just(slice(1, None))
    return st.tuples(entry, entry, entry)


@pytest.mark.filterwarnings("ignore::fnx.core.support.errors.OutOfBoundsWarning")
@settings(max_examples=40, deadline=None)
@given(index=index_tuples(), mode=st.sampled_from([None, "clip", "fill", "promise_in_bounds"]),
       method=st.sampled_from(["get", "set", "add", "max"]))
def test_a_number_has_the_derivative_of_the_same_index_as_data(
        index: tuple[Any, ...], mode: str | None, method: str) -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4) + 1

    def derivative(index: tuple[Any, ...]) -> Any:
        def f(x: Any) -> Any:
            at = x.at[index]
            out = at.get(mode=mode) if method == "get" else \
                getattr(at, method)(x[0, 0, 0] * 5, mode=mode)
            return (out * jnp.arange(1.0, out.size + 1).reshape(out.shape)).sum()
        return fnx.grad(f)(x)

    data = tuple([i if isinstance(i, slice) else jnp.asarray(i) for i in index])
    np.testing.assert_array_equal(derivative(index), derivative(data))
