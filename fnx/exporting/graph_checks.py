"""What a graph of a stranger must hold besides the spec, so that it is as safe as one of ours.

Types of args come from the annotations of core/op_args.py and core/tiling.py, so that each field
of each record is checked. Sizes are bounded by what arrays can be; steps by the size of the file:
no check goes through a body that many functions share again and again. The kernels in it are held
to what tracing holds the user's to (transforms/kernels/proved.py).
"""

from __future__ import annotations

import functools
import math
import types
import typing
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from fnx.core import dtypes, op_args, ops
from fnx.core.errors import CheckpointError
from fnx.core.levels import spec
from fnx.core.op import Op
from fnx.core.record import Record, values
from fnx.core.tiling import Transform
from fnx.core.uop import UOp, toposort
from fnx.transforms.kernels import proved

LONGEST_NAME = 1000  # characters
MOST_AXES = 64  # as NumPy has them; of a kernel's node, ranges that it depends on
MOST_CARRIED = 1024  # values that loops of a kernel hand on
_STEPS, _STEPS_A_BYTE = 1 << 22, 64  # of checks, each some 100 ns: of any file, and of its size
_LEFT_OUT = (ops.BUFFER, ops.LEAF, ops.HOST, ops.ALL_GATHER, ops.AXIS_INDEX)
RAISED = (LookupError, ValueError, TypeError, AttributeError, AssertionError, RecursionError,
          ArithmeticError)  # by what reads malformed data


class Effort:
    """Steps that the checks of a file may take."""

    def __init__(self, nbytes: int) -> None:
        self._left = _STEPS + _STEPS_A_BYTE * nbytes

    def spend(self, steps: int) -> None:
        """Take so many of them.

        Raises:
            CheckpointError: there are none left.
        """
        self._left -= steps
        if self._left < 0:
            raise CheckpointError("expected a graph whose checks take time in proportion to its "
                                  "file, got one of more", hint="export parts of it")


# ---- args -------------------------------------------------------------------------------------


def fits_arg(op: Op, arg: Any) -> bool:
    """Whether an arg is of the type that its op's row says, with all that is in it."""
    if type(arg) is tuple and op.arg is tuple:
        return len(arg) <= MOST_AXES and all(
            _fits(i, int) or _fits(i, tuple[int, int]) for i in arg)
    return isinstance(arg, op.arg) and type(arg) is not bool and is_plain(arg)


def is_plain(value: Any) -> bool:
    """Whether a value is a number, a short text, an op, a dtype or a record of what it declares."""
    if isinstance(value, Record):
        return all(_fits(field, hint) for field, hint in zip(values(value), _hints(type(value))))
    if type(value) is tuple:
        return all(map(is_plain, value))
    return value is None or type(value) in (bool, float) or isinstance(value, Op | dtypes.DType) \
        or _fits(value, int) or _fits(value, str)


@functools.cache
def _hints(record: type[Record]) -> tuple[Any, ...]:
    found = typing.get_type_hints(record)
    if record is op_args.Call:
        found["schedule"] = tuple[Transform, ...]
    return tuple([found[name] for name in record._names])


def _fits(value: Any, hint: Any) -> bool:
    if hint in (Any, Hashable):
        return value is None
    kind, of = typing.get_origin(hint), typing.get_args(hint)
    if kind is types.UnionType:
        return any(_fits(value, t) for t in of)
    if kind is tuple:
        each = of[:1] * len(value) if type(value) is tuple and of[-1] is Ellipsis else of
        return type(value) is tuple and len(value) == len(each) and all(map(_fits, value, each))
    if hint is int:
        return type(value) is int and -1 << 63 <= value < 1 << 64
    if hint is str:
        return type(value) is str and len(value) <= LONGEST_NAME and value.isprintable()
    return isinstance(value, Record) and is_plain(value) and isinstance(value, hint) \
        if isinstance(hint, type) and issubclass(hint, Record) else type(value) is hint


def size_fault(node: UOp) -> str:
    """What of a node no array or loop has, if anything."""
    if len(node.shape) > MOST_AXES or len(node.ranges) > MOST_AXES:
        return f"at most {MOST_AXES} axes, got {max(len(node.shape), len(node.ranges))}"
    if not is_shape(node.shape, max(node.dtype.itemsize, 1)):
        return f"a shape of less than 2**63 bytes, got {node.shape}"
    if node.op in _LEFT_OUT:
        return "a closed graph that calls no Python"
    return ""


def is_shape(shape: Any, itemsize: int) -> bool:
    """Whether these are lengths of an array's axes."""
    return isinstance(shape, tuple | list) and len(shape) <= MOST_AXES and all(
        type(n) is int and 0 <= n < 1 << 62 for n in shape) and \
        math.prod([n or 1 for n in shape]) * itemsize < 1 << 63


# ---- graphs -----------------------------------------------------------------------------------


def check(function: UOp, number: Mapping[UOp, int], effort: Effort) -> None:
    """Check all nodes below a FUNCTION.

    Args:
        function: the root.
        number: of its nodes, where they are in the file.
        effort: how much work that may be.

    Raises:
        CheckpointError: names the node.
    """
    found = (_shared_fault(number, effort) or _spec_fault(function) or
             kernel_fault(number, effort))
    if found is not None:
        node, expected, got = found
        raise CheckpointError(f"{named(number.get(node, -1), node)}: expected {expected}, got "
                              f"{got[:200]}", hint="export it again, with this version of fnx")


def named(i: int, node: UOp) -> str:
    """What messages call a node of a file."""
    return f"node {i} ({node.op.name})"


def _shared_fault(number: Mapping[UOp, int], effort: Effort) -> proved.NodeFault:
    """Bodies that are gone through once for each node that has them."""
    carried = 0
    for node in number:
        if node.op in (ops.FUNCTION, ops.KERNEL):
            effort.spend(4 * len(toposort(node.src, stop=lambda n: n.op is ops.KERNEL)))
        elif node.op is ops.ITER:
            carried += len(node.arg.outs)
        effort.spend(len(node.src))
    if carried > MOST_CARRIED:
        return next(n for n in number if n.op is ops.ITER), \
            f"at most {MOST_CARRIED} values that loops hand on", str(carried)
    return None


def _spec_fault(function: UOp) -> proved.NodeFault:
    for level, rule, node in spec.rules([function], "tensor"):
        try:
            holds = rule.holds(node)
        except RAISED:
            holds = False
        if not holds:
            return node, f"{rule.expected.replace('OP', node.op.name)} ({level} level)", \
                f"{node} with operands {', '.join(map(repr, node.src[:4])) or 'none'}"
    return None


def kernel_fault(number: Mapping[UOp, int], effort: Effort) -> proved.NodeFault:
    """What is wrong with the KERNELs among some nodes, or with the operands of their CALLs."""
    found: proved.NodeFault = None
    for node in number:
        if node.op is ops.KERNEL:
            found = proved.fault(node, effort.spend)
        elif node.op is ops.CALL and node.src[0].op is ops.KERNEL:
            effort.spend(number[node.src[0]])
            found = proved.operand_fault(node, node.arg.outs)
        if found is not None:
            return found
    return None


def order_fault(nodes: Sequence[UOp], function: UOp) -> str:
    """Nodes that the FUNCTION has no part in."""
    below = set(toposort([function], into_functions=True))
    return next((f"node {i}" for i, n in enumerate(nodes) if n not in below), "")
