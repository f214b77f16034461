"""Checks beyond the spec that make an untrusted graph as safe as one traced here.

Arg types come from the annotations of the records in core/ir, so that each field of each record is
checked. Sizes are bounded by those of arrays, and checking steps by the size of the file: no check
traverses a shared body once per user of it. Kernels are held to the same rules that tracing applies
to user-written ones (transforms/kernel_lang/verify.py).
"""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from fnx.core.ir import dtypes, op_args, ops
from fnx.core.ir.cache import memoized
from fnx.core.ir.op import Op
from fnx.core.ir.tiling import Transform
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels import spec
from fnx.core.support.errors import CheckpointError
from fnx.core.support.record import Record, values
from fnx.transforms.kernel_lang import verify

MAX_NAME_LENGTH = 1000  # characters of a name
MAX_AXES = 64  # as in NumPy; for a kernel node, ranges that it depends on
MAX_CARRIED_VALUES = 1024  # loop-carried values of kernels
_BASE_STEPS, _STEPS_PER_BYTE = 1 << 22, 64  # checks of about 100 ns each: per file, per byte of it
_FORBIDDEN_OPS = (ops.BUFFER, ops.LEAF, ops.CALLBACK, ops.ALL_GATHER, ops.AXIS_INDEX,
                  ops.PVARY_LIKE, ops.PSUM_LIKE, ops.COLLECTIVE)
DECODE_ERRORS = (LookupError, ValueError, TypeError, AttributeError, AssertionError, RecursionError,
                 ArithmeticError)  # by code that reads malformed data


class CheckBudget:
    """The remaining steps that the checks of a file may take; ``at``: the node that is checked, and
    its position."""

    def __init__(self, nbytes: int) -> None:
        self._left = _BASE_STEPS + _STEPS_PER_BYTE * nbytes
        self.at: tuple[int, UOp] | None = None

    def spend(self, steps: int) -> None:
        """Take steps from the budget.

        Raises:
            CheckpointError: it is exhausted.
        """
        self._left -= steps
        if self._left < 0:
            name = "nodes" if self.at is None else describe_node(*self.at)
            raise CheckpointError(f"{name}: expected a graph whose checks take time linear in the "
                                  f"file size, got more", hint="export it in parts")


# ---- args -------------------------------------------------------------------------------------


def fits_arg(op: Op, arg: Any) -> bool:
    """Return whether an arg, with all its contents, has the type that its op entry declares."""
    if type(arg) is tuple and op.arg is tuple:
        return len(arg) <= MAX_AXES and all(
            _has_type(i, int) or _has_type(i, tuple[int, int]) for i in arg)
    if op is ops.CONST:  # bits; those of a complex128 are 128
        return type(arg) is int and -1 << 63 <= arg < 1 << 128
    return isinstance(arg, op.arg) and type(arg) is not bool and is_plain(arg)


def is_plain(value: Any) -> bool:
    """Return whether a value is a number, a short text, an op, a dtype, or a record or tuple of
    such."""
    if isinstance(value, Record):
        return all(_has_type(field, hint)
                   for field, hint in zip(values(value), _field_types(type(value))))
    if type(value) is tuple:
        return all(map(is_plain, value))
    return value is None or type(value) in (bool, float) or isinstance(value, Op | dtypes.DType) \
        or _has_type(value, int) or _has_type(value, str)


@memoized
def _field_types(record: type[Record]) -> tuple[Any, ...]:
    hints = typing.get_type_hints(record)
    if record is op_args.Call:
        hints["schedule"] = tuple[Transform, ...]
    return tuple([hints[name] for name in record._names])


def _has_type(value: Any, hint: Any) -> bool:
    if hint in (Any, Hashable):
        return value is None
    kind, parameters = typing.get_origin(hint), typing.get_args(hint)
    if kind is types.UnionType:
        return any(_has_type(value, t) for t in parameters)
    if kind is tuple:
        item_types = parameters[:1] * len(value) \
            if type(value) is tuple and parameters[-1] is Ellipsis else parameters
        return type(value) is tuple and len(value) == len(item_types) and \
            all(map(_has_type, value, item_types))
    if hint is int:
        return type(value) is int and -1 << 63 <= value < 1 << 64
    if hint is str:
        return type(value) is str and len(value) <= MAX_NAME_LENGTH and value.isprintable()
    return isinstance(value, Record) and is_plain(value) and isinstance(value, hint) \
        if isinstance(hint, type) and issubclass(hint, Record) else type(value) is hint


