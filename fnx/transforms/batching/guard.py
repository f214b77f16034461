"""Mask effects: a FUNCTION whose effects happen only if an additional bool parameter holds.

    before  FUNCTION(HOST(p0, token p1, p2))
    after   FUNCTION(HOST(p0, token p1, p3, p2), masked)        with p3: bool, after the others

Under predication, batch elements that do not take a branch, or whose loop has ended, compute what
an active element computes; they must not have effects.

>>> from fnx.core import dtypes
>>> handle, x = build.param(0, dtypes.uint32, ()), build.param(2, dtypes.float32, ())
>>> token = build.param(1, *reversed(build_calls.TOKEN))
>>> fn = build.function(build_calls.host("print", handle, token, [x], []), 3)
>>> call = guarded(fn).src[0].src[0]
>>> call.arg.masked, call.src[2] is build.param(3, dtypes.bool_, ())
(True, True)
"""

from __future__ import annotations

from collections.abc import Mapping

from fnx.core import build, build_calls, dtypes, op_args, ops, parts
from fnx.core.derived import Steps, derives, form
from fnx.core.record import Record
from fnx.core.uop import UOp, rebuild, toposort


class Guard(Record):
    """The position of the bool among the parameters of a body: the key of its masked forms."""

    place: int


def guarded(body: UOp) -> UOp:
    """Return the FUNCTION with the bool as an additional last parameter."""
    found: UOp = form(body, Guard(body.arg.n_params))
    return found


def has_effects(body: UOp) -> bool:
    """Whether a body returns a token."""
    return any(map(build_calls.is_token, body.src))


@derives(Guard, "guarded bodies")
def _guard(body: UOp, asked: Guard) -> Steps[UOp]:
    """Return the FUNCTION with the bool inserted among its parameters."""
    place = asked.place
    holds = build.param(place, dtypes.bool_, ())
    inside: dict[UOp, UOp] = {}
    for node in toposort(body.src):
        if node.op in ops.STRUCTURAL and any(map(build_calls.is_token, node.src)):
            for inner in parts.bodies(node):
                if inner not in inside:
                    inside[inner] = yield inner, Guard(_place(node))

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is ops.HOST and node.arg.effect:
            return _masked(node, src, holds)
        if node.op in ops.STRUCTURAL and any(map(build_calls.is_token, node.src)):
            return _around(node, src, holds, inside)
        return None

    moved = {p: build.param(slot + (slot >= place), p.dtype, p.shape)
             for slot, p in build.params(body).items()}
    outs = rebuild(body.src, visit, moved)
    return build.function(outs, body.arg.n_params + 1, f"{body.arg.name}.guarded")


def _place(node: UOp) -> int:
    """Return the position of the bool in the bodies of a node: after the constants of a loop or
    the captures of a CUSTOM, else last."""
    if node.op in (ops.SCAN, ops.WHILE):
        return int(node.arg.n_consts)
    if node.op is ops.CUSTOM:
        return int(node.arg.n_captures)
    return int(parts.bodies(node)[0].arg.n_params)


def _around(node: UOp, src: tuple[UOp, ...], holds: UOp, inside: Mapping[UOp, UOp]) -> UOp:
    given = [s for s in src if s.op is not ops.FUNCTION]
    behind = node.op is ops.COND  # the branch number precedes the operands
    given.insert(_place(node) + behind, holds)
    arg = node.arg
    if node.op is ops.SCAN:
        arg = op_args.Scan(arg.name, arg.length, arg.n_consts + 1, arg.n_carries, arg.reverse,
                           arg.outs, arg.checkpoint)
    elif node.op is ops.WHILE:
        arg = op_args.While(arg.name, arg.n_consts + 1, arg.outs, arg.most)
    elif node.op is ops.CUSTOM:
        arg = op_args.Custom(arg.name, arg.outs, arg.rules, arg.n_captures + 1, arg.pulled,
                             arg.again, arg.lanes, arg.effects, arg.linear)
    bodies = [inside[body] for body in parts.bodies(node)]
    return UOp(node.op, node.dtype, (*bodies, *given), arg)


def _masked(node: UOp, src: tuple[UOp, ...], holds: UOp) -> UOp:
    """Return a HOST whose effect also requires ``holds``."""
    arg, first = node.arg, 2
    given, lanes = src[first:], arg.lanes
    if arg.masked:
        given = (build.and_(given[0], build.expand(holds, given[0].shape)), *given[1:])
    else:
        given = (holds, *given)
        lanes = tuple([(n, (False, *batched)) for n, batched in lanes])
    types = tuple([(x.shape, x.dtype) for x in given])
    called = op_args.Host(arg.name, True, types, arg.outs, lanes, True, arg.method)
    return UOp(ops.HOST, node.dtype, (*src[:first], *given), called)
