"""Bounds checks for ``config.check_index``: one fault number for each indexed access.

A fault is the largest index out of bounds, or ``NO_FAULT`` if all are in bounds. Graphs and
user-written kernels compute faults along with their results; the caller inspects them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.op import max_value, min_value
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import Location, OutOfBoundsError
from fnx.core.support.record import Record

NO_FAULT = min_value(dtypes.int32)
_NAME_PREFIX = "fault of "


class BoundsCheck(Record):
    """A checked index into an axis of ``length``.

    ``operation`` names the operation that reads or writes; the user's line is ``loc``, or one of
    the lines of ``node``. ``wraps``: negative indices from -length on count from the end.
    ``loops``: the enclosing loops, innermost first, whose iteration numbers follow the fault.
    """

    operation: str
    axis: int
    length: int
    loc: Location | None = None
    wraps: bool = False
    node: UOp | None = None
    loops: tuple[str, ...] = ()

    def raise_for(self, fault: int, *iterations: int) -> None:
        """Raise OutOfBoundsError if the fault number is one."""
        if fault not in (NO_FAULT, 0):  # 0 is in bounds; a device that computes nothing returns 0
            low = -self.length if self.wraps else 0
            where = "".join([f" in iteration {t} of {name or 'a loop'}"
                             for t, name in zip(iterations, self.loops)])
            raise OutOfBoundsError(
                f"{self.operation}: expected {low} <= index < {self.length} along axis "
                f"{self.axis}, "
                f"got {fault}{where}", loc=self.loc,
                locs=self.node.locs if self.node is not None else (),
                hint="correct the index; without config.check_index a read is clamped to the "
                     "nearest element and a write is dropped")

    @property
    def name(self) -> str:
        """The check encoded as the name of a kernel buffer."""
        return f"{_NAME_PREFIX}{self.operation} {self.axis} {self.length}"


def parse_check(name: str, loc: Location | None) -> BoundsCheck | None:
    """Decode the check from the name of a buffer; None if it encodes none."""
    if not name.startswith(_NAME_PREFIX):
        return None
    what, axis, length = name.removeprefix(_NAME_PREFIX).rsplit(" ", 2)
    return BoundsCheck(what, int(axis), int(length), loc)


def count_faults(kernel: UOp) -> int:
    """Return how many outputs of a user-written kernel are faults."""
    refs = {store.src[0].src[0] for store in kernel.src}
    return sum(ref.arg.name.startswith(_NAME_PREFIX) for ref in refs)


def bounds_fault(i: UOp, length: int, reported: UOp | None = None) -> UOp:
    """Return the index (or the value ``reported`` for it) where it is out of bounds, else
    ``NO_FAULT``."""
    inside = build.lt(i, build.const_like(i, length))
    if i.dtype.kind != "uint":
        inside = build.and_(build.le(build.const_like(i, 0), i), inside)
    value = i if reported is None else reported
    value = build.maximum(value,
                          build.const_like(value,
                                           0 if value.dtype.kind == "uint" else NO_FAULT + 1))
    value = build.minimum(value, build.const_like(value, max_value(dtypes.int32)))
    value = build.cast(value, dtypes.int32)
    return build.where(inside, build.const_like(value, NO_FAULT), value)


def raise_first_fault(checks: Iterable[BoundsCheck], faults: Iterable[Iterable[int]]) -> None:
    """Raise for the first fault.

    Each item of ``faults`` is a fault, followed by the iteration numbers of its enclosing loops.
    """
    for check, values in zip(checks, faults, strict=True):
        check.raise_for(*map(int, values))


def access_faults(node: UOp) -> Iterator[tuple[UOp, BoundsCheck]]:
    """Yield the fault of each index of a GATHER or SCATTER, and its check."""
    x, *indices = node.src
    access = "read"
    if node.op is ops.SCATTER:
        access = "write"
        del indices[-1]
    # batch axes that batching put in front
    n_batch_axes = sum(i.op is ops.STOP_GRADIENT for i in indices)
    for axis, i in zip(node.arg.axes, indices):
        if not math.prod(i.shape) or i.op is ops.STOP_GRADIENT:
            continue
        n = x.shape[axis]
        i = _strip_clamp(i, n)
        written_index = _strip_wrap(i)
        value = bounds_fault(i, n, written_index)
        check = BoundsCheck(access, axis - n_batch_axes, n, None, written_index is not None, node)
        yield build.reduce(value, ops.MAX, range(len(value.shape))), check


def _strip_clamp(i: UOp, n: int) -> UOp:
    """Return e of ``min(max(e, 0), n - 1)``: a read of one element clamps its index."""
    movements, inner = _strip_movements(i)
    for op, bound in ((ops.MIN, n - 1), (ops.MAX, 0)):
        if inner.op is not op or build.const_like(inner, bound) not in inner.src:
            return i
        inner = next((s for s in inner.src if s is not build.const_like(inner, bound)),
                     inner.src[0])  # else the index is the bound
    return _replay_movements(movements, inner)


def _strip_wrap(i: UOp) -> UOp | None:
    """Return e of ``where(e < 0, e + n, e)``: the index as the user wrote it."""
    movements, i = _strip_movements(i)
    if i.op is not ops.WHERE or i.src[1].op is not ops.ADD or i.src[2] not in i.src[1].src:
        return None
    return _replay_movements(movements, i.src[2])


def _strip_movements(node: UOp) -> tuple[list[UOp], UOp]:
    movements = []
    while node.op in (ops.EXPAND, ops.RESHAPE):
        movements.append(node)
        node = node.src[0]
    return movements, node


def _replay_movements(movements: Sequence[UOp], node: UOp) -> UOp:
    for m in reversed(movements):
        node = m.replace(src=(node, *m.src[1:]))
    return node