def size_fault(node: UOp) -> str:
    """Return what is wrong with the size or op of a node, or ""."""
    if len(node.shape) > MAX_AXES or len(node.ranges) > MAX_AXES:
        return f"at most {MAX_AXES} axes, got {max(len(node.shape), len(node.ranges))}"
    if not is_shape(node.shape, max(node.dtype.itemsize, 1)):
        return f"a shape of less than 2**63 bytes, got {node.shape}"
    if node.op in _FORBIDDEN_OPS:
        return "a closed graph that calls no Python"
    return ""


def is_shape(shape: Any, itemsize: int) -> bool:
    """Return whether these are lengths of an array's axes."""
    return isinstance(shape, tuple | list) and len(shape) <= MAX_AXES and all(
        type(n) is int and 0 <= n < 1 << 62 for n in shape) and \
        math.prod([n or 1 for n in shape]) * itemsize < 1 << 63


# ---- graphs -----------------------------------------------------------------------------------


def check(function: UOp, positions: Mapping[UOp, int], budget: CheckBudget) -> None:
    """Check all nodes below a FUNCTION.

    Args:
        function: the root.
        positions: the position of each of its nodes in the file.
        budget: the budget of checking steps.

    Raises:
        CheckpointError: names the node.
    """
    fault = (_sharing_fault(positions, budget) or _spec_fault(function) or
             kernel_fault(positions, budget))
    if fault is not None:
        node, expected, got = fault
        raise CheckpointError(f"{describe_node(positions.get(node, -1), node)}: expected "
                              f"{expected}, got "
                              f"{got[:200]}", hint="export it again, with this version of fnx")


def describe_node(i: int, node: UOp) -> str:
    """Return the name of a node of a file for error messages."""
    return f"node {i} ({node.op.name})"


def _sharing_fault(positions: Mapping[UOp, int], budget: CheckBudget) -> verify.NodeFault:
    """Charge for bodies that are traversed once for each node that has them; limit carried
    values."""
    n_carried = 0
    for node, i in positions.items():
        budget.at = i, node
        if node.op in (ops.FUNCTION, ops.KERNEL):
            budget.spend(4 * len(toposort(node.src, stop=lambda n: n.op is ops.KERNEL)))
        elif node.op is ops.LOOP:
            n_carried += len(node.arg.outs)
        budget.spend(len(node.src))
    if n_carried > MAX_CARRIED_VALUES:
        return next(n for n in positions if n.op is ops.LOOP), \
            f"at most {MAX_CARRIED_VALUES} loop-carried values", str(n_carried)
    return None


def _spec_fault(function: UOp) -> verify.NodeFault:
    for level, rule, node in spec.rules([function], "tensor"):
        try:
            holds = rule.holds(node)
        except DECODE_ERRORS:
            holds = False
        if not holds:
            return node, f"{rule.expected.replace('OP', node.op.name)} ({level} level)", \
                f"{node} with operands {', '.join(map(repr, node.src[:4])) or 'none'}"
    return None


def kernel_fault(positions: Mapping[UOp, int], budget: CheckBudget) -> verify.NodeFault:
    """Return what is wrong with the KERNELs among some nodes, or with the operands of their
    CALLs."""
    fault: verify.NodeFault = None
    for node, i in positions.items():
        budget.at = i, node
        if node.op is ops.KERNEL:
            fault = verify.find_fault(node, budget.spend)
        elif node.op is ops.CALL and node.src[0].op is ops.KERNEL:
            budget.spend(positions[node.src[0]])
            fault = verify.find_operand_fault(node, node.arg.outs)
        if fault is not None:
            return fault
    return None


def unused_fault(nodes: Sequence[UOp], function: UOp) -> str:
    """Return the first node that the FUNCTION does not depend on, or ""."""
    below = set(toposort([function], into_functions=True))
    return next((f"node {i}" for i, n in enumerate(nodes) if n not in below), "")
