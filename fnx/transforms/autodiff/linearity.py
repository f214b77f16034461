"""Check whether a FUNCTION is linear in some operands, before it is transposed.

A walk classifies values as CONSTANT (independent of these operands), ZERO (a constant that is
known to be zero) or LINEAR. An op is linear if it preserves sums and multiples: ADD of two
LINEAR, MUL of one with a CONSTANT. x + 1 is not (it is affine), nor is a comparison of x.

    x LINEAR, w CONSTANT:     x * w + x LINEAR,   x + w refused,   x * x refused
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum

from fnx.core.ir import accessors, build, ops
from fnx.core.ir.derivations import Derivation, register_derivation, run_derivation
from fnx.core.ir.linalg import LINEAR_ROUTINES
from fnx.core.ir.op_bodies import OpBodies
from fnx.core.ir.uop import UOp, toposort
from fnx.core.support.errors import GradError
from fnx.core.support.record import Record
from fnx.transforms.autodiff.derivatives import DERIVATIVES
from fnx.transforms.autodiff.higher_order import kernel_as_function
from fnx.transforms.autodiff.rules import Linear


class LinearKind(Enum):
    """How a value depends on the linear operands."""

    ZERO = 0
    CONSTANT = 1
    LINEAR = 2


ZERO, CONSTANT, LINEAR = LinearKind
Kinds = tuple[LinearKind, ...]


class LinearityKey(Record):
    """The kinds of the operands of a body: the key of the kinds of its results."""

    operands: Kinds


def check_linear(outs: Sequence[UOp], linear: Sequence[UOp]) -> None:
    """Check that results of a trace are linear in some of its leaves.

    Raises:
        GradError: they are not; the message names the operation and the user's line.
    """
    run_derivation(check_linear_steps(outs, linear))


def check_linear_steps(outs: Sequence[UOp], linear: Sequence[UOp]) -> Derivation[None]:
    """The steps of ``check_linear``."""
    for kind, out in zip((yield from _walk(outs, dict.fromkeys(linear, LINEAR))), outs):
        if kind is CONSTANT and (out.dtype.is_inexact or linear and linear[0].dtype.is_integer):
            raise _not_linear_error(out, "returns a result that is a constant")


def _not_linear_error(node: UOp, does: str) -> GradError:
    return GradError(f"expected a function that is linear in its arguments, got one that {does}: "
                     f"{node.op} of {node.dtype}{list(node.shape)}",
                     locs=node.locs if node.src else (),
                     hint="only multiply the arguments by constants; use vjp for nonlinear "
                          "functions")


@register_derivation(LinearityKey)
def _derive_kinds(body: UOp, key: LinearityKey) -> Derivation[Kinds]:
    return (yield from _walk(body.src, {node: key.operands[slot]
                                        for slot, node in build.params(body).items()}))


def _walk(outs: Sequence[UOp], source_kinds: Mapping[UOp, LinearKind]) -> Derivation[Kinds]:
    kinds = dict(source_kinds)
    results: dict[UOp, Kinds] = {}
    for node in toposort(outs, stop=lambda n: n.op is ops.KERNEL):
        if node in source_kinds:
            continue
        if node.op is ops.GETTUPLE:
            kinds[node] = results[node.src[0]][node.arg]
        elif node.op.is_isolated or not node.src or node.op is ops.KERNEL:
            kinds[node] = ZERO if node.op is ops.CONST and build.const_of(node) == 0 else CONSTANT
        elif node.op in BODY_RULES:
            operands = tuple([kinds[s] for s in accessors.operands(node)])
            if any(kind is LINEAR and s.dtype.is_integer
                   for kind, s in zip(operands, accessors.operands(node))):
                raise _not_linear_error(node, "has a body that takes integers")
            results[node] = (yield from BODY_RULES[node.op](node, operands)) \
                if {LINEAR, ZERO} & set(operands) else (CONSTANT,) * len(node.arg.outs)
            kinds[node] = CONSTANT
        else:
            kinds[node] = _kind(node, [kinds[s] for s in node.src])
    return tuple([kinds[o] for o in outs])


def _kind(node: UOp, src: list[LinearKind]) -> LinearKind:
    """Return the kind of a node without a body."""
    if node.op is ops.BARRIER:
        return src[0]
    if LINEAR not in src:
        joint = _jointly_linear(node)
        is_zero = all(src[i] is ZERO for i in joint) if joint else \
            node.op is ops.MUL and ZERO in src or node.op is ops.DIV and src[0] is ZERO
        return ZERO if is_zero else CONSTANT
    if node.op is ops.MUL and src.count(LINEAR) == 1 or node.op is ops.DIV and src[1] is not LINEAR:
        return LINEAR
    joint = _jointly_linear(node)
    if any(k is LINEAR and i not in joint for i, k in enumerate(src)):
        raise _not_linear_error(node, "multiplies them with one another" if node.op is ops.MUL
                                else "is not linear")
    if any(src[i] is CONSTANT for i in joint):
        raise _not_linear_error(node, "adds a constant to them")
    return LINEAR


def _jointly_linear(node: UOp) -> Sequence[int]:
    """Return the operands in which a node is jointly linear, whatever the others are."""
    rule = DERIVATIVES[node.op]
    if isinstance(rule, Linear):
        is_linear = node.op is not ops.CAST or node.dtype.is_inexact or \
            node.dtype.is_integer and node.src[0].dtype.is_integer
        return rule.operands(node) if is_linear else ()
    if node.op in (ops.ADD, ops.SUB, ops.NEG):
        return range(len(node.src))
    if node.op is ops.WHERE:
        return (1, 2)
    if node.op is ops.REDUCE and node.arg.monoid is ops.ADD:
        return (0,)
    if node.op is ops.SCATTER and node.arg.monoid in (ops.ADD, None):
        return (0, len(node.src) - 1)
    return ()


# ---- bodies -----------------------------------------------------------------------------------


def _join_kinds(node: UOp, kinds: Sequence[LinearKind], other_kinds: Sequence[LinearKind]
                ) -> Kinds:
    """Join the kinds of values of which either may be present."""
    def join(a: LinearKind, b: LinearKind) -> LinearKind:
        if {a, b} == {CONSTANT, LINEAR}:
            raise _not_linear_error(node, "returns a constant in place of one of them")
        return a if b is ZERO else b
    return tuple(map(join, kinds, other_kinds))


def _bodies(node: UOp, operands: Kinds) -> Derivation[Kinds]:
    """Iterate until the kinds of the carries are a fixpoint; join those of branches."""
    op = OpBodies(node)
    consts, carries, rest = op.split(operands[len(op.selector):])
    while True:
        results: Kinds | None = None
        for step in op.steps or (kernel_as_function(node),):
            kinds: Kinds = yield step, LinearityKey((*consts, *carries, *rest))
            results = kinds if results is None else _join_kinds(node, results, kinds)
        assert results is not None
        joined = _join_kinds(node, carries, results[:op.n_carries])
        if joined == carries:
            break
        carries = joined
    for condition in op.conditions:
        yield condition, LinearityKey((*consts, *carries))  # raises if it reads them
    return (*carries, *results[op.n_carries:])


def _custom(node: UOp, operands: Kinds) -> Derivation[Kinds]:
    """The solution of a linear system is linear by declaration, whatever its solver does; so is a
    primitive of the user's, in what its transpose rule takes."""
    if node.arg.rule_maker is not None and node.arg.rule_maker.is_linear:
        return (LINEAR if LINEAR in operands else CONSTANT,) * len(node.arg.outs)
    last = len(operands) - node.arg.n_linear
    if LINEAR in operands[:last] or LINEAR not in operands[last:]:
        return (yield from _bodies(node, operands))
    if CONSTANT in operands[last:]:
        raise _not_linear_error(node, "adds a constant to them")
    return tuple([CONSTANT if i < node.arg.effects else LINEAR
                  for i in range(len(node.arg.outs))])


