"""Expressions over nodes: operators and functions build what `build` builds; numbers take the
node's type."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fnx.core.ir import build, dtypes, expr, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.expr import Expr, as_node_function, where
from fnx.core.ir.ops import Shape
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import DTypeError, ShapeError

TYPES = st.sampled_from([dtypes.float32, dtypes.float64])
SHAPES = st.sampled_from([(), (1,), (3,), (1, 1), (2, 1), (0, 2)])


def _operands(dtype: DType, shape: Shape) -> tuple[UOp, UOp]:
    return build.param(0, dtype, shape), build.param(1, dtype, shape)


@given(TYPES, SHAPES)
def test_operators_build_the_nodes_of_build(dtype: DType, shape: Shape) -> None:
    a, b = _operands(dtype, shape)
    x, y = Expr(a), Expr(b)
    assert (x + y).node is build.add(a, b) and (1 - x).node is build.sub(build.const_like(a, 1), a)
    assert (x * 2.5).node is build.mul(a, build.const_like(a, 2.5))
    assert (x / y).node is build.div(a, b)
    assert (x > y).node is build.lt(b, a) and (0.0 < x).node is build.lt(build.const_like(a, 0), a)
    assert x.eq(0).node is build.eq(a, build.const_like(a, 0)) and x.ne(y).node is build.ne(a, b)
    assert (x**y).node is build.power(a, b)
    assert (x**0.5).node is build.power(a, build.const_like(a, 0.5))
    assert where(x <= y, x, 0).node is build.where(build.le(a, b), a, build.const_like(a, 0))
    assert where(x <= y, 0, x).node is build.where(build.le(a, b), build.const_like(a, 0), a)
    assert expr.mulacc(x, 2, y).node is build.mulacc(a, build.const_like(a, 2), b)


@given(TYPES, SHAPES, st.integers(-1, 3))
def test_constants_are_what_expand_builds(dtype: DType, shape: Shape, value: int) -> None:
    assert build.const(value, dtype, shape) is build.expand(build.const(value, dtype), shape)


def test_functions_are_named_by_their_ops() -> None:
    (a, _), rows = _operands(dtypes.float32, (2,)), {
        expr.exp: ops.EXP, expr.expm1: ops.EXPM1, expr.log: ops.LOG, expr.log1p: ops.LOG1P,
        expr.sqrt: ops.SQRT, expr.sin: ops.SIN, expr.cos: ops.COS, expr.tanh: ops.TANH,
        expr.floor: ops.FLOOR, expr.ceil: ops.CEIL, expr.trunc: ops.TRUNC, expr.rint: ops.ROUND}
    for function, op in rows.items():
        assert function(Expr(a)).node is build.elementwise(op, a)


def test_whole_powers_multiply() -> None:
    a, _ = _operands(dtypes.float32, ())
    x = Expr(a)
    assert (x**3).node is build.mul(a, build.mul(a, a)) and (x**0).node is build.const_like(a, 1)
    assert (x**-2).node is build.div(build.const_like(a, 1), build.mul(a, a))


def test_equality_is_identity_and_truth_is_refused() -> None:
    a, b = _operands(dtypes.float32, ())
    x, y = Expr(a), Expr(b)
    assert len({x, y, x}) == 2 and (x == y) is False
    with pytest.raises(TypeError, match="where"):
        bool(x < y)


def test_bits_and_back() -> None:
    for dtype, integer in ((dtypes.float32, dtypes.int32), (dtypes.float64, dtypes.int64)):
        x = Expr(_operands(dtype, ())[0])
        assert x.bits().node is build.bitcast(x.node, integer)
        assert x.bits().bitcast(dtype).dtype is dtype


def test_errors_are_those_of_build() -> None:
    x, y = Expr(build.param(0, dtypes.float32, (2,))), Expr(build.param(1, dtypes.float32, (3,)))
    with pytest.raises(ShapeError, match="one shape"):
        x + y
    with pytest.raises(DTypeError, match="one dtype"):
        x + x.cast(dtypes.int32)


def test_a_formula_reads_as_mathematics() -> None:
    @as_node_function
    def gelu(x: Expr) -> Expr:
        return 0.5 * x * (1 + expr.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    node = gelu(build.param(0, dtypes.float32, (4,)))
    assert node.op is ops.MUL and node.shape == (4,) and gelu.__name__ == "gelu"
