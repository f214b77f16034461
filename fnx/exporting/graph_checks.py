"""Checks beyond the spec that make an untrusted graph as safe as one traced here.

Arg types come from the annotations of core/op_args.py and core/tiling.py, so that each field of
each record is checked. Sizes are bounded by those of arrays, and checking steps by the size of the
file: no check traverses a shared body once per user of it. Kernels are held to the same rules that
tracing applies to user-written ones (transforms/kernels/proved.py).
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

LONGEST_NAME = 1000  # characters of a name
MOST_AXES = 64  # as in NumPy; for a kernel node, ranges that it depends on
MOST_CARRIED = 1024  # loop-carried values of kernels
_STEPS, _STEPS_A_BYTE = 1 << 22, 64  # checks of about 100 ns each: per file, per byte of it
_LEFT_OUT = (ops.BUFFER, ops.LEAF, ops.HOST, ops.ALL_GATHER, ops.AXIS_INDEX)
RAISED = (LookupError, ValueError, TypeError, AttributeError, AssertionError, RecursionError,
          ArithmeticError)  # by code that reads malformed data


class Effort:
    """The remaining steps that the checks of a file may take."""

    def __init__(self, nbytes: int) -> None:
        self._left = _STEPS + _STEPS_A_BYTE * nbytes

    def spend(self, steps: int) -> None:
        """Take steps from the budget.

        Raises:
            CheckpointError: it is exhausted.
        """
        self._left -= steps
        if self._left < 0:
            raise CheckpointError("expected a graph whose checks take time in proportion to its "
                                  "file, got one of more", hint="export parts of it")


# ---- args -------------------------------------------------------------------------------------


def fits_arg(op: Op, arg: Any) -> bool:
    """Return whether an arg, with all its contents, has the type that its op entry declares."""
    if type(arg) is tuple and op.arg is tuple:
        return len(arg) <= MOST_AXES and all(
            _fits(i, int) or _fits(i, tuple[int, int]) for i in arg)
    return isinstance(arg, op.arg) and type(arg) is not bool and is_plain(arg)


def is_plain(value: Any) -> bool:
    """Return whether a value is a number, a short text, an op, a dtype, or a record or tuple of
    such."""
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
    """Return what is wrong with the size or op of a node, or ""."""
    if len(node.shape) > MOST_AXES or len(node.ranges) > MOST_AXES:
        return f"at most {MOST_AXES} axes, got {max(len(node.shape), len(node.ranges))}"
    if not is_shape(node.shape, max(node.dtype.itemsize, 1)):
        return f"a shape of less than 2**63 bytes, got {node.shape}"
    if node.op in _LEFT_OUT:
        return "a closed graph that calls no Python"
    return ""


def is_shape(shape: Any, itemsize: int) -> bool:
    """Return whether these are lengths of an array's axes."""
    return isinstance(shape, tuple | list) and len(shape) <= MOST_AXES and all(
        type(n) is int and 0 <= n < 1 << 62 for n in shape) and \
        math.prod([n or 1 for n in shape]) * itemsize < 1 << 63


# ---- graphs -----------------------------------------------------------------------------------


def check(function: UOp, number: Mapping[UOp, int], effort: Effort) -> None:
    """Check all nodes below a FUNCTION.

    Args:
        function: the root.
        number: the position of each of its nodes in the file.
        effort: the budget of checking steps.

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
    """Return the name of a node of a file for error messages."""
    return f"node {i} ({node.op.name})"


def _shared_fault(number: Mapping[UOp, int], effort: Effort) -> proved.NodeFault:
    """Charge for bodies that are traversed once for each node that has them; limit carried
    values."""
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
    """Return what is wrong with the KERNELs among some nodes, or with the operands of their
    CALLs."""
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
    """Return the first node that the FUNCTION does not depend on, or ""."""
    below = set(toposort([function], into_functions=True))
    return next((f"node {i}" for i, n in enumerate(nodes) if n not in below), "")
