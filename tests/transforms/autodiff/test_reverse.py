"""The reverse pass: calls and their residuals, what runs how often, cost."""

from __future__ import annotations

import gc
from collections import Counter

import numpy as np

from fnx.core.ir import build, build_calls, dtypes, op_args, ops
from fnx.core.ir.uop import UOp, live_nodes, toposort
from fnx.core.levels import interp
from fnx.core.tracing.trace import inline_function
from fnx.transforms.autodiff.derivatives import DERIVATIVES
from fnx.transforms.autodiff.higher_order import Activity
from fnx.transforms.autodiff.reverse import linearize, pullback
from fnx.transforms.autodiff.rules import Cotangent

F8 = dtypes.float64
SHAPE = (2, 3)


def body() -> UOp:
    """x, w -> x times the log of row sums of exp(tanh(x * w)), broadcast; one REDUCE."""
    x, w = build.param(0, F8, SHAPE), build.param(1, F8, SHAPE)
    row = build.reduce(build.exp(build.elementwise(ops.TANH, build.mul(x, w))), ops.ADD, (1,))
    spread = build.expand(build.reshape(row, (2, 1)), SHAPE)
    return build.function([build.mul(x, build.log(spread))], 2, "body")


def total(y: UOp) -> UOp:
    return build.reduce(y, ops.ADD, range(len(y.shape)))


def value_and_grads(loss: UOp, wrt: list[UOp]) -> tuple[UOp, list[UOp]]:
    outs, cts = pullback([loss], [Cotangent(build.const_like(loss, 1))], wrt)
    return outs[0], [build.const_like(w, 0) if ct is None else ct.value for w, ct in zip(wrt, cts)]


def calls_in(roots: list[UOp]) -> list[UOp]:
    return [n for n in toposort(roots) if n.op is ops.CALL]


def executed(roots: list[UOp]) -> Counter[ops.Op]:
    """Count how often each op runs: bodies count once for each call."""
    count: Counter[ops.Op] = Counter()
    for node in toposort(roots):
        count[node.op] += 1
        if node.op is ops.CALL:
            count += executed(list(node.src[0].src))
    return count


X, W = build.param(0, F8, SHAPE), build.param(1, F8, SHAPE)
ENV = {X: np.linspace(0.1, 1.0, 6).reshape(SHAPE), W: np.full(SHAPE, 0.7)}


def test_forward_of_a_call_runs_once() -> None:
    y = build_calls.call(body(), [X, W])[0]
    value, grads = value_and_grads(total(y), [X, W])
    found = calls_in([value, *grads])
    assert len(found) == 2  # one forward, one backward
    forward, backward = sorted(found, key=lambda n: len(n.arg.outs))
    assert forward.src[0].arg.name == "body" and backward.src[0].arg.name == "body.backward"
    # forward: one sum; backward: one sum (of the cotangent); loss: one
    assert executed([value, *grads])[ops.REDUCE] == 3
    assert executed([value])[ops.REDUCE] == 2


def test_residuals_are_the_expensive_results() -> None:
    forms = linearize(body(), Activity((0, 1), (0,)))
    assert forms.forward is not None
    assert [n.op for n in forms.forward.src[1:]] == [ops.REDUCE]
    assert all(DERIVATIVES[n.op].save_residual for n in forms.forward.src[1:])
    assert sorted(forms.sources) == [("cotangent", 0), ("input", 0), ("input", 1), ("result", 1)]


def test_a_body_of_cheap_results_has_no_residuals_and_stays_itself() -> None:
    fn = build.function([build.exp(build.param(0, F8, SHAPE))], 1, "f")
    forms = linearize(fn, Activity((0,), (0,)))
    assert forms.forward is None


def test_random_bits_are_residuals() -> None:
    key = [build.param(i, dtypes.uint32, SHAPE) for i in range(4)]
    bits = build.elementwise(ops.THREEFRY, *key, arg=0)
    keep = build.lt(bits, build.const(1 << 31, dtypes.uint32, SHAPE))
    x = build.param(4, F8, SHAPE)
    fn = build.function([build.where(keep, x, build.const_like(x, 0))], 5, "dropout")
    forms = linearize(fn, Activity((4,), (0,)))
    assert forms.forward is not None
    assert forms.forward.src[1:] == (bits,)
    assert ops.THREEFRY not in {n.op for n in toposort(forms.backward.src)}


def test_forms_are_made_once_for_equal_calls() -> None:
    y = X
    for _ in range(10):
        y = build_calls.call(body(), [build.elementwise(ops.TANH, y), W])[0]
    value, grads = value_and_grads(total(y), [X])
    bodies = {n.src[0] for n in calls_in([value, *grads])}
    assert len(bodies) == 2  # one forward, one backward
    assert len(calls_in([value, *grads])) == 20


def test_order_three_of_nested_calls_equals_that_of_the_body() -> None:
    def twice() -> UOp:
        first = build_calls.call(body(), [build.param(0, F8, SHAPE), build.param(1, F8, SHAPE)])[0]
        second = build_calls.call(body(), [build.elementwise(ops.TANH, first), first])[0]
        return build.function([second], 2, "twice")

    def derive(y: UOp) -> list[np.ndarray]:
        out = []
        for _ in range(3):
            _, grads = value_and_grads(total(build.elementwise(ops.TANH, y)), [X, W])
            out += interp.evaluate(grads, ENV)
            y = grads[0]
        return out

    called = derive(build_calls.call(twice(), [X, W])[0])
    x, w = X, W
    first = _inline(body(), [x, w])
    plain = derive(_inline(body(), [build.elementwise(ops.TANH, first), first]))
    for a, b in zip(called, plain):
        np.testing.assert_allclose(a, b, rtol=1e-9)


