"""complex_to_real: no complex number is left, and every value is the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given

from fnx.core.ir import build, build_calls, dtypes, op_args, ops
from fnx.core.ir.dtypes import complex64, float32, int32
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels import interp, spec
from fnx.core.support.errors import KernelError
from fnx.lower.tensor.complex_to_real import complex_to_real
from fnx.lower.tensor.inline import inline
from tests.graphs import ALL_OPS, Graph, graphs
from tests.helpers import assert_same

FOLDS = {ops.REDUCE, ops.SCATTER}  # sums of floats round in an order that NumPy decides
EXACT = frozenset(op for op in ALL_OPS if op.exact) - FOLDS
TYPES = (dtypes.complex64, dtypes.complex128, dtypes.float32, dtypes.float64, dtypes.int32,
         dtypes.bool_)


def pairs(x: Any) -> Any:
    """Return an array as the program takes it: the two parts of a number are neighbors."""
    x = np.asarray(x)
    return np.stack([x.real, x.imag], -1) if x.dtype.kind == "c" else x


@given(graphs(TYPES, EXACT))
def test_values_are_the_same(graph: Graph) -> None:
    fn = complex_to_real(inline(graph.fn))
    spec.check([fn], "tensor")
    assert not any(n.dtype.is_complex for n in toposort([fn], into_functions=True))
    got = interp.apply(fn, [pairs(x) for x in graph.args])
    assert_same(got, [pairs(x) for x in interp.apply(graph.fn, graph.args)])


def z(slot: int, *shape: int) -> UOp:
    return build.param(slot, complex64, shape)


def test_a_product_of_matrices_is_four_of_real_numbers() -> None:
    a, b = build.expand(z(0, 2, 1, 3), (2, 4, 3)), build.expand(z(1, 1, 4, 3), (2, 4, 3))
    fn = complex_to_real(build.function([build.reduce(build.mul(a, b), ops.ADD, (2,))], 2))
    sums = [n for n in toposort(fn.src) if n.op is ops.REDUCE]
    assert len(sums) == 4 and all(n.src[0].op is ops.MUL and n.dtype is float32 for n in sums)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 8])
def test_products_along_an_axis(n: int) -> None:
    fn = build.function([build.reduce(z(0, n, 2), ops.MUL, (0,))], 1)
    rng = np.random.default_rng(n)
    x = (rng.normal(size=(n, 2)) + 1j * rng.normal(size=(n, 2))).astype(np.complex64)
    got, = interp.apply(complex_to_real(fn), [pairs(x)])
    np.testing.assert_allclose(got, pairs(x.prod(0)), rtol=1e-5, atol=1e-6)


def test_a_body_that_ignores_a_complex_operand() -> None:
    body = build.function([build.neg(build.param(0, float32, ()))], 2, "step")
    unused = build.param(1, complex64, ())
    out, = build_calls.cond([body, body], build.param(2, int32, ()),
                            [build.param(0, float32, ()), unused])
    fn = complex_to_real(build.function([out], 3))
    spec.check([fn], "tensor")
    got, = interp.apply(fn, [np.float32(2), pairs(np.complex64(1j)), np.int32(1)])
    assert got == -2


def test_a_kernel_of_complex_numbers_is_refused() -> None:
    i = build.range_(3, 0)
    kernel = build.kernel([build.store(build.index_into(build.ref(1, complex64, (3,)), i),
                                       build.load(build.index_into(build.ref(0, complex64, (3,)),
                                                                   i)))], "copy")
    called = UOp(ops.CALL, dtypes.void, (kernel, z(0, 3)),
                 op_args.Call("copy", (((3,), complex64),)))
    out, = build.results(called)
    with pytest.raises(KernelError, match="expected real operands"):
        complex_to_real(build.function([out], 1))
