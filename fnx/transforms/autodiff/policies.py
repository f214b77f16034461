"""Checkpoint policies, as data: which values are saved for the backward pass.

    nothing       none: all is recomputed from the arguments
    everything    what reverse mode saves without a checkpoint
    dots          matrix products; ``plain_dots``: those without a batch axis
    names         values with these ``checkpoint_name``s; ``other_names``: with any other name
    unnamed       as everything, except values with one of these names
"""

from __future__ import annotations

from collections.abc import Callable, Container

from fnx.core.ir import accessors, ops
from fnx.core.ir.uop import UOp, toposort
from fnx.core.support.record import Record
from fnx.transforms.autodiff.rules import DerivativeRule


class Policy(Record):
    """Which values of the forward pass are saved instead of recomputed in the backward pass.

    ``prevent_cse``: prevent CSE of the recomputation with the forward pass, and let it wait for the
    cotangents. ``others``: further policies; a value is saved if any of them saves it.
    """

    kind: str
    names: tuple[str, ...] = ()
    prevent_cse: bool = True
    others: tuple[Policy, ...] = ()

    def saves(self, node: UOp, rule: DerivativeRule) -> bool:
        """Whether the value of a node of the forward pass is saved."""
        if node.op is ops.GETTUPLE and node.src[0].op is ops.CALLBACK:
            return not (node.src[0].arg.effect and node.arg == 0)  # callbacks never run again
        return _RULES[self.kind](self, node, rule) or any(p.saves(node, rule) for p in self.others)


_NAME_PREFIX = "checkpoint_name("


def label(name: str) -> str:
    """Return the name of the CALL that names its operand."""
    return f"{_NAME_PREFIX}{name})"


def is_name_call(call: UOp) -> bool:
    """Whether a CALL only names its operand."""
    text: str = call.arg.name
    return text.startswith(_NAME_PREFIX)


def checkpoint_name_of(node: UOp) -> str | None:
    """Return the name that ``checkpoint_name`` gave a value, or None."""
    if node.op is not ops.GETTUPLE or node.arg or node.src[0].op is not ops.CALL or \
            not is_name_call(node.src[0]):
        return None
    return name_of_call(node.src[0])


def name_of_call(call: UOp) -> str:
    """Return the name that a CALL gives its operand."""
    text: str = call.arg.name
    return text[len(_NAME_PREFIX):-1]


def has_own_policy(node: UOp) -> bool:
    """Whether a node has its own checkpoint: a nested checkpoint, or a mere name."""
    if node.op is ops.CALL:
        return node.arg.policy is not None or is_name_call(node)
    return node.op is ops.SCAN and node.arg.checkpoint > 0


def _has_any_name(names: Container[str], node: UOp) -> bool:
    """Whether a value, or one in the bodies that compute it, has one of these names."""
    if checkpoint_name_of(node) is not None or node.op is not ops.GETTUPLE or \
            node.src[0].op is ops.CALLBACK:
        return checkpoint_name_of(node) in names
    return any(checkpoint_name_of(n) in names for body in accessors.bodies(node.src[0])
               for n in toposort([body], into_functions=True))


def _is_plain_dot(node: UOp, rule: DerivativeRule) -> bool:
    """Whether it is a matrix product without batch axes: each axis of the result varies in one
    factor only."""
    if not rule.blocks_masks(node):
        return False
    shape, out_axes = node.src[0].shape, [a for a in range(len(node.src[0].shape))
                                          if a not in node.arg.axes]
    factors = [_varying_axes(s) for s in node.src[0].src]
    return not any(shape[a] != 1 and all(a in axes for axes in factors) for a in out_axes)


def _varying_axes(node: UOp) -> set[int]:
    """Return the axes along which an operand is not broadcast."""
    if node.op is ops.EXPAND:
        return {a for a, n in enumerate(node.src[0].shape) if n != 1}
    if node.op is ops.PERMUTE:
        inner = _varying_axes(node.src[0])
        return {i for i, a in enumerate(node.arg) if a in inner}
    return {a for a, n in enumerate(node.shape) if n != 1}


_RULES: dict[str, Callable[[Policy, UOp, DerivativeRule], bool]] = {
    "nothing": lambda policy, node, rule: False,
    "everything": lambda policy, node, rule: rule.save_residual,
    "dots": lambda policy, node, rule: rule.blocks_masks(node),
    "plain_dots": lambda policy, node, rule: _is_plain_dot(node, rule),
    "names": lambda policy, node, rule: checkpoint_name_of(node) in policy.names,
    "other_names": lambda policy, node, rule: checkpoint_name_of(node) not in (None, *policy.names),
    "unnamed": lambda policy, node,
    rule: rule.save_residual and not _has_any_name(policy.names, node),
}
