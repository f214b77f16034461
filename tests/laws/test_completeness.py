"""Every op has its entry in each table, or a reason why not.

``EXAMPLES`` holds one small graph for each op of the tensor level; those of elementwise ops are
made from their entries. Each is legal, has interpreter semantics and a derivative rule, and runs as
machine code. A new op fails here until all of its entries exist.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np
import pytest

from fnx.backends.device.base import get_device
from fnx.core.ir import build, build_calls, dtypes, op_args, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp, substitute, toposort
from fnx.core.levels import interp, spec
from fnx.core.scope.callbacks import Handle
from fnx.transforms.autodiff.derivatives import DERIVATIVES
from fnx.transforms.batching.collectives import COLLECTIVES
from fnx.transforms.batching.higher_order import BODY_RULES
from fnx.transforms.batching.rules import MOVEMENTS, RULES
from fnx.transforms.link import link
from tests.helpers import encoded, numbers
from tests.laws.device import MACHINE, computes

SHAPE = (3, 5)

# Ops that cannot be in a FUNCTION of their own, and why.
NO_EXAMPLE = {
    ops.DIMENSION: "a length that a call knows; a FUNCTION that runs has a CONST in its place",
    ops.LEAF: "the input of an open trace; a closed FUNCTION has PARAMs in their place",
    ops.ALL_GATHER: "asks for the lanes of a vmap; batching takes it away",
    ops.AXIS_INDEX: "asks for the lane of a vmap; batching takes it away",
    ops.PVARY_LIKE: "asks whether a value varies over the lanes; batching takes it away",
    ops.PSUM_LIKE: "asks whether a value varies over the lanes; batching takes it away",
    ops.COLLECTIVE: "asks for the blocks of other processes; threads stand for them in "
                    "tests/lower/partition",
    ops.BUFFER: "memory of the scope around; a closed FUNCTION has PARAMs in their place",
}


# Batching handles these only as parts of higher-order nodes.
READ_ELSEWHERE = {ops.FUNCTION, ops.GETTUPLE, ops.FFT_STEP, ops.COLLECTIVE}


def x(dtype: DType = dtypes.float32, slot: int = 0, shape: tuple[int, ...] = SHAPE) -> UOp:
    return build.param(slot, dtype, shape)


def _table() -> UOp:
    """The twiddles of a length of 3, for one column and for many rows: 1 twice."""
    one = build.const(1.0, dtypes.float32, (4, 1))
    return build.reshape(build.pad(one, [(0, 0), (0, 1)]), (8,))


def _index() -> UOp:
    return build.iota(3)


def _call() -> tuple[UOp, ...]:
    body = build.function([build.neg(x()), build.add(x(), x())], 1, "f")
    return build_calls.call(body, [x()], "f")


def _scan() -> tuple[UOp, ...]:
    """Cumulative sums: (step, total, row) -> (total, total of its elements)."""
    step, total, row = x(shape=(5,)), x(slot=1, shape=(5,)), x(slot=2, shape=(5,))
    new = build.add(build.mul(step, total), row)
    body = build.function([new, build.reduce(new, ops.ADD, (0,))], 3, "step")
    return build_calls.scan(body, 3, [x(shape=(5,))], [x(slot=1, shape=(5,))], [x(slot=2)], True)


def _while() -> tuple[UOp, ...]:
    """Double until the sum of squares is above 1000."""
    a = x()
    squares = build.reduce(build.mul(a, a), ops.ADD, (0, 1))
    condition = build.function([build.lt(squares, build.const_like(squares, 1000))], 1, "small")
    return build_calls.while_(condition, build.function([build.add(a, a)], 1, "double"), [], [x()])


def _cond() -> tuple[UOp, ...]:
    branches = [build.function([op(x())], 1, "branch") for op in (build.neg, build.stop_gradient)]
    return build_calls.cond(branches, x(dtypes.int32, 1, ()), [x()])


HALVES = Handle(lambda xs, shapes: [xs[0] / 2], "halves")


def _host() -> tuple[UOp, ...]:
    """Halve in a Python callback with an effect, so that there is a token."""
    token = x(dtypes.bool_, 1, (0,))
    return build_calls.callback("halves", x(dtypes.uint32, 0, ()), token, [x(slot=2)],
                                [(SHAPE, dtypes.float32)])


def _custom() -> tuple[UOp, ...]:
    """-a with itself as rule, and b with a tangent of its own."""
    a, t = x(), x(slot=2)
    flags = (SHAPE, dtypes.float32), ((), dtypes.int32)
    f = build.function([build.neg(a), x(dtypes.int32, 1, ())], 2, "f")
    again = build_calls.custom([f], op_args.Custom("f", flags, (), 0, recursion_depth=0),
                               [a, x(dtypes.int32, 1, ())])
    rule = build.function([*again, build.neg(t)], 3, "f.jvp")
    return build_calls.custom([f, rule], op_args.Custom("f", flags, ("jvp",), 0),
                              [x(), x(dtypes.int32, 1, ())])


EXAMPLES: dict[Op, Callable[[], UOp]] = {
    ops.PARAM: x,
    ops.CONST: lambda: build.const(2.5, dtypes.float32, SHAPE),
    ops.IOTA: lambda: build.iota(7),
    ops.RESHAPE: lambda: build.reshape(x(), (5, 3)),
    ops.PERMUTE: lambda: build.permute(x(), (1, 0)),
    ops.EXPAND: lambda: build.expand(x(shape=(3, 1)), (3, 4)),
    ops.PAD: lambda: build.pad(x(), ((1, 2), (0, 3)), 1.5),
    ops.SHRINK: lambda: build.shrink(x(), ((1, 3), (0, 2))),
    ops.FLIP: lambda: build.flip(x(), (1,)),
    ops.CONCAT: lambda: build.concat([x(), x(slot=1, shape=(2, 5))], 0),
    ops.UNFOLD: lambda: build.unfold(x(), 1, 0, 2, 1),
    ops.FOLD: lambda: build.fold(x(), 1, 0, 2, 3, 17),
    ops.BARRIER: lambda: build.barrier(x(), build.reduce(x(), ops.ADD, (0,))),
    ops.STOP_GRADIENT: lambda: build.stop_gradient(x()),
    ops.REDUCE: lambda: build.reduce(x(), ops.ADD, (1,)),
    ops.ARG_PAIR: lambda: build.reduce(build.arg_pair(x(), build.expand(
        build.reshape(build.iota(5), (1, 5)), SHAPE)), ops.MAX, (1,)),
    ops.GATHER: lambda: build.gather(x(), build.flip(_index(), (0,))),
    ops.SCATTER: lambda: build.scatter(x(), [_index()], x(slot=1), ops.ADD),
    ops.FUNCTION: lambda: _call()[0],
    ops.CALL: lambda: _call()[0],
    ops.GETTUPLE: lambda: _call()[1],
    ops.SCAN: lambda: _scan()[1],
    ops.WHILE: lambda: _while()[0],
    ops.COND: lambda: _cond()[0],
    ops.CALLBACK: lambda: _host()[1],
    ops.CUSTOM: lambda: _custom()[0],
    ops.FFT: lambda: build_calls.fft(x(shape=(3, 2)), _table(), 0),
    ops.FFT_STEP: lambda: build_calls.fft_step(
        x(shape=(1, 3, 1, 2)), _table(), op_args.FftStep(
            "fft", dtypes.float32, (1, 3, 1), (3,), (3,), 0)),
    ops.LINALG: lambda: build_calls.linalg("qr", [x(shape=(5, 3))])[1],
    ops.SORT: lambda: build_calls.sort([x(), x(dtypes.int32, 1)], 1, (1, 0))[1],
}


@pytest.mark.parametrize("op", [ops.SCAN, ops.WHILE, ops.COND], ids=repr)
def test_loops_mean_what_numpy_computes(op: Op) -> None:
    node = EXAMPLES[op]()
    args = values(node)
    fn = build.function([node], len(args))
    spec.check([fn], "tensor")
    out, = interp.apply(fn, args)
    if op is ops.SCAN:
        total, sums = args[1], []
        for row in args[2][::-1]:
            total = args[0] * total + row
            sums.append(total.sum())
        np.testing.assert_allclose(out, sums[::-1], rtol=1e-6)
    elif op is ops.WHILE:
        assert (out ** 2).sum() >= 1000 > (out ** 2).sum() / 4
    else:
        np.testing.assert_array_equal(out, args[0] if args[1] > 0 else -args[0])


def elementwise_examples(op: Op) -> list[UOp]:
    """Return each elementwise op on every element type that it accepts."""
    taken = [t for t in dtypes.USER if op.accepts_dtype(t)]
    if op is ops.THREEFRY:
        return [build.elementwise(op, *[x(dtypes.uint32, i) for i in range(4)], arg=word)
                for word in (0, 1)]
    if op is ops.CAST:
        return [build.cast(x(a), b) for a in taken for b in dtypes.USER if a is not b]
    if op is ops.BITCAST:
        return [build.bitcast(x(a), b) for a in taken for b in taken
                if a is not b and a.bits == b.bits]
    if op is ops.WHERE:
        return [build.where(x(dtypes.bool_), x(t, 1), x(t, 2)) for t in taken]
    assert op.arity is not None
    return [build.elementwise(op, *[x(t, i) for i in range(op.arity)]) for t in taken]


def examples(op: Op) -> list[UOp]:
    """Return the examples whose types the device has."""
    made = elementwise_examples(op) if op.kind == "elementwise" else [EXAMPLES[op]()]
    return [node for node in made if computes(n.dtype for n in toposort([node]))]


def values(node: UOp) -> list[np.ndarray]:
    """Return an array of small numbers of both signs for each PARAM of the node, by slot."""
    rng = np.random.default_rng(0)
    params = {n.arg.slot: n for n in toposort([node]) if n.op is ops.PARAM}
    handles = {n.src[0] for n in toposort([node]) if n.op is ops.CALLBACK}
    out = []
    for slot in range(len(params)):
        param = params[slot]
        if param in handles:
            out.append(np.array(HALVES.number.value, np.uint32))
            continue
        drawn = rng.uniform(0.25, 3, param.shape) * rng.choice([-1, 1], param.shape)
        out.append(encoded(np.abs(drawn) if param.dtype.kind == "uint" else drawn, param.dtype))
    return out


TENSOR = sorted(ops.ops_at_level("t") - NO_EXAMPLE.keys(), key=lambda op: op.name)


def test_every_op_has_an_example_or_a_reason() -> None:
    assert set(TENSOR) == set(EXAMPLES) | ops.ELEMENTWISE
    for op in EXAMPLES:
        assert op in toposort_ops(EXAMPLES[op]())
    for op in ops.ELEMENTWISE:
        made = elementwise_examples(op)
        assert made and all(node.op is op for node in made)


def toposort_ops(node: UOp) -> set[Op]:
    return {n.op for n in toposort([node], into_functions=True)}


def test_every_op_of_the_tensor_level_has_a_derivative_row() -> None:
    assert set(DERIVATIVES) == ops.ops_at_level("t")


def test_every_op_of_the_tensor_level_has_a_batching_row() -> None:
    for op in ops.ops_at_level("t"):
        rows: Collection[object] = {"none": {op}, "movement": MOVEMENTS, "body": BODY_RULES,
                                    "collective": COLLECTIVES}.get(
            op.batching, RULES if op.batching in RULES else ())
        assert op in rows or op.batching in rows or op in READ_ELSEWHERE, op


def together(nodes: list[UOp]) -> tuple[UOp, list[np.ndarray]]:
    """Combine all nodes in one FUNCTION, as a program costs a device more than a kernel."""
    given: list[np.ndarray] = []
    results = []
    for node in nodes:
        args = values(node)
        params = [n for n in toposort([node]) if n.op is ops.PARAM]
        results += substitute([node], {
            p: x(p.dtype, len(given) + p.arg.slot, p.shape) for p in params})
        given += args
    return build.function(results, len(given)), given


@pytest.mark.cases(36)
@pytest.mark.parametrize("op", TENSOR, ids=repr)
def test_every_op_is_legal_has_a_meaning_and_runs(op: Op) -> None:
    """Machine code agrees with the interpreter within a few rounding errors."""
    device = get_device(MACHINE)
    fn, args = together(examples(op))
    spec.check([fn], "tensor")
    outs = link(fn, device).run([device.upload(a) for a in args])
    for node, out, meant in zip(fn.src, outs, interp.apply(fn, args), strict=True):
        got, expected = numbers(out.view(node.dtype.np, node.shape)), numbers(meant)
        if node.dtype.is_inexact:
            tolerance = (4 if device.target.has_64bit else 8) * 2.0 ** -node.dtype.real.mantissa
            np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(got, expected)
