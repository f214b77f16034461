"""Which values of a checkpointed function are kept for its backward pass: a policy, as data.

    nothing       all is computed again, from the arguments
    everything    what reverse mode keeps of a function without a checkpoint
    dots          matrix products; ``plain_dots``: those without a batch axis
    names         what ``checkpoint_name`` named so; ``other_names``: named otherwise
    unnamed       as everything, but what has one of these names
"""

from __future__ import annotations

from collections.abc import Callable, Container

from fnx.core import ops, parts
from fnx.core.record import Record
from fnx.core.uop import UOp, toposort
from fnx.transforms.ad.rules import DerivativeRule


class Policy(Record):
    """What a backward pass reads of the forward pass instead of computing it again.

    ``apart``: what is computed again is kept apart from the forward pass, and waits for the
    cotangents. ``others``: policies that save, too.
    """

    kind: str
    names: tuple[str, ...] = ()
    apart: bool = True
    others: tuple[Policy, ...] = ()

    def saves(self, node: UOp, rule: DerivativeRule) -> bool:
        """Whether it keeps the value of a node of the forward pass."""
        if node.op is ops.GET and node.src[0].op is ops.HOST:
            return not (node.src[0].arg.effect and node.arg == 0)  # but for a token: not done again
        return _SAVES[self.kind](self, node, rule) or any(p.saves(node, rule) for p in self.others)


_NAMED = "checkpoint_name("


def label(name: str) -> str:
    """What a CALL is named that gives its operand a name."""
    return f"{_NAMED}{name})"


def gives_name(call: UOp) -> bool:
    """Whether a CALL is there for the name of its operand."""
    text: str = call.arg.name
    return text.startswith(_NAMED)


def name_of(node: UOp) -> str | None:
    """The name that ``checkpoint_name`` gave a value."""
    if node.op is not ops.GET or node.arg or node.src[0].op is not ops.CALL or \
            not gives_name(node.src[0]):
        return None
    text: str = node.src[0].arg.name
    return text[len(_NAMED):-1]


def is_apart(node: UOp) -> bool:
    """Whether a node has said itself what is kept in it: a checkpoint inside, or a mere name."""
    if node.op is ops.CALL:
        return node.arg.policy is not None or gives_name(node)
    return node.op is ops.SCAN and node.arg.checkpoint > 0


def _has_one(names: Container[str], node: UOp) -> bool:
    """Whether a value has one of these names, or one that it is made of in its bodies."""
    if name_of(node) is not None or node.op is not ops.GET or node.src[0].op is ops.HOST:
        return name_of(node) in names
    return any(name_of(n) in names for body in parts.bodies(node.src[0])
               for n in toposort([body], into_functions=True))


def _is_plain_dot(node: UOp, rule: DerivativeRule) -> bool:
    """A matrix product in which every axis of the result is of one factor alone."""
    if not rule.hides_masks(node):
        return False
    shape, kept = node.src[0].shape, [a for a in range(len(node.src[0].shape))
                                      if a not in node.arg.axes]
    factors = [_varies(s) for s in node.src[0].src]
    return not any(shape[a] != 1 and all(a in axes for axes in factors) for a in kept)


def _varies(node: UOp) -> set[int]:
    """The axes along which an operand is not repeated."""
    if node.op is ops.EXPAND:
        return {a for a, n in enumerate(node.src[0].shape) if n != 1}
    if node.op is ops.PERMUTE:
        inner = _varies(node.src[0])
        return {i for i, a in enumerate(node.arg) if a in inner}
    return {a for a, n in enumerate(node.shape) if n != 1}


_SAVES: dict[str, Callable[[Policy, UOp, DerivativeRule], bool]] = {
    "nothing": lambda policy, node, rule: False,
    "everything": lambda policy, node, rule: rule.dear,
    "dots": lambda policy, node, rule: rule.hides_masks(node),
    "plain_dots": lambda policy, node, rule: _is_plain_dot(node, rule),
    "names": lambda policy, node, rule: name_of(node) in policy.names,
    "other_names": lambda policy, node, rule: name_of(node) not in (None, *policy.names),
    "unnamed": lambda policy, node, rule: rule.dear and not _has_one(policy.names, node),
}
