"""The protocol of Array: its attributes, its values, its operators against NumPy's, its text."""

from __future__ import annotations

import copy
import operator
import pickle
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx.numpy as jnp
from fnx.core.array.api_boundary import evaluate_pending
from fnx.core.array.array import Array
from fnx.core.ir.dtypes import float32
from fnx.core.scope import scope
from fnx.core.support.config import override

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_what_it_is() -> None:
    x = jnp.asarray(X)
    assert (x.shape, x.ndim, x.size, x.itemsize, x.nbytes) == ((2, 3), 2, 6, 4, 24)
    assert x.dtype == np.float32 and isinstance(x.dtype, np.dtype)
    assert x.T.shape == (3, 2)
    assert len(x) == 2
    assert isinstance(x, jnp.ndarray)
    with pytest.raises(TypeError, match="unhashable"):
        hash(x)
    with pytest.raises(AttributeError):
        x.shape = (6,)  # type: ignore[misc]


def test_values() -> None:
    x = jnp.asarray(X)
    np.testing.assert_array_equal(np.asarray(x), X)
    assert x.tolist() == X.tolist()
    assert x[1, 2].item() == 5.0 and x.item(1, 2) == 5.0
    assert float(x[0, 1]) == 1.0 and int(x[0, 1]) == 1 and bool(x[0, 1]) and complex(x[0, 1]) == 1
    assert [10, 20, 30][jnp.asarray(2)] == 30
    assert 3.0 in x and 7.0 not in x
    assert x.block_until_ready() is x and x.is_ready()
    assert [r.tolist() for r in x] == X.tolist()
    a, b = jnp.asarray([1, 2])
    assert (int(a), int(b)) == (1, 2)


def test_array_protocol() -> None:
    x = jnp.asarray(X)
    view = np.asarray(x)
    assert not view.flags.writeable
    mine = np.array(x)
    mine[0, 0] = 9
    assert float(x[0, 0]) == 0.0
    assert np.asarray(x, np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="copy=False"):
        x.__array__(np.float64, copy=False)


def test_data_are_copied_in() -> None:
    data = X.copy()
    x = jnp.asarray(data)
    data[:] = -1
    np.testing.assert_array_equal(np.asarray(x), X)
    np.testing.assert_array_equal(np.asarray(jnp.asarray(X[:, ::-2])), X[:, ::-2])


def test_numpy_on_the_left_gives_way() -> None:
    x = jnp.asarray(X)
    for out in (X + x, np.float32(2) * x, X @ x.T, X < x, 2 - x, np.arange(3) ** x):
        assert type(out) is Array


OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv,
             operator.mod, operator.pow, operator.lt, operator.le, operator.gt, operator.ge,
             operator.eq, operator.ne]
BITS = [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift]


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(OPERATORS), st.integers(-3, 5), st.booleans())
def test_operators_with_numbers(op: Any, n: int, reverse: bool) -> None:
    if op in (operator.floordiv, operator.mod) and (n == 0 or reverse):
        return
    number = n / 2
    with np.errstate(all="ignore"):
        want = op(np.float32(number), X) if reverse else op(X, np.float32(number))
    got = op(number, jnp.asarray(X)) if reverse else op(jnp.asarray(X), number)
    assert got.dtype == want.dtype
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-6)


@pytest.mark.parametrize("op", BITS)
def test_operators_on_bits(op: Any) -> None:
    a, b = np.array([6, -5, 3], np.int32), np.array([3, 1, 2], np.int32)
    np.testing.assert_array_equal(np.asarray(op(jnp.asarray(a), jnp.asarray(b))), op(a, b))
    np.testing.assert_array_equal(np.asarray(op(jnp.asarray(a), 2)), op(a, 2))
    np.testing.assert_array_equal(np.asarray(op(9, jnp.asarray(b))), op(9, b))


def test_other_operators() -> None:
    x = jnp.asarray(X)
    q, r = divmod(x, 2)
    np.testing.assert_array_equal(np.asarray(q * 2 + r), X)
    np.testing.assert_array_equal(np.asarray(abs(-x)), X)
    np.testing.assert_array_equal(np.asarray(~(x > 2)), ~(X > 2))
    np.testing.assert_array_equal(np.asarray(round(x / 3, 1)), np.round(X / 3, 1))
    assert (+x) is x
    assert (x == None) is False and (x != "a") is True  # noqa: E711
    with pytest.raises(TypeError):
        x + object()
    y = x
    y += 1  # rebinds y
    assert float(x[0, 0]) == 0.0 and float(y[0, 0]) == 1.0


@pytest.mark.parametrize(("value", "text"), [
    (np.float32(1.5), "Array(1.5, dtype=float32)"),
    (np.array([True, False]), "Array([ True, False], dtype=bool)"),
    (np.zeros((0,), np.int32), "Array([], dtype=int32)"),
    (np.zeros((2, 0), np.float32), "Array([], shape=(2, 0), dtype=float32)"),
    (1, "Array(1, dtype=int32, weak_type=True)"),
])
def test_repr(value: Any, text: str) -> None:
    assert repr(jnp.asarray(value)) == text