def _inline(fn: UOp, args: list[UOp]) -> UOp:
    return inline_function(fn, args)[0]


def test_only_active_operands_get_a_gradient() -> None:
    y = build_calls.call(body(), [X, W])[0]
    _, (gx,) = value_and_grads(total(y), [X])
    backward = [n.src[0] for n in calls_in([gx]) if n.arg.name == "body.backward"]
    assert [len(fn.src) for fn in backward] == [1]


def test_a_result_that_is_not_read_has_no_cotangent() -> None:
    x = build.param(0, F8, ())
    fn = build.function([build.exp(x), build.elementwise(ops.SIN, x)], 1, "two")
    a = build.param(0, F8, ())
    _, (g,) = value_and_grads(build_calls.call(fn, [a])[1], [a])
    assert ops.COS in executed([g]) and executed([g])[ops.EXP] <= 1


def test_an_operand_given_twice_sums() -> None:
    y = build_calls.call(body(), [X, X])[0]
    _, (g,) = value_and_grads(total(y), [X])
    _, (plain,) = value_and_grads(total(_inline(body(), [X, X])), [X])
    np.testing.assert_allclose(*interp.evaluate([g, plain], ENV), rtol=1e-12)


def test_nothing_is_built_for_what_does_not_depend() -> None:
    big = W
    for _ in range(50):
        big = build.elementwise(ops.SIN, big)
    _, (g,) = value_and_grads(total(build.mul(X, big)), [X])
    assert ops.COS not in executed([g])
    outs, cts = pullback([total(big)], [Cotangent(build.const(1.0, F8))], [X])
    assert cts == [None]


def test_a_kernel_has_the_derivative_of_what_it_stores() -> None:
    n = build.index_const(3)
    i = build.range_(n, 0)
    store = build.store(build.index_into(build.ref(1, F8, [3]), i), build.load(
        build.index_into(build.ref(0, F8, [3]), i)))
    kernel = build.kernel([store], "copy")
    x = build.param(0, F8, (3,))
    node = UOp(ops.CALL, dtypes.void, (kernel, x), op_args.Call("copy", (((3,), F8),)))
    y = build.results(node)[0]
    grad, = value_and_grads(total(build.mul(y, y)), [x])[1]
    given = np.array([1.0, -2.0, 3.0])
    np.testing.assert_array_equal(interp.evaluate([grad], {x: given})[0], 2 * given)
    assert value_and_grads(total(build.stop_gradient(y)), [x])[1] == [build.const_like(x, 0)]


def test_bodies_that_nest_deeply_do_not_recurse() -> None:
    fn = build.function([build.elementwise(ops.SIN, build.param(0, F8, ()))], 1, "f0")
    for i in range(1, 1000):
        inner = build_calls.call(fn, [build.param(0, F8, ())])[0]
        fn = build.function([build.mul(inner, build.const(1.0, F8))], 1, f"f{i}")
    x = build.param(0, F8, ())
    _, (g,) = value_and_grads(build_calls.call(fn, [x])[0], [x])
    assert g.shape == ()


def test_derived_forms_die_with_their_body() -> None:
    def derive(i: int) -> None:
        x = build.param(0, F8, SHAPE)
        for body in ([build.exp(build.mul(x, build.const(i + 0.5, F8, SHAPE)))],
                     [build.mul(x, build.log(build.expand(build.reshape(build.reduce(
                         build.mul(x, build.const(i + 0.5, F8, SHAPE)), ops.ADD, (1,)), (2, 1)),
                         SHAPE)))]):
            linearize(build.function(body, 1, "body"), Activity((0,), (0,)))

    derive(-1)
    gc.collect()
    before = live_nodes()
    for i in range(60):
        derive(i)
    gc.collect()
    assert live_nodes() < before + 50  # caches shared with other tests may gain or lose a few


def test_work_grows_with_the_graph_and_not_faster() -> None:
    """The nodes made per step of an unrolled loop are constant."""
    def loop(n: int) -> UOp:
        y = X
        for i in range(n):
            y = build.add(build.mul(y, W), build.elementwise(ops.TANH, y))
        return total(y)

    def nodes_made(n: int) -> int:
        loss = loop(n)
        before = build.const(-1.5 - n, X.dtype).number
        value_and_grads(loss, [X, W])
        return build.const(-2.25 - n, X.dtype).number - before

    small, large = nodes_made(500), nodes_made(1000)
    assert 1.9 * small <= large <= 2.1 * small
    assert small <= 500 * 20


def test_parts_that_lie_side_by_side_are_joined() -> None:
    """Of four slices of one axis, three do not overlap and one does; a fifth is of another axis."""
    x = build.param(0, F8, (8, 3))
    parts = [build.shrink(x, [bounds, (0, 3)]) for bounds in ((5, 8), (0, 2), (2, 4), (3, 6))]
    parts.append(build.shrink(x, [(0, 8), (1, 3)]))
    loss = total(build.concat([build.reshape(build.mul(p, build.const_like(p, i + 1.0)),
                                             (p.shape[0] * p.shape[1],))
                               for i, p in enumerate(parts)], 0))
    _, (grad,) = value_and_grads(loss, [x])
    nodes = toposort([grad])
    assert sum(n.op is ops.PAD for n in nodes) == 2  # the overlapping one, the other axis
    assert sum(n.op is ops.CONCAT for n in nodes) == 1
    want = np.zeros((8, 3))
    for i, at in enumerate((np.s_[5:8], np.s_[0:2], np.s_[2:4], np.s_[3:6], np.s_[:, 1:3])):
        want[at] += i + 1
    got, = interp.evaluate([grad], {x: np.zeros((8, 3))})
    np.testing.assert_array_equal(got, want)