def _callback(node: UOp, operands: Kinds) -> Derivation[Kinds]:
    """The result of a Python callback."""
    if LINEAR in operands and any(dtype.is_inexact for _, dtype in node.arg.outs):
        raise _not_linear_error(node, "is not linear")
    yield from ()
    return (CONSTANT,) * len(node.arg.outs)


def _sort(node: UOp, operands: Kinds) -> Derivation[Kinds]:
    """Operands that are not keys are permuted by a constant order."""
    if LINEAR in operands[:node.arg.n_keys]:
        raise _not_linear_error(node, "is not linear")
    yield from ()
    return tuple([CONSTANT if i < 0 else operands[i] for i in node.arg.outputs])


def _linalg(node: UOp, operands: Kinds) -> Derivation[Kinds]:
    """A solver is linear in its right-hand side, the last operand."""
    if LINEAR in operands[:-1] or LINEAR in operands and \
            node.arg.routine not in LINEAR_ROUTINES:
        raise _not_linear_error(node, "is not linear")
    yield from ()
    return tuple([LINEAR if LINEAR in operands else CONSTANT for _ in node.arg.outs])


BODY_RULES: dict[ops.Op, Callable[[UOp, Kinds], Derivation[Kinds]]] = {
    ops.CALL: _bodies, ops.SCAN: _bodies, ops.WHILE: _bodies, ops.COND: _bodies,
    ops.SORT: _sort, ops.LINALG: _linalg, ops.CALLBACK: _callback, ops.CUSTOM: _custom}
