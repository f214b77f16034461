"""Index expressions: lists, tuples, masks with and without axes, in any mixture, mean what they
mean in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx.numpy as jnp
from fnx.core.support import errors

SHAPE = 3, 4, 5
X = np.arange(60, dtype=np.float32).reshape(SHAPE)


def _spelled(numbers: Any, how: str) -> Any:
    """Return nested lists as users write them."""
    def tuples(x: Any) -> Any:
        return tuple(map(tuples, x)) if isinstance(x, list) else x

    def arrays(x: Any) -> Any:  # one of the innermost is an Array
        return [arrays(x[0]), *x[1:]] if isinstance(x, list) and x else \
            x if isinstance(x, list) else jnp.asarray(x)

    return {"list": lambda: numbers, "tuple": lambda: tuples(numbers),
            "numpy": lambda: np.asarray(numbers, None if numbers else np.int32),
            "array": lambda: jnp.asarray(numbers, None if numbers else "int32"),
            "of arrays": lambda: arrays(numbers)}[how]()


@st.composite
def indices(draw: st.DrawFn) -> tuple[Any, ...]:
    """Return an index of SHAPE for NumPy, and the same index as users may write it."""
    theirs: list[Any] = []
    ours: list[Any] = []
    axis, length = 0, draw(st.sampled_from([(2,), (1,), (2, 2), (), (0,)]))

    def numbers(n: int, shape: tuple[int, ...] = length) -> Any:
        return draw(st.integers(-n, n - 1)) if not shape else \
            [numbers(n, shape[1:]) for _ in range(shape[0])]

    def both(entry: Any, spelled: Any) -> None:
        theirs.append(entry)
        ours.append(spelled)

    while axis < len(SHAPE) and draw(st.integers(0, 9)) < 8:
        n = SHAPE[axis]
        kind = draw(st.sampled_from(["numbers", "numbers", "mask", "bool", "int", "slice", "new"]))
        if kind == "bool":
            is_true = draw(st.booleans())
            both(is_true, draw(st.sampled_from([is_true, np.bool_(is_true), np.array(is_true),
                                                jnp.asarray(is_true)])))
        elif kind == "new":
            both(None, None)
        else:
            axis += 1
        if kind == "numbers":
            some = numbers(n)
            how = draw(st.sampled_from(["list", "tuple", "numpy", "array", "of arrays"]))
            both(np.asarray(some, int), _spelled(some, how))
        elif kind == "mask":
            chosen = draw(st.lists(st.booleans(), min_size=n, max_size=n))
            both(chosen, _spelled(chosen, draw(st.sampled_from(
                ["list", "tuple", "numpy", "array", "of arrays"]))))
        elif kind == "int":
            both(i := draw(st.integers(-n, n - 1)), draw(st.sampled_from([i, np.int8(i)])))
        elif kind == "slice":
            both(s := slice(draw(st.integers(0, 1)), None, draw(st.sampled_from([None, 2]))), s)
    if draw(st.booleans()):
        at = draw(st.integers(0, len(ours)))
        theirs.insert(at, ...)
        ours.insert(at, ...)
    return tuple(theirs), tuple(ours)


@settings(max_examples=100)
@given(indices())
def test_reads_and_writes_mean_what_numpy_means(index: Any) -> None:
    theirs, ours = index
    try:
        want = X[theirs]
    except IndexError:  # shapes that do not broadcast
        with pytest.raises(errors.FnxError):
            jnp.asarray(X)[ours]
        return
    got = jnp.asarray(X)[ours]
    assert got.shape == want.shape
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(jnp.asarray(X).at[ours].get(), want)

    written, added = X.copy(), X.copy()
    written[theirs] = -1.0
    np.add.at(added, theirs, 2.0)
    np.testing.assert_array_equal(jnp.asarray(X).at[ours].set(-1.0), written)
    np.testing.assert_array_equal(jnp.asarray(X).at[ours].add(2.0), added)


@pytest.mark.parametrize("index", [[0, 1], [[0, 1]], [], [slice(0, 1)], range(2), [None]], ids=str)
def test_what_a_sequence_means_alone_is_not_guessed(index: Any) -> None:
    for use in (lambda: jnp.asarray(X)[index], lambda: jnp.asarray(X).at[index].set(0.0)):
        with pytest.raises(TypeError, match="other than a bare"):
            use()


@pytest.mark.parametrize(("index", "error"), [
    ([0.5], errors.DTypeError), (["a"], errors.DTypeError), ([None], errors.DTypeError),
    ([[0, 1], [1]], errors.ShapeError), ([True], errors.ShapeError),
    (range(2), errors.DTypeError)], ids=str)
def test_what_a_list_may_not_hold(index: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        jnp.asarray(X)[:, index]


def test_values_written_may_be_lists() -> None:
    x = jnp.zeros((2, 3)).at[:, [0, 2]].set([1, 2.5])
    np.testing.assert_array_equal(x, [[1, 0, 2.5], [1, 0, 2.5]])
