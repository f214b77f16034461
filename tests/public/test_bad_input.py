"""Bad input: the class of the error, the user's file:line in its message, and the advice."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.experimental.sparse
import fnx.lax as lax
import fnx.nn as nn
import fnx.numpy as jnp
import fnx.random as random
import fnx.scipy
from fnx.core.array.array import Array
from fnx.core.ir.dtypes import float32
from fnx.core.scope import scope
from fnx.core.support import errors
from fnx.core.support.config import override

COMPILED = True  # error lines are looked up among frames of user code
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def x() -> Array:
    return jnp.asarray(X)


def checked(act: Callable[[], Any]) -> Any:
    with override(check_index=True):
        return act()


def assign() -> None:
    x()[0] = 1.0


def delete() -> None:
    del x()[0]


def traced(f: Callable[[Array], Any]) -> Callable[[], Any]:
    """Trace f of an array without a value."""
    def call() -> Any:
        with scope.Scope("jit") as trace:
            return f(Array(trace.leaf(float32, (3,))))
    return call


def leaked() -> Array:
    with scope.Scope("jit") as trace:
        out = Array(trace.leaf(float32, (3,)))
    return out


def branch(a: Array) -> int:
    return 1 if a[0] > 0 else 2


# name: (the user's call, class, also catchable as, part of the message, part of the advice)
CASES: dict[str, tuple[Callable[[], Any], type[Exception], type[Exception], str, str]] = {
    "shapes that do not broadcast": (
        lambda: x() + jnp.ones(2), errors.ShapeError, ValueError, "add: expected", "x[:, None]"),
    "matmul of wrong lengths": (
        lambda: x() @ x(), errors.ShapeError, ValueError, "got 3 and 2", "transpose"),
    "matmul of a scalar": (
        lambda: jnp.matmul(x(), 2.0), errors.ShapeError, ValueError, "at least one axis", "*"),
    "einsum of wrong lengths": (
        lambda: jnp.einsum("ij,jk", x(), x()), errors.ShapeError, ValueError, "'j'", "indices"),
    "contraction over an axis that is not there": (
        lambda: lax.dot_general(x(), x(), (((2,), (0,)), ((), ()))), errors.AxisError, ValueError,
        "expected -2 <= axis < 2, got 2", "2 axes"),
    "contraction over an axis without its pair": (
        lambda: lax.dot_general(x(), x(), (((0, 1), (0,)), ((), ()))), errors.ArgumentError,
        ValueError, "the same number of axes of lhs and rhs", "pair each"),
    "contraction over axes in another form": (
        lambda: lax.dot_general(x(), x(), ((1,), (0,))), errors.ArgumentError, ValueError,
        "expected dimension_numbers", "matrix product"),
    "more elements than 64 bits count": (
        lambda: jnp.zeros((1 << 32, 1 << 32)), errors.OutOfMemoryError, MemoryError,
        "zeros: expected arrays of fewer than 2**63", "shapes"),
    "more memory than there is": (
        lambda: jnp.ones(1 << 42), errors.OutOfMemoryError, MemoryError, "bytes of memory",
        "smaller batches"),
    "as many powers as there is no memory for": (
        lambda: jnp.vander(jnp.ones(1 << 20), 1 << 22), errors.OutOfMemoryError, MemoryError,
        "bytes of memory", "smaller batches"),
    "reshape to another size": (
        lambda: x().reshape(4, 2), errors.ShapeError, ValueError, "expected 6 elements", "product"),
    "stack of unequal shapes": (
        lambda: jnp.stack([x(), jnp.ones(2)]), errors.ShapeError, ValueError, "equal shape",
        "broadcast_arrays"),
    "ragged list": (
        lambda: jnp.asarray([[1, 2], [3]]), errors.ShapeError, ValueError, "rows of one shape",
        "pad"),
    "float where bits are meant": (
        lambda: x() & 1, errors.DTypeError, TypeError, "bitwise_and", "astype(int32)"),
    "difference of bools": (
        lambda: (x() > 1) - (x() > 2), errors.DTypeError, TypeError, "got bool", "^"),
    "list as an operand": (
        lambda: x() + [1, 2, 3], errors.DTypeError, TypeError, "got list", "asarray"),
    "NumPy object array": (
        lambda: jnp.asarray(np.array([1, None], object)), errors.DTypeError, TypeError,
        "dtype object", "astype(float32)"),
    "text": (
        lambda: jnp.asarray("abc"), errors.DTypeError, TypeError, "got str", "numbers"),
    "dtype that fnx does not hold": (
        lambda: x().astype("clongdouble"), errors.DTypeError, TypeError, "complex256",
        "astype"),
    "axis out of range": (
        lambda: x().sum(axis=2), errors.AxisError, ValueError, "-2 <= axis < 2", "2 axes"),
    "axis named twice": (
        lambda: x().sum(axis=(0, -2)), errors.AxisError, IndexError, "each axis once", "once"),
    "axis that is no integer": (
        lambda: nn.softmax(x(), axis="rows"), errors.AxisError,
        ValueError, "'rows'", "int"),
    "transpose with too few axes": (
        lambda: x().transpose(0), errors.AxisError, ValueError, "expected 2 axes", "each axis"),
    "static index out of bounds under check_index": (
        lambda: checked(lambda: x()[2]), errors.OutOfBoundsError, IndexError,
        "-2 <= index < 2 on axis 0", "inside"),
    "static index out of bounds in a write under check_index": (
        lambda: checked(lambda: x().at[0, -4].set(1)), errors.OutOfBoundsError, IndexError,
        "axis 1", "inside"),
    "index into an axis of length 0": (
        lambda: x()[:0][0], errors.OutOfBoundsError, IndexError, "axis 0", "x.size"),
    "too many indices": (
        lambda: x()[0, 0, 0], errors.OutOfBoundsError, IndexError, "at most 2", "axis"),
    "list as an index": (
        lambda: x()[[0, 1]], errors.ArgumentError, TypeError, "bare list", "np.array"),
    "float as an index": (
        lambda: x()[1.5], errors.DTypeError, TypeError, "1.5", "astype(int32)"),
    "float array as an index": (
        lambda: x()[np.array([0.0])], errors.DTypeError, TypeError, "float64", "astype(np.int32)"),
    "mask of another shape": (
        lambda: x()[np.array([True, False, True])], errors.ShapeError, ValueError, "mask of shape",
        "axes that it indexes"),
    "value that does not fit where it is written": (
        lambda: x().at[0].set(np.ones(2)), errors.ShapeError, ValueError, "(3,)", "reshape"),
    "largest of nothing": (
        lambda: jnp.zeros((0,)).max(), errors.ShapeError, ValueError, "at least one element",
        "initial="),
    "integer that does not fit": (
        lambda: jnp.asarray(2**40), errors.OverflowedError, OverflowError, "fits int32", "dtype"),
    "NumPy integer that does not fit": (
        lambda: jnp.asarray(np.array([1, 2**40])), errors.OverflowedError, OverflowError,
        "1099511627776", "dtype"),
    "operand that does not fit": (
        lambda: jnp.arange(3) + 2**31, errors.OverflowedError, OverflowError, "fits int32",
        "dtype"),
    "negative power of integers": (
        lambda: jnp.arange(3) ** -1, errors.DTypeError, TypeError, "power >= 0", "float32"),
    "assignment": (
        assign, errors.MutationError, TypeError, "immutable", "x = x.at[0].set(value)"),
    "deletion": (delete, errors.MutationError, TypeError, "immutable", "x[keep]"),
    "bool of many": (
        lambda: bool(x()), errors.ShapeError, ValueError, "one element", ".any()"),
    "len of a scalar": (
        lambda: len(jnp.asarray(1.0)), errors.ShapeError, TypeError, "0-d", ".size"),
    "index by a float scalar": (
        lambda: [1, 2][jnp.asarray(1.0)], errors.DTypeError, TypeError, "integers", "int(x)"),
    "if on a traced value": (
        traced(branch), errors.TracedValueError, TypeError, "jit traces with abstract values",
        "where"),
    "float of a traced value": (
        traced(lambda a: float(a[0])), errors.TracedValueError, TypeError, "jit",
        "static_argnums"),
    "int of a traced value": (
        traced(lambda a: range(int(a[0]))), errors.TracedValueError, TypeError, "jit",
        "static_argnums"),
    "range of a traced value": (
        traced(lambda a: range(a[0].astype(int))), errors.TracedValueError, TypeError, "jit",
        "static_argnums"),
    "NumPy function of a traced value": (
        traced(lambda a: np.sin(a)), errors.TracedValueError, TypeError, "np.sin: expected",
        "use fnx.numpy.sin"),
    "NumPy data and a traced value in a NumPy function": (
        traced(lambda a: np.nextafter(X[0], a)), errors.TracedValueError, TypeError, "np.nextafter",
        "outside"),
    "Array as out": (
        lambda: np.sin(X, out=x()), errors.MutationError, TypeError, "np.sin: expected",
        "fnx.numpy.sin"),
    "masked data": (
        lambda: jnp.asarray(np.ma.masked_array(X, X > 2)), errors.DTypeError, TypeError,
        "masked", "x.filled"),
    "masked data as an operand": (
        lambda: x() + np.ma.masked_array(X, X > 2), errors.DTypeError, TypeError, "masked",
        "x.filled"),
    "masked data in a list": (
        lambda: jnp.asarray([np.ma.masked_array(X, X > 2)]), errors.DTypeError, TypeError,
        "masked", "x.filled"),
    "masked index": (
        lambda: x()[np.ma.masked_array([0, 1], [True, False])], errors.DTypeError, TypeError,
        "masked", "x.filled"),
    "labels that are no integers": (
        lambda: nn.one_hot(x(), 3), errors.DTypeError, TypeError, "expected integer labels",
        "astype(int32)"),
    "labels that are bools": (
        lambda: nn.one_hot(True, 4), errors.DTypeError, TypeError, "one_hot", "astype(int32)"),
    "item of many": (
        lambda: x().item(), errors.ShapeError, ValueError, "item()", "reduce it"),
    "misspelt keyword of a method": (
        lambda: x().mean(axs=0), errors.ArgumentError, TypeError, "mean: expected",  # type: ignore
        "did you mean 'axis'?"),
    "NumPy of a traced value": (
        traced(lambda a: np.asarray(a)), errors.TracedValueError, TypeError, "jit",
        "compute with fnx.numpy"),
    "mask by a traced value": (
        traced(lambda a: a[a > 0]), errors.TracedValueError, TypeError, "shape of the result",
        "where"),
    "shape from a traced value": (
        traced(lambda a: jnp.zeros(a[0].astype(int))), errors.TracedValueError, TypeError,
        "zeros: expected a concrete value", "static_argnums"),
    "leaked tracer": (
        lambda: leaked() + 1, errors.LeakedTracerError, RuntimeError, "outlived", "return it"),
    "leaked tracer in a list": (
        lambda: jnp.concatenate([leaked(), x()[0]]), errors.LeakedTracerError, RuntimeError,
        "outlived", "return it"),
    "value of a leaked tracer": (
        lambda: np.asarray(leaked()), errors.LeakedTracerError, RuntimeError, "outlived",
        "return it"),
    "wrong pytrees": (
        lambda: fnx.tree.map(lambda a, b: a, {"w": [1, 2]}, {"w": [1]}), errors.PytreeError,
        ValueError, "path ['w']", "same structure"),
    "key of another shape": (
        lambda: random.normal(random.split(random.key(0)), (2,)), errors.ShapeError, ValueError,
        "expected one key, got keys of shape (2,)", "fnx.vmap"),
    "a shape as several arguments": (
        lambda: jnp.zeros(2, 3), errors.DTypeError, TypeError, "zeros: expected a dtype, got 3",
        "a shape is one argument, such as (2, 3)"),
    "a number of elements that is not known": (
        traced(lambda a: jnp.where(a > 0)), errors.TracedValueError, TypeError,
        "where: expected a concrete value", "pass size="),
    "a seed as key": (
        lambda: random.normal(0, (2,)), errors.DTypeError, TypeError,
        "normal: expected a key, got the number 0", "fnx.random.key(0)"),
    "a shape as key": (
        lambda: random.normal((2, 3)), errors.DTypeError, TypeError,
        "expected a key, got (2, 3)", "fnx.random.key(0), (2, 3)"),
    "a generator of NumPy as key": (
        lambda: random.split(np.random.default_rng(0)), errors.DTypeError, TypeError,
        "expected a key, got a NumPy generator", "fnx.random.key(seed)"),
    "uniform integers": (
        lambda: random.uniform(random.key(0), (2,), int), errors.DTypeError, TypeError,
        "float dtype", "randint"),
    "slice longer than its axis": (
        lambda: lax.dynamic_slice(x(), (0, 0), (3, 1)), errors.ShapeError, ValueError,
        "at most 2", "axis"),
    "a sharding that is none": (
        lambda: lax.with_sharding_constraint(x(), "i"), errors.ArgumentError, ValueError,
        "expected shardings or PartitionSpecs, got str", "PartitionSpec"),
    "two arguments of where": (
        lambda: jnp.where(x() > 1, x()), errors.ArgumentError, TypeError, "both x and y",
        "pass both"),
}


@pytest.mark.parametrize("name", CASES)
def test_error(name: str) -> None:
    act, kind, python_kind, message, advice = CASES[name]
    with pytest.raises(kind) as caught:
        act()
    error = caught.value
    assert issubclass(kind, python_kind)
    assert isinstance(error, errors.FnxError)
    first, *rest = str(error).splitlines()
    assert message in first
    assert advice in " ".join(rest), f"no such advice in {str(error)!r}"
    lines, start = inspect.getsourcelines(inspect.getmodule(test_error))  # type: ignore[arg-type]
    place, _, _ = first.partition(": ")
    file, _, line = place.rpartition(":")
    assert file.endswith("test_bad_input.py")
    assert 0 < int(line) <= len(lines) + start


def test_the_line_is_that_of_the_user() -> None:
    a, b = x(), jnp.ones(4)
    here = inspect.currentframe()
    assert here is not None
    with pytest.raises(errors.ShapeError) as caught:
        a + b
    assert caught.value.loc == (__file__, here.f_lineno - 1)


def test_donated_array_says_so() -> None:
    a = x()
    fnx.jit(lambda x: x + 1, donate_argnums=0)(a)
    with pytest.raises(errors.DonatedError, match="donated to"):
        a + 1
    assert a.is_deleted()


def test_indices_that_are_data_do_not_raise() -> None:
    i = jnp.asarray([0, 9])
    np.testing.assert_array_equal(np.asarray(x()[i])[1], X[1])
    np.testing.assert_array_equal(np.asarray(x().at[i].set(0))[1], X[1])


def test_copies_of_a_value_survive_its_donation() -> None:
    a = x()
    b, c = copy.deepcopy(a), a.copy()
    a._storage = a._uop = None
    np.testing.assert_array_equal(np.asarray(b), X)
    np.testing.assert_array_equal(np.asarray(c), X)


def test_names_that_are_not_there_yet() -> None:
    assert not hasattr(jnp, "busday_count")
    with pytest.raises(errors.NotBuiltError, match="busday_count is not implemented yet") as e:
        jnp.busday_count
    assert "README" in str(e.value)


def test_names_that_no_module_has() -> None:
    with pytest.raises(AttributeError, match="no attribute 'sin_of'"):
        jnp.sin_of