def test_text() -> None:
    assert f"{jnp.asarray(1.25):.1f}" == "1.2"
    assert str(jnp.asarray(X)) == str(X)
    with scope.Scope("jit") as trace:
        x = Array(trace.leaf(float32, (3,)))
        assert repr(x) == "Traced<float32[3]>(jit)" and str(x) == repr(x) == f"{x}"
    assert repr(x) == "Traced<float32[3]>(closed)"


def test_copies_and_pickles() -> None:
    x = jnp.asarray(2.5)
    for y in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x)), x.copy()):
        assert float(y) == 2.5 and y.weak_type and y.dtype == x.dtype


@pytest.mark.parametrize(("value", "dtype", "wide"), [
    (1.0, "float32", "float64"), (1, "int32", "int64"), (True, "bool", "bool"),
    (np.float64(1), "float32", "float64"), (np.arange(2), "int32", "int64"),
    ([1.0, 2], "float32", "float64"), (np.uint64(3), "uint32", "uint64"),
    ([], "float32", "float64"),
])
def test_default_widths(value: Any, dtype: str, wide: str | None) -> None:
    assert jnp.asarray(value).dtype == dtype
    if wide is not None:
        with override(x64=True):
            assert jnp.asarray(value).dtype == wide


def test_a_named_width_is_honoured() -> None:
    assert jnp.asarray(1.0, np.float64).dtype == np.float64
    assert jnp.asarray(1.0, float).dtype == np.float32
    assert jnp.zeros(2, jnp.float64).dtype == np.float64
    assert (jnp.zeros(2, "float64") + 1.0).dtype == np.float64
    assert jnp.float64(1).dtype == jnp.float64 and jnp.float64 != jnp.float32
    assert np.dtype(jnp.float32) == np.float32
    assert float(jnp.asarray(0.1, np.float64)) == 0.1


def test_lists_of_arrays_are_stacked() -> None:
    x = jnp.asarray([jnp.asarray(1.0), 2])
    assert x.dtype == np.float32 and x.tolist() == [1.0, 2.0]


def test_results_are_there_when_the_outermost_call_ends() -> None:
    out = jnp.split(jnp.arange(4), 2)
    assert all(x._storage is not None for x in out)
    with scope.Scope("jit"):
        late = jnp.arange(4) + 1
        assert late._storage is None
    evaluate_pending(late)
    assert late.tolist() == [1, 2, 3, 4]


def test_if_works_where_the_trace_knows_the_value() -> None:
    three = jnp.asarray(3.0)
    with scope.Scope("grad") as trace:
        x = Array(trace.leaf(float32, (), value=three._node))
        y = x * 2
        assert y > 5 and float(y) == 6.0 and not y < 5
        assert y._storage is None


# ---- NumPy's functions --------------------------------------------------------------------------


def test_numpy_functions_of_arrays_give_numpy_data() -> None:
    x = jnp.asarray([1.0, 4.0])
    for got, want in ((np.sqrt(x), [1, 2]), (np.add(x, 1), [2, 5]), (np.maximum(x, x), [1, 4]),
                      (np.add.reduce(x), 5), (np.arctan2(x, x), [np.pi / 4, np.pi / 4])):
        assert isinstance(got, np.ndarray | np.generic)
        np.testing.assert_allclose(got, want, rtol=1e-6)
    assert not np.isnan(x.sum())


def test_operators_of_numpy_data_and_an_array_give_an_array() -> None:
    x = jnp.asarray([1.0, 4.0])
    data = np.asarray([2.0, 3.0], np.float32)
    for got, want in ((data + x, [3, 7]), (x + data, [3, 7]), (data - x, [1, -1]),
                      (data * x, [2, 12]), (data / x, [2, 0.75]), (data ** x, [2, 81]),
                      (data @ x, 14), (data < x, [False, True]), (data == x, [False, False]),
                      (np.float32(2) * x, [2, 8]), (np.float64(2) * x, [2, 8])):
        assert type(got) is Array
        np.testing.assert_allclose(np.asarray(got), want)


def test_numpy_data_takes_an_array_in_place() -> None:
    data = np.zeros(2, np.float32)
    same = data
    data += jnp.asarray([1.0, 4.0])
    assert data is same and data.tolist() == [1, 4]
    np.sin(jnp.zeros(2), out=data)
    assert data.tolist() == [0, 0]


def test_masked_data_keep_their_mask_on_their_own_side() -> None:
    masked = np.ma.masked_array([1.0, 2.0], [False, True])
    assert np.ma.is_masked(masked + np.asarray(jnp.ones(2)))


def test_a_missing_attribute_is_told_by_python(capsys: pytest.CaptureFixture[str]) -> None:
    x = jnp.ones(2)
    assert not hasattr(x, "foo") and not hasattr(x, "__array_interface__")
    with pytest.raises(AttributeError, match="'Array' object has no attribute 'summ'") as caught:
        x.summ()  # type: ignore
    sys.__excepthook__(caught.type, caught.value, caught.tb)
    assert "Did you mean: 'sum'?" in capsys.readouterr().err


def test_reading_an_attribute_runs_no_code_of_ours() -> None:
    """A ``__getattr__`` would slow down every attribute, including those that exist."""
    assert not hasattr(Array, "__getattr__") and Array.__getattribute__ is object.__getattribute__
