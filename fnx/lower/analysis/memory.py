"""Memory planning: assign arena offsets to intermediate buffers by their live ranges.

    before  steps  a = f(x); b = g(a); c = h(b)         a, b, c: 4 KB each
    after   a at 0, b at 4096, c at 0                   arena: 8 KB

Two buffers share bytes only if the last use of one comes before the first use of the other.
Greedy by size, largest first: at most a few percent above the peak of live bytes on the graphs
seen so far, and deterministic: equal steps give equal plans. This takes time quadratic in the
number of buffers, so above a limit buffers are placed in order of first use, best fit.

>>> plan_arena([("a",), ("a", "b"), ("b", "c")], {"a": 4096, "b": 4096, "c": 4096})
({'a': 0, 'b': 4096, 'c': 0}, 8192)

Before a result is written, its memory holds intermediate buffers:

    before  steps  a = f(x); b = g(a); out = h(b)       arena: 8 KB
    after   a in out, b at 0                            arena: 4 KB
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping, Sequence

from fnx.core.ir import build, build_calls, dtypes, kernel_args, op_args, ops
from fnx.core.ir.uop import UOp, rebuild
from fnx.core.rewriting.algebra import evaluate
from fnx.core.support.record import Record

GREEDY_LIMIT = 512  # most buffers that are placed by size
ALIGNMENT = 64  # bytes: a vector register and a cache line


def nbytes_of(node: UOp) -> int:
    """Return the bytes of the elements of a node."""
    return math.prod(node.shape) * node.dtype.itemsize


def size_of(node: UOp) -> int:
    """Return the bytes of a buffer, rounded up to the alignment."""
    return max(-(-nbytes_of(node) // ALIGNMENT), 1) * ALIGNMENT


class View(Record):
    """A byte range of a node's buffer: in iteration i of a loop it begins at start + i*step.

    ``odd``: the node whose buffer is used in odd iterations, if that is another one;
    ``alignment_limit``: the start is only assumed to be a multiple of this (0: of all that is
    known).
    """

    node: UOp
    nbytes: int
    start: int = 0
    step: int = 0
    odd: UOp | None = None
    alignment_limit: int = 0

    @property
    def nodes(self) -> tuple[UOp, ...]:
        return (self.node,) if self.odd is None else (self.node, self.odd)

    def slot(self, get_slot: Callable[[UOp], UOp]) -> UOp:
        """Return it as a SLOT or SWAP; ``get_slot`` maps a node to the SLOT of its buffer."""
        even, *odd = [self._part(get_slot(n).arg) for n in self.nodes]
        return build_calls.swap(even, odd[0], 0) if odd else even

    def _part(self, buffer_slot: kernel_args.Slot) -> UOp:
        return build_calls.slot(buffer_slot.kind, buffer_slot.index,
                                buffer_slot.offset + self.start, self.nbytes,
                                (self.step,))

    def alignment(self, get_alignment: Callable[[UOp], int]) -> int:
        """Return the alignment of its address in all iterations; ``get_alignment`` gives that of a
        buffer."""
        return math.gcd(*map(get_alignment, self.nodes), self.start, self.step,
                        self.alignment_limit)


LaunchOperand = UOp | View  # operand of a launch: a whole buffer, or a part of one


def nodes_of(operands: Iterable[LaunchOperand]) -> list[UOp]:
    """Return the nodes whose buffers hold the operands."""
    return [n for o in operands for n in (o.nodes if isinstance(o, View) else (o,))]


def alignment_of(operand: LaunchOperand, get_alignment: Callable[[UOp], int]) -> int:
    """Return the alignment of an operand's address; ``get_alignment`` gives that of a node's
    buffer."""
    return operand.alignment(get_alignment) if isinstance(operand, View) else get_alignment(operand)


def set_alignments(kernel: UOp, alignments: Sequence[int]) -> UOp:
    """Set the alignments of the KERNEL's buffers in its REFs, which are part of its cache key."""
    if set(alignments) <= {ALIGNMENT}:
        return kernel

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is not ops.REF:
            return None
        arg = node.arg
        return node.replace(src=src, arg=arg.replace(alignment=alignments[arg.slot]))
    return rebuild([kernel], visit)[0]


def temporary_buffer(ref: UOp, scalars: Sequence[UOp]) -> UOp:
    """Return a new buffer for what a GLOBAL stage packs; ``scalars`` are the lengths of its REF."""
    lengths: dict[UOp | int, int] = {i: build.const_of(s) for i, s in enumerate(scalars)
                                     if s.dtype is dtypes.index}
    shape = tuple([evaluate(d, lengths) for d in ref.src])
    return UOp(ops.BUFFER, ref.dtype, (), op_args.Buffer(object(), shape))


def plan_arena(uses: Sequence[Sequence[UOp]],
               sizes: Mapping[UOp, int]) -> tuple[dict[UOp, int], int]:
    """Return the offsets of the buffers in ``sizes``, and the bytes of the arena.

    Args:
        uses: for each step, the buffers it reads or writes.
        sizes: the bytes of each buffer to place.
    """
    first, last = _live_steps([[node for node in operands if node in sizes] for operands in uses])
    if len(first) > GREEDY_LIMIT:
        return _plan_best_fit(first, last, sizes)
    allocated: list[_Allocation] = []
    offsets: dict[UOp, int] = {}
    for node in sorted(first, key=lambda n: -sizes[n]):
        live = first[node], last[node]
        offsets[node] = _free_offset(allocated, sizes[node], *live)
        insort(allocated, (offsets[node], offsets[node] + sizes[node], *live))
    return offsets, max((end for _, end, _, _ in allocated), default=0)


