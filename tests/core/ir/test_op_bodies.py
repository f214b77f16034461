"""The view of ops with bodies: each op is rebuilt from what the view shows of it."""

import pytest

from fnx.core.ir import build, build_calls, dtypes, op_args, ops
from fnx.core.ir.op_bodies import OpBodies
from fnx.core.levels import spec

A, B, C = (build.param(i, dtypes.float32, (3,)) for i in range(3))
ROWS = build.param(3, dtypes.float32, (5, 3))
WHICH = build.param(4, dtypes.int32, ())
TWO = build.function([build.add(A, B), build.mul(A, B)], 2, "two")
STEP = build.function([build.add(A, B), build.mul(B, C)], 3, "step")
GOES_ON = build.function([build.const(True, dtypes.bool_, ())], 2, "goes_on")
NEXT = build.function([build.add(A, B)], 2, "next")
OUTS = tuple((x.shape, x.dtype) for x in TWO.src)

# op -> its node, steps, consts, carries, rest
NODES = {
    ops.CALL: (build_calls.call(TWO, [A, B]), (TWO,), (A, B), (), ()),
    ops.COND: (build_calls.cond([TWO, TWO], WHICH, [A, B]), (TWO, TWO), (A, B), (), ()),
    ops.SCAN: (build_calls.scan(STEP, 5, [A], [B], [ROWS]), (STEP,), (A,), (B,), (ROWS,)),
    ops.WHILE: (build_calls.while_(GOES_ON, NEXT, [A], [B]), (NEXT,), (A,), (B,), ()),
    ops.CUSTOM: (build_calls.custom([TWO], op_args.Custom("f", OUTS, (), 1), [A, B]),
                 (TWO,), (A,), (), (B,)),
}


def test_every_op_with_bodies_is_here() -> None:
    assert set(NODES) == ops.HIGHER_ORDER


@pytest.mark.parametrize("op", NODES, ids=repr)
def test_view(op: ops.Op) -> None:
    results, steps, *groups = NODES[op]
    view = OpBodies(results[0].src[0])
    assert view.steps == steps
    assert [*view.split(view.operands)] == groups
    assert view.selector == ((WHICH,) if op is ops.COND else ())
    assert view.conditions == ((GOES_ON,) if op is ops.WHILE else ())
    assert [x.shape for x in view.params(groups)] == [(3,)] * len(view.operands)


@pytest.mark.parametrize("op", NODES, ids=repr)
def test_rebuild(op: ops.Op) -> None:
    node = NODES[op][0][0].src[0]
    view = OpBodies(node)
    assert view.rebuild(view.bodies, view.split(view.operands)) is node


@pytest.mark.parametrize("op", NODES, ids=repr)
def test_a_const_is_added_to_all_bodies(op: ops.Op) -> None:
    view = OpBodies(NODES[op][0][0].src[0])
    consts, carries, rest = view.split(view.operands)
    groups = [[*consts, C], carries, rest]
    params = view.params(groups)
    old = [*params[:len(consts)], *params[len(consts) + 1:]]
    bodies = [build.function(build_calls.call(body, old), len(params)) for body in view.bodies]
    node = view.rebuild(bodies, groups, name="more")
    spec.check(build.results(node), "tensor")
    added = OpBodies(node)
    assert added.n_consts == view.n_consts + 1 and added.n_carries == view.n_carries
    assert node.arg.name == "more" and node.arg.outs == view.node.arg.outs


def test_live_results() -> None:
    a, b, row = A, B, C
    step = build.function([build.neg(a), build.add(b, a), build.mul(row, row)], 3, "step")
    scan = OpBodies(build_calls.scan(step, 5, [], [A, B], [ROWS])[0].src[0])
    assert scan.live_results({2}) == [2]
    assert scan.live_results({0, 2}) == [0, 2]
    assert scan.live_results({1}) == [0, 1]  # b reads a
    goes_on = build.function([build.reshape(build.shrink(build.lt(a, b), [(0, 1)]), ())], 2, "c")
    step = build.function([build.neg(a), build.neg(b)], 2, "step")
    loop = OpBodies(build_calls.while_(goes_on, step, [], [A, B])[0].src[0])
    assert loop.live_results({0}) == [0, 1]  # the condition reads b
