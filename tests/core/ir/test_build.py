"""Constructors: what they reject and what they simplify away; dtypes, errors and configuration."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fnx.core.array import axes
from fnx.core.ir import build, build_calls, dtypes, ops
from fnx.core.ir.expr import ValueOperators
from fnx.core.ir.uop import UOp
from fnx.core.support import errors
from fnx.core.support.errors import (
    ArgumentError,
    AxisError,
    DTypeError,
    FnxError,
    OutOfBoundsError,
    ShapeError,
)

F, I = dtypes.float32, dtypes.int32  # noqa: E741
X, N = build.param(0, F, (2, 3)), build.param(1, I, (2, 3))
B = build.param(2, dtypes.bool_, (2, 3))


# ---- constructors -----------------------------------------------------------------------------


@pytest.mark.parametrize("make, error, message", [
    (lambda: build.add(X, N), DTypeError, "float32 and int32"),
    (lambda: build.add(X, build.param(1, F, (3, 2))), ShapeError, r"\(2, 3\) and \(3, 2\)"),
    (lambda: build.elementwise(ops.ADD, X), ArgumentError, "expected 2 operands, got 1"),
    (lambda: build.exp(N), DTypeError, "EXP does not take int32"),
    (lambda: build.add(B, B), DTypeError, "ADD does not take bool"),
    (lambda: build.idiv(X, X), DTypeError, "IDIV does not take float32"),
    (lambda: build.elementwise(ops.THREEFRY, N, N, N, N, arg=0), DTypeError, "THREEFRY"),
    (lambda: build.where(X, X, X), DTypeError, "expected a bool condition"),
    (lambda: build.where(build.param(0, dtypes.bool_, (3,)), X, X), ShapeError, "one shape"),
    (lambda: build.bitcast(X, dtypes.float64), DTypeError, "equal width"),
    (lambda: build.bitcast(B, dtypes.bool_), DTypeError, "equal width"),
    (lambda: build.reshape(X, (4,)), ShapeError, "expected 6 elements"),
    (lambda: build.reshape(X, (-2, -3)), ShapeError, "6 elements"),
    (lambda: build.permute(X, (0, 0)), AxisError, "an order of 2 axes"),
    (lambda: build.expand(X, (2, 6)), ShapeError, "broadcasts to"),
    (lambda: build.expand(X, (3,)), ShapeError, "broadcasts to"),
    (lambda: build.pad(X, [(0, -1), (0, 0)]), ShapeError, "2 pairs of widths"),
    (lambda: build.shrink(X, [(0, 3), (0, 3)]), OutOfBoundsError, "inside"),
    (lambda: build.concat([X, N], 0), DTypeError, "one dtype"),
    (lambda: build.concat([X, build.param(1, F, (2, 4))], 0), ShapeError, "agree except"),
    (lambda: build.reduce(X, ops.ADD, [2]), AxisError, "axes of"),
    (lambda: build.reduce(X, ops.XOR, [0]), DTypeError, "does not fold"),
    (lambda: build.reduce(X, ops.SUB, [0]), DTypeError, "does not fold"),
    (lambda: build.gather(X, X), DTypeError, "integer indices"),
    (lambda: build.gather(X, N, N, N), OutOfBoundsError, "1 to 2 indices"),
    (lambda: build.gather(build.param(0, F, (0, 3)), N), OutOfBoundsError, "with elements"),
    (lambda: build.scatter(X, [N], X), ShapeError, "expected updates"),
    (lambda: build_calls.call(build.function([X], 1), []), ArgumentError, "expected 1 operands"),
    (lambda: build.index_into(build.ref(0, F, (2, 3)), build.range_(2, 0)), ShapeError,
     "2 indices"),
    (lambda: axes.broadcast_shapes((2, 3), (4, 3)), ShapeError, "broadcast"),
])
def test_what_constructors_refuse(make: Any, error: type[FnxError], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_movements_that_move_nothing_are_left_out() -> None:
    assert build.reshape(X, (2, 3)) is X and build.permute(X, (0, 1)) is X
    assert build.expand(X, (2, 3)) is X and build.pad(X, [(0, 0), (0, 0)]) is X
    assert build.shrink(X, [(0, 2), (0, 3)]) is X and build.flip(X, []) is X
    assert build.cast(X, F) is X and build.bitcast(X, F) is X and build.concat([X], 0) is X
    assert build.reduce(X, ops.ADD, []) is X
    assert build.flip(build.reshape(X, (1, 6)), [0]).op is ops.RESHAPE
    assert build.reshape(build.reshape(X, (6,)), (2, 3)) is X
    assert build.permute(build.permute(X, (1, 0)), (1, 0)) is X


@given(st.lists(st.lists(st.sampled_from([0, 1, 2, 3]), max_size=4).map(tuple), max_size=4))
def test_broadcasting_is_numpys(shapes: list[tuple[int, ...]]) -> None:
    try:
        want = np.broadcast_shapes(*shapes)
    except ValueError:
        with pytest.raises(ShapeError):
            axes.broadcast_shapes(*shapes)
    else:
        assert axes.broadcast_shapes(*shapes) == want


def test_operators_write_ops() -> None:
    class Written(ValueOperators):
        def __init__(self, text: str) -> None:
            self.text = text

        def _apply(self, op: ops.Op, *operands: Any) -> Written:
            return Written(f"{op}({', '.join(getattr(o, 'text', str(o)) for o in operands)})")

    a, b = Written("a"), Written("b")
    for got, want in [
        (a + b, "ADD(a, b)"), (1 + a, "ADD(1, a)"), (a - 1, "SUB(a, 1)"), (1 - a, "SUB(1, a)"),
        (a * b, "MUL(a, b)"), (a / b, "DIV(a, b)"), (1 / a, "DIV(1, a)"),
        (a // b, "IDIV(a, b)"), (a % b, "REM(a, b)"), (a**2, "POW(a, 2)"), (2**a, "POW(2, a)"),
        (a & b, "AND(a, b)"), (a | b, "OR(a, b)"), (a ^ b, "XOR(a, b)"), (a << 1, "SHL(a, 1)"),
        (a >> 1, "SHR(a, 1)"), (-a, "NEG(a)"), (abs(a), "ABS(a)"), (~a, "NOT(a)"),
        (a < b, "CMPLT(a, b)"), (a <= b, "CMPLE(a, b)"), (a > b, "CMPLT(b, a)"),
        (a >= b, "CMPLE(b, a)"), (a == b, "CMPEQ(a, b)"), (a != b, "CMPNE(a, b)"),
    ]:
        assert got.text == want


# ---- the op table -----------------------------------------------------------------------------


def test_rows_are_whole() -> None:
    for op in ops.OPS.values():
        assert set(op.levels) <= set("tkpc") and op.levels
        if op.kind == "elementwise":
            assert op.arity is not None and op.meaning is not None
        if op.commutative:
            assert op.arity == 2
        assert (op.identity is None) == (op.ufunc is None)
        assert pickle.loads(pickle.dumps(op)) is op


@pytest.mark.parametrize("monoid", sorted(ops.MONOIDS, key=lambda op: op.name), ids=str)
def test_identities_change_nothing(monoid: ops.Op) -> None:
    assert monoid.identity is not None and monoid.meaning is not None
    for t in (*dtypes.USER, dtypes.index):
        if monoid.accepts_dtype(t):
            x = np.array([0, 1], t.compute.np)
            e = np.full(2, monoid.identity(t), t.compute.np)
            assert np.array_equal(monoid.meaning(None, x, e), x)
            assert build.const_of(build.const(monoid.identity(t), t)) == e[0]


# ---- dtypes -----------------------------------------------------------------------------------


def test_dtypes_are_interned_and_named() -> None:
    for t in (*dtypes.ALL, F.vec(8), dtypes.bool_.vec(16)):
        assert dtypes.dtype_by_name(t.name) is t and pickle.loads(pickle.dumps(t)) is t
    assert F.vec(8) is F.vec(8) and F.vec(8).scalar is F and F.vec(1) is F
    for t in dtypes.USER:
        assert np.dtype(t) == t.np and dtypes.as_dtype(t.np) is t and t.itemsize == t.np.itemsize


@pytest.mark.parametrize("spec, want", [
    (bool, dtypes.bool_), (int, I), (float, F), ("float64", dtypes.float64),
    (np.uint32, dtypes.uint32), (np.dtype("bool"), dtypes.bool_), (F, F),
])
def test_what_means_a_dtype(spec: Any, want: dtypes.DType) -> None:
    assert dtypes.as_dtype(spec) is want


@pytest.mark.parametrize("spec", ["no type", object, np.dtype("O"), "clongdouble", "float128",
                                  "int2", "float8_e4m3b11fnuz", "datetime64[s]"])
def test_what_means_no_dtype(spec: Any) -> None:
    with pytest.raises(DTypeError, match="expected"):
        dtypes.as_dtype(spec)


# ---- errors, configuration --------------------------------------------------------------------


def test_errors_say_where_what_and_how_to_mend_it() -> None:
    with pytest.raises(ShapeError) as caught:
        axes.broadcast_shapes((2,), (3,))
    text = str(caught.value)
    assert "test_build.py:" in text and "expected shapes that broadcast, got (2,) and (3,)" in text
    assert "\n  Fix: insert axes" in text
    assert isinstance(caught.value, TypeError) and isinstance(caught.value, ValueError)


def test_the_line_of_an_error_is_the_innermost_that_is_not_fnx() -> None:
    def user() -> UOp:
        return build.add(X, N)
    with pytest.raises(DTypeError) as caught:
        user()
    file, line = caught.value.loc or ("", 0)
    assert file == __file__ and line == user.__code__.co_firstlineno + 1


def test_every_error_is_an_fnx_error_and_a_python_error() -> None:
    classes = [c for c in vars(errors).values() if isinstance(c, type)
               and issubclass(c, FnxError) and c is not FnxError]
    assert len(classes) > 10
    builtin = (TypeError, ValueError, IndexError, RuntimeError, OverflowError,
               NotImplementedError, AttributeError, NameError, FloatingPointError, ImportError,
               FileNotFoundError)
    assert all(issubclass(c, builtin) and c.__doc__ for c in classes)
