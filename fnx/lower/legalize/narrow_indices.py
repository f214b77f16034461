"""Narrow index lines of a PROGRAM to 32 bits where bounds prove that they fit.

    before  FOR i = 0 .. 4096                   index
              p = ADDRESS(x, ADD(MUL(i, 300), ID THREAD))
              q = ADDRESS(y, MUL(i, 1 << 20))
    after   FOR i = 0 .. 4096                   int32
              p = ADDRESS(x, ADD(MUL(i, 300), ID THREAD))     int32
              q = ADDRESS(y, MUL(CAST i, 1 << 20))            index: 2**32 elements

Bounds propagate forward through the lines: a counter is bounded by its loop, group and thread
indices by their counts, an argument by its own bounds (run-time extents: ``Var.high``), data by its
type. In a kernel that is ``near``, all lines that do not depend on data fit in 32 bits, whatever
its arguments are. Each line is computed in the width that holds its own bounds and those of its
operands. If widths differ, a CAST follows the line that it widens or narrows.

>>> from fnx.core.ir import kernel_args
>>> i = UOp(ops.FOR, dtypes.index, (build.index_const(0), build.index_const(9)), 1)
>>> end = UOp(ops.ENDFOR, dtypes.void, (i,))
>>> group = kernel_args.ThreadGroup(0, 0, 64, 0, 0)
>>> print(narrow_indices(UOp(ops.PROGRAM, dtypes.void, (i, end), group)).src[0].dtype)
int32
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fnx.core.ir import build, dtypes, kernel_args, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp
from fnx.core.levels.spec_program import NON_INSTRUCTIONS
from fnx.core.rewriting.algebra import INTERVALS, Bounds, hull
from fnx.core.support.errors import KernelError
from fnx.core.support.target import Target


def narrow_indices(program: UOp) -> UOp:
    """Return the PROGRAM with each index line in the width that it needs."""
    bounds = bounds_of(program)
    return _IndexNarrower(bounds, program.arg).lines(program)


def check_index_width(program: UOp, target: Target) -> UOp:
    """Return the PROGRAM unchanged, for a target with 32-bit indices.

    Run-time arguments and data are taken at their value closest to 0: the device checks arguments
    and buffer sizes at each launch, and data-dependent indices are clamped.

    Raises:
        KernelError: a line exceeds 32 bits whatever the arguments and data are.
    """
    for node, bounds in bounds_of(program, nearest_zero=True).items():
        if not _fits_int32(bounds):
            raise KernelError(
                f"{target.name}: expected indices and loop lengths below 2**31, got up to "
                f"{bounds[1]}", loc=node.loc,
                hint="split the computation, or use a device with 64-bit integers")
    return program


def _fits_int32(bounds: Bounds) -> bool:
    low, high = dtypes.int32.limits
    return low <= bounds[0] and bounds[1] <= high


# ---- bounds -----------------------------------------------------------------------------------


def bounds_of(program: UOp, nearest_zero: bool = False) -> dict[UOp, Bounds]:
    """Return the smallest and the largest value of each index line and its operands.

    Args:
        program: a PROGRAM of threads.
        nearest_zero: take data, arguments and group counts at the value closest to 0.
    """
    bounds_by_line: dict[UOp, Bounds] = {}
    data_dependent: set[UOp] = set()  # lines whose bounds depend on data
    id_counts = {"GRID": 1 if nearest_zero else program.arg.groups, "THREAD": program.arg.threads}

    def held(low: int, high: int) -> Bounds:
        return (max(low, min(0, high)),) * 2 if nearest_zero else (low, high)

    def near(b: Bounds) -> Bounds:
        low, high = dtypes.int32.limits
        return (max(b[0], low), min(b[1], high)) if program.arg.index_fits_int32 else b

    def bounds(node: UOp) -> Bounds:
        cached = bounds_by_line.get(node)
        if cached is not None:
            return cached
        if node.op is ops.CONST:
            return (build.const_of(node),) * 2
        if node.op is ops.VAR:
            return near(held(node.arg.low, node.arg.high))
        if node.op is ops.ID:
            return near((0, max(0, id_counts[node.arg] - 1)))
        return held(*dtypes.index.limits)

    for node in program.src:
        if node.dtype is dtypes.index:
            row = _BOUNDS.get(node.op)
            if node.op is ops.CAST:
                of = node.src[0].dtype
                bounds_by_line[node] = held(*(of.limits if of.is_integer or of.is_bool else
                                              dtypes.index.limits))
            elif row is not None:
                operands = node.src[-2:] if node.op is ops.WHERE else node.src
                bounds_by_line[node] = row(*map(bounds, operands))
            if row is None or not data_dependent.isdisjoint(operands):
                data_dependent.add(node)
            else:
                bounds_by_line[node] = near(bounds_by_line[node])
        for s in node.src:
            if s.op in NON_INSTRUCTIONS and s.dtype is dtypes.index:
                bounds_by_line[s] = bounds(s)
    return bounds_by_line


def _right_shifts(a: Bounds, amount: Bounds) -> Bounds:
    if amount[0] != amount[1] or not 0 <= amount[0] < 64:
        return dtypes.index.limits
    return a[0] >> amount[0], a[1] >> amount[0]


_BOUNDS: dict[Op, Callable[..., Bounds]] = {
    **INTERVALS, ops.SHR: _right_shifts, ops.WHERE: hull,
    ops.FOR: lambda start, stop: (start[0], max(start[0], stop[1] - 1)),
}


# ---- lines ------------------------------------------------------------------------------------


class _IndexNarrower:
    """Rewrites lines in the widths that they need."""

    def __init__(self, bounds: Mapping[UOp, Bounds], group: kernel_args.ThreadGroup) -> None:
        self.bounds, self.group = bounds, group
        self.rewritten: dict[UOp, UOp] = {}   # line -> its rewritten form, in its own width
        self.cast: dict[UOp, UOp] = {}   # and in the other width
        self.out: list[UOp] = []
        self.plain: set[UOp] = set()           # lines that do not depend on memory
        self.alive: list[set[UOp]] = [set()]   # the plain lines of each open scope

    def lines(self, program: UOp) -> UOp:
        """Rewrite all lines in one pass.

        A CAST follows the line that it casts, since that is the scope in which others may need it.
        """
        cast_nodes = self._casts(program.src)
        for node in cast_nodes:
            if node.op in NON_INSTRUCTIONS:
                self.rewritten[node] = node
                self._add(self._cast(node))
        pending_casts: list[UOp] = []  # casts of a FOR and its PHIs, which must be consecutive
        for node in program.src:
            if node.op is not ops.PHI:
                pending_casts = self._add(*pending_casts)
            if node.op in (ops.FOR, ops.IF):
                self.alive.append(set())
            elif node.op in (ops.ENDFOR, ops.ENDIF):
                self.alive.pop()
            rewritten = self._line(node)
            if rewritten is not None:
                self._add(rewritten)
            if node in cast_nodes:
                pending_casts.append(self._cast(node))
            if node.op not in (ops.FOR, ops.PHI):
                pending_casts = self._add(*pending_casts)
        return program.replace(src=tuple(self.out))

    def _add(self, *lines: UOp) -> list[UOp]:
        """Emit lines, except duplicates of counters and constants.

        A 32-bit index may equal a 32-bit number of the user's program.
        """
        for line in lines:
            if line.op in ops.ELEMENTWISE and all(s.op is ops.FOR or s.op in NON_INSTRUCTIONS or
                                                  s in self.plain for s in line.src):
                if any(line in scope for scope in self.alive):
                    continue
                self.plain.add(line)
                self.alive[-1].add(line)
            self.out.append(line)
        return []

    def _is_32bit(self, node: UOp) -> bool:
        """Return whether the line computes in 32 bits."""
        return node.op is not ops.VAR and node in self.bounds and _fits_int32(self.bounds[node]) \
            and all(map(self._fits_operand, node.src))

    def _fits_operand(self, operand: UOp) -> bool:
        return operand.dtype is not dtypes.index or \
            operand in self.bounds and _fits_int32(self.bounds[operand])

    def _operand_widths(self, node: UOp) -> list[DType | None]:
        """Return the width in which a line takes each index operand."""
        if node.op in (ops.ADDRESS, ops.CAST, ops.SCRATCH) or node.dtype is dtypes.bool_:
            is_narrow = all(map(self._fits_operand, node.src))
        else:
            is_narrow = self._is_32bit(node)
        width = dtypes.int32 if is_narrow else dtypes.index
        return [width if s.dtype is dtypes.index and s.op is not ops.FOR or
                s.op is ops.FOR and node.op not in (ops.PHI, ops.ENDFOR, ops.BREAK)
                else None for s in node.src]

    def _width(self, node: UOp) -> DType:
        """Return the width of a rewritten line."""
        return dtypes.int32 if self._is_32bit(node) else dtypes.index

    def _casts(self, lines: Sequence[UOp]) -> dict[UOp, None]:
        """Return the lines that some use needs in the other width; constants have either."""
        return {s: None for node in lines for s, wanted in zip(node.src, self._operand_widths(node))
                if wanted not in (None, self._width(s))
                and s.op is not ops.CONST and s.op is not ops.ID}

    def _cast(self, node: UOp) -> UOp:
        line = self.rewritten[node]
        target = dtypes.index if line.dtype is dtypes.int32 else dtypes.int32
        self.cast[node] = UOp(ops.CAST, target, (line,))
        return self.cast[node]

    def _operand(self, node: UOp, wanted: DType | None) -> UOp:
        if wanted is not None and node.op is ops.CONST:
            return build.const(build.const_of(node), wanted)
        if wanted is not None and node.op is ops.ID:
            return node.replace(dtype=wanted)
        line = self.rewritten.get(node, node)
        return line if wanted is None or line.dtype is wanted else self.cast[node]

    def _line(self, node: UOp) -> UOp | None:
        """Rewrite a line over its rewritten operands; None if it reduces to one of them."""
        src = tuple(map(self._operand, node.src, self._operand_widths(node)))
        dtype = self._width(node) if node in self.bounds else node.dtype
        if node.op is ops.CAST and src[0].dtype is dtype:
            self.rewritten[node] = src[0]
            return None
        rewritten = node.with_operands(src) if dtype is node.dtype else \
            node.replace(dtype=dtype, src=src)
        self.rewritten[node] = rewritten
        return rewritten