def place_in_results(uses: Sequence[Sequence[UOp]], sizes: Mapping[UOp, int],
                     results: Iterable[UOp]) -> dict[UOp, tuple[UOp, int]]:
    """Place buffers in the memory of results that are written later, largest first.

    Args:
        uses: for each step, the buffers it reads or writes.
        sizes: the bytes of each buffer that may be placed.
        results: those whose memory may hold others before their first use.

    Returns:
        For each placed buffer, the result and the offset in its memory.

    >>> x, w = (build.param(i, dtypes.float32, (8,)) for i in range(2))
    >>> a, b, out = build.neg(x), build.exp(x), build.add(x, w)
    >>> place_in_results([(a,), (a, b), (b, out)], {a: 32, b: 32}, [out]) == {a: (out, 0)}
    True
    """
    first, last = _live_steps(uses)
    # their exact lengths: the memory of a result may be a row of a larger one
    regions = [(nbytes_of(node), first[node], node, list[_Allocation]())
               for node in results if first.get(node, 0) > 0]
    regions.sort(key=lambda region: -region[0])
    placed: dict[UOp, tuple[UOp, int]] = {}
    # of equal ones the last first: the ones before the result's operand, of a chain every other
    for node in sorted([n for n in first if n in sizes], key=lambda n: (-sizes[n], -last[n])):
        for capacity, until, result, allocated in regions:
            if nbytes_of(node) > capacity:
                break
            if last[node] >= until or capacity % node.dtype.itemsize:
                continue  # in use, or its end would cut an element
            live = first[node], last[node]
            start = _free_offset(allocated, sizes[node], *live)
            if start + nbytes_of(node) <= capacity:
                placed[node] = result, start
                insort(allocated, (start, start + sizes[node], *live))
                break
    return placed


def _live_steps(uses: Sequence[Sequence[UOp]]) -> tuple[dict[UOp, int], dict[UOp, int]]:
    """Return the first and the last step that use each buffer."""
    first: dict[UOp, int] = {}
    last: dict[UOp, int] = {}
    for step, operands in enumerate(uses):
        for node in operands:
            first.setdefault(node, step)
            last[node] = step
    return first, last


_Allocation = tuple[int, int, int, int]  # offset, end, first step, last step


def _free_offset(allocated: list[_Allocation], size: int, first: int, last: int) -> int:
    """Return the lowest offset with ``size`` bytes that are free from a first to a last step."""
    return _lowest_gap([p for p in allocated if p[2] <= last and p[3] >= first], size)


def _lowest_gap(allocated: list[_Allocation], size: int) -> int:
    """Return the lowest offset with ``size`` free bytes; ``allocated`` is sorted by offset."""
    start = 0
    for offset, end, _, _ in allocated:
        if offset - start >= size:
            break
        if end > start:
            start = end
    return start


def _plan_best_fit(first: Mapping[UOp, int], last: Mapping[UOp, int], sizes: Mapping[UOp, int]
                   ) -> tuple[dict[UOp, int], int]:
    """Place each buffer at its first use; ``first`` is in that order."""
    gaps = _FreeList()
    last_used_at: dict[int, list[UOp]] = {}
    for node, step in last.items():
        last_used_at.setdefault(step, []).append(node)
    offsets: dict[UOp, int] = {}
    freed_until = 0
    for step, first_used in itertools.groupby(first, key=first.__getitem__):
        for past_step in range(freed_until, step):
            for node in last_used_at.pop(past_step, ()):
                gaps.free(offsets[node], sizes[node])
        freed_until = step
        for node in sorted(first_used, key=lambda n: -sizes[n]):
            offsets[node] = gaps.allocate(sizes[node])
    return offsets, gaps.end


class _FreeList:
    """Free list: the free bytes below ``end``."""

    def __init__(self) -> None:
        self.end = 0
        self.by_size: list[tuple[int, int]] = []  # (size, start)
        self.size: dict[int, int] = {}  # by start
        self.start: dict[int, int] = {}  # by end

    def allocate(self, size: int) -> int:
        """Allocate ``size`` bytes: best fit, else at the end."""
        position = bisect_left(self.by_size, (size, 0))
        if position < len(self.by_size):
            gap_size, start = self.by_size[position]
        else:
            start = self.start.get(self.end, self.end)
            gap_size = self.end - start
            self.end = start + size
        if gap_size:
            self._drop(start)
        if gap_size > size:
            self._insert(start + size, gap_size - size)
        return start

    def free(self, start: int, size: int) -> None:
        """Free bytes and coalesce them with neighboring gaps."""
        before = self.start.get(start)
        if before is not None:
            size += self.size[before]
            self._drop(before)
            start = before
        after = self.size.get(start + size)
        if after is not None:
            self._drop(start + size)
            size += after
        self._insert(start, size)

    def _insert(self, start: int, size: int) -> None:
        self.size[start], self.start[start + size] = size, start
        insort(self.by_size, (size, start))

    def _drop(self, start: int) -> None:
        size = self.size.pop(start)
        del self.start[start + size]
        del self.by_size[bisect_left(self.by_size, (size, start))]
