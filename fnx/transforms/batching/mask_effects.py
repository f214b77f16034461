"""Mask effects: a FUNCTION whose effects happen only if an additional bool parameter holds.

    before  FUNCTION(CALLBACK(p0, token p1, p2))
    after   FUNCTION(CALLBACK(p0, token p1, p3, p2), masked)    with p3: bool, after the others

Under predication, batch elements that do not take a branch, or whose loop has ended, compute what
an active element computes; they must not have effects.

>>> from fnx.core.ir import dtypes
>>> handle, x = build.param(0, dtypes.uint32, ()), build.param(2, dtypes.float32, ())
>>> token = build.param(1, *reversed(build_calls.TOKEN))
>>> fn = build.function(build_calls.callback("print", handle, token, [x], []), 3)
>>> call = mask_effects(fn).src[0].src[0]
>>> call.arg.masked, call.src[2] is build.param(3, dtypes.bool_, ())
(True, True)
"""

from __future__ import annotations

from collections.abc import Mapping

from fnx.core.ir import build, build_calls, dtypes, op_args, ops
from fnx.core.ir.derivations import Derivation, derive, register_derivation
from fnx.core.ir.op_bodies import OpBodies
from fnx.core.ir.uop import UOp, rebuild, toposort
from fnx.core.support.record import Record


class MaskEffectsKey(Record):
    """The position of the bool among the parameters of a body: the key of its masked forms."""

    index: int


def mask_effects(body: UOp) -> UOp:
    """Return the FUNCTION with the bool as an additional last parameter."""
    function: UOp = derive(body, MaskEffectsKey(body.arg.n_params))
    return function


def has_effects(body: UOp) -> bool:
    """Whether a body returns a token."""
    return any(map(build_calls.is_token, body.src))


@register_derivation(MaskEffectsKey)
def _derive_masked(body: UOp, key: MaskEffectsKey) -> Derivation[UOp]:
    """Return the FUNCTION with the bool inserted among its parameters."""
    position = key.index
    mask = build.param(position, dtypes.bool_, ())
    masked_bodies: dict[UOp, UOp] = {}
    for node in toposort(body.src):
        if node.op in ops.HIGHER_ORDER and any(map(build_calls.is_token, node.src)):
            op = OpBodies(node)
            for inner in op.bodies:
                if inner not in masked_bodies:
                    masked_bodies[inner] = yield inner, MaskEffectsKey(op.n_consts)

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is ops.CALLBACK and node.arg.effect:
            return _mask_callback(node, src, mask)
        if node.op in ops.HIGHER_ORDER and any(map(build_calls.is_token, node.src)):
            return _pass_mask(node, src, mask, masked_bodies)
        return None

    shifted = {p: build.param(slot + (slot >= position), p.dtype, p.shape)
               for slot, p in build.params(body).items()}
    outs = rebuild(body.src, visit, shifted)
    return build.function(outs, body.arg.n_params + 1, f"{body.arg.name}.guarded")


def _pass_mask(node: UOp, src: tuple[UOp, ...], mask: UOp, masked_bodies: Mapping[UOp, UOp]) -> UOp:
    """Pass the bool to the bodies of a node, after the consts."""
    op = OpBodies(node.with_operands(src))
    consts, carries, rest = op.split(op.operands)
    return op.rebuild([masked_bodies[body] for body in op.bodies], [[*consts, mask], carries, rest])


def _mask_callback(node: UOp, src: tuple[UOp, ...], mask: UOp) -> UOp:
    """Return a CALLBACK whose effect also requires ``mask``."""
    arg, first = node.arg, 2
    args, batch_levels = src[first:], arg.batch_levels
    if arg.masked:
        args = (build.and_(args[0], build.expand(mask, args[0].shape)), *args[1:])
    else:
        args = (mask, *args)
        batch_levels = tuple([(n, (False, *batched)) for n, batched in batch_levels])
    types = tuple([(x.shape, x.dtype) for x in args])
    host_arg = op_args.Callback(arg.name, True, types, arg.outs, batch_levels, True, arg.method)
    return UOp(ops.CALLBACK, node.dtype, (*src[:first], *args), host_arg)
