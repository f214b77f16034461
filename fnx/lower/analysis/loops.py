"""The loops of a kernel while a schedule is applied: names, splits, order and kinds.

    loops (m, n)              split("m", 14, "mo", "mi"), order("mo", "n", "mi"), unroll("mi")
    loops (mo, n, mi)         m == mo * 14 + mi, where it is < M; mi is UNROLL

The kernel itself is not touched here: ``value`` is the expression that replaces a range, and
``guards`` the conditions under which it is in bounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.accessors import bound_ranges, extent
from fnx.core.ir.expr import Expr, minimum
from fnx.core.ir.matrix_units import UNITS, MatrixUnit
from fnx.core.ir.tiling import (
    Bind,
    Collect,
    Order,
    Parallel,
    Split,
    Subtotal,
    Tensorize,
    Transform,
    Unroll,
    Vectorize,
)
from fnx.core.ir.uop import UOp, toposort
from fnx.core.rewriting import symbolic
from fnx.core.support.errors import KernelError
from fnx.core.support.range_kinds import REPLICATED_KINDS


def name_of(range_: UOp) -> str:
    """Return a range's name; a range without one is called r and its id."""
    return range_.arg.name or f"r{range_.arg.id}"


def ranges_of(kernel: UOp) -> list[UOp]:
    """Return all ranges: those of ``order``, outermost first, then the others in topological
    order."""
    position = {id: i for i, id in enumerate(kernel.arg.order)}
    ranges = [n for n in toposort(kernel.src) if n.op is ops.RANGE]
    return sorted(ranges, key=lambda r: position.get(r.arg.id, len(position)))


def quote_names(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "none"


class ScheduledLoop:
    """A range of the kernel, or a loop made by a split. ``parts`` is (outer, inner) once split;
    ``carries`` means that a LOOP runs over it, so it stays as it is."""

    __slots__ = ("name", "extent", "kind", "carries", "parts", "final_range", "_whole")

    def __init__(self, name: str, extent: UOp, kind: str = "SEQ", carries: bool = False) -> None:
        self.name, self.extent, self.kind, self.carries = name, extent, kind, carries
        self.parts: tuple[ScheduledLoop, ScheduledLoop] | None = None
        self.final_range: UOp | None = None  # its RANGE in the tiled kernel; a CONST 0 for extent 1
        self._whole: UOp | None = None  # the cached value of its parts

    def split(self, factor: int, outer: str, inner: str) -> tuple[ScheduledLoop, ScheduledLoop]:
        """Split into two loops of these names; extents round up."""
        count = (Expr(self.extent) + (factor - 1)) // factor
        self.parts = (ScheduledLoop(outer, symbolic.simplify(count.node)),
                      ScheduledLoop(inner, build.index_const(factor)))
        return self.parts

    def leaves(self) -> Iterator[ScheduledLoop]:
        """Yield the loops that it became, outer before inner."""
        if self.parts is None:
            yield self
        else:
            for part in self.parts:
                yield from part.leaves()

    def ranges(self) -> list[UOp]:
        """Return the RANGEs that it became in the tiled kernel."""
        return [f for leaf in self.leaves() if (f := leaf.final_range) is not None
                and f.op is ops.RANGE]

    def value(self) -> UOp:
        """Return the expression that replaces it in the tiled kernel."""
        if self.parts is None:
            assert self.final_range is not None
            return self.final_range
        if self._whole is None:
            outer, inner = self.parts
            combined = Expr(outer.value()) * Expr(inner.extent) + Expr(inner.value())
            self._whole = symbolic.simplify(combined.node)
        return self._whole

    def clamped(self) -> UOp:
        """Return the value, clamped to the last one in bounds. If only loops over whole parts round
        up, clamp to the last part, so that neighbors in it stay neighbors."""
        if next(self.guards(), None) is None or self.parts is None:
            return self.value()
        outer, inner = self.parts
        is_even = symbolic.simplify(build.mul(outer.extent, inner.extent)) is self.extent
        if is_even and next(inner.guards(), None) is None:
            combined = Expr(outer.clamped()) * Expr(inner.extent) + Expr(inner.value())
        else:
            combined = minimum(Expr(self.value()), Expr(self.extent) - 1)
        return symbolic.simplify(combined.node)

    def shift_tail(self) -> tuple[UOp, UOp] | None:
        """Return (value, condition) for unrolled iterations whose last part rounds up: the last
        part is shifted back to the end, where its iterations stay neighbors, and the condition
        holds unless an earlier part has computed them. None if this does not apply.

        Thus the last iterations, too, share loads with one another if terms of a sum are unrolled
        with them; clamping would make all but one of them equal.

            before  4 * o + u              u UNROLL 4, of 59
            after   min(4 * o, 55) + u     if 4 * o + (3 - u) < 59
        """
        if self.parts is None:
            return None
        outer, inner = self.parts
        if inner.kind != "UNROLL" or inner.parts or outer.parts or self.extent.op is not ops.CONST:
            return None
        total, count = build.const_of(self.extent), build.const_of(inner.extent)
        if total < count or total % count == 0:
            return None
        base, offset = Expr(outer.value()) * count, Expr(inner.value())
        return (symbolic.simplify((minimum(base, base.like(total - count)) + offset).node),
                symbolic.simplify((base + (count - 1) - offset < total).node))

    def guards(self) -> Iterator[UOp]:
        """Yield the conditions under which it is in bounds: one for each split that rounds up."""
        if self.parts is None:
            return
        condition = symbolic.simplify((Expr(self.value()) < Expr(self.extent)).node)
        if condition.op is not ops.CONST:
            yield condition
        for part in self.parts:
            yield from part.guards()

    def digits(self, index: UOp) -> list[UOp]:
        """Return the indices of its leaves (those with a RANGE) when it has the value ``index``."""
        if self.parts is None:
            assert self.final_range is not None
            return [index] if self.final_range.op is ops.RANGE else []
        outer, inner = self.parts
        position, length = Expr(index), Expr(inner.extent)
        return [*outer.digits(symbolic.simplify((position // length).node)),
                *inner.digits(symbolic.simplify((position % length).node))]


class Loops:
    """All loops of a kernel. ``leaves`` are in loop order; each iteration of a loop in
    ``blocked_sums`` is summed by itself (blocked summation); loops in ``units`` belong to a matrix
    unit."""

    def __init__(self, kernel: UOp) -> None:
        self.of: dict[UOp, ScheduledLoop] = {}
        self.leaves: dict[str, ScheduledLoop] = {}
        self.blocked_sums: set[ScheduledLoop] = set()
        # of the loops over terms of a register word: the unit, and its loop over words
        self.units: dict[ScheduledLoop, tuple[MatrixUnit, ScheduledLoop | None]] = {}
        carried_ranges = {bound_ranges(n)[0] for n in toposort(kernel.src) if n.op is ops.LOOP}
        for r in ranges_of(kernel):
            name = name_of(r)
            if name in self.leaves:
                raise KernelError(f"expected ranges of different names, got two named {name!r}")
            self.of[r] = self.leaves[name] = ScheduledLoop(
                name, extent(r), r.arg.kind, r in carried_ranges)

    def apply(self, schedule: Iterable[Transform]) -> None:
        """Apply splits, orders and kinds in sequence."""
        for step in schedule:
            if isinstance(step, Split):
                self._split(step)
            elif isinstance(step, Order):
                self._order(step)
            elif isinstance(step, Subtotal):
                self.blocked_sums.add(self._leaf(step.range, step))
            elif isinstance(step, Tensorize):
                loop = self._leaf(step.range, step)
                words = None if step.words is None else self._leaf(step.words, step)
                self.units[loop] = self._unit(step), words
            elif isinstance(step, Parallel | Vectorize | Unroll | Bind):
                self._kind(step)
            elif isinstance(step, Collect):
                self._check_rolled(step)

    def _leaf(self, name: str, step: Transform) -> ScheduledLoop:
        if name not in self.leaves:
            parts = [repr(leaf) for leaf in self.leaves if leaf[:-1] == name]  # it was split
            raise KernelError(f"{step}: expected one of the ranges {quote_names(self.leaves)}; "
                              f"got {name!r}",
                              hint=f"use {' or '.join(parts)}" if parts else
                              "give the range this name in the kernel: k.range(n, name)")
        if self.leaves[name].carries and not isinstance(step, Order):
            raise KernelError(f"{step}: expected a range without carried values, got {name!r}",
                              hint="its iterations are sequential; tile the ranges around it")
        return self.leaves[name]

    def _check_rolled(self, step: Collect) -> None:
        if self._leaf(step.range, step).kind != "UNROLL":
            raise KernelError(f"{step}: expected a range that is unrolled",
                              hint=f"unroll({step.range!r}) before")

    def _unit(self, step: Tensorize) -> MatrixUnit:
        """Return the unit that multiplies along a loop, whose extent is the terms of a register
        word."""
        unit, loop = UNITS[step.unit], self.leaves[step.range]
        if symbolic.bounds(loop.extent) != (unit.terms_per_word, unit.terms_per_word):
            raise KernelError(f"{step}: expected a loop over the {unit.terms_per_word} terms of a "
                              "word",
                              hint=f"split({step.range!r}, {unit.terms_per_word}), and name the "
                                   "inner "
                              "part")
        words = 1 if step.words is None else symbolic.bounds(self.leaves[step.words].extent)[1]
        if words != unit.words_per_k:
            raise KernelError(f"{step}: expected a loop over {unit.words_per_k} words, got {words}",
                              hint="split the loop outside of the terms, and name its inner part")
        return unit

    def _split(self, step: Split) -> None:
        loop = self._leaf(step.range, step)
        if loop.kind != "SEQ":
            raise KernelError(f"{step}: expected a plain loop, got one that is {loop.kind}",
                              hint="split first, then name the part to vectorize or unroll")
        parts = loop.split(step.factor, step.outer, step.inner)
        if loop in self.blocked_sums:
            self.blocked_sums.remove(loop)
            self.blocked_sums.add(parts[1])
        leaves: dict[str, ScheduledLoop] = {}
        for name, leaf in self.leaves.items():
            for piece in parts if leaf is loop else (leaf,):
                if piece.name in leaves or (leaf is loop and piece.name != name
                                            and piece.name in self.leaves):
                    raise KernelError(f"{step}: expected new names for the parts, got "
                                      f"{piece.name!r}, which is there already")
                leaves[piece.name] = piece
        self.leaves = leaves

    def _order(self, step: Order) -> None:
        for name in step.names:
            self._leaf(name, step)
        if sorted(step.names) != sorted(self.leaves):
            raise KernelError(f"{step}: expected each of {quote_names(self.leaves)} once",
                              hint="name all ranges, from the outermost to the innermost")
        self.leaves = {name: self.leaves[name] for name in step.names}

    def _kind(self, step: Parallel | Vectorize | Unroll | Bind) -> None:
        loop = self._leaf(step.range, step)
        if loop.kind != "SEQ":
            raise KernelError(f"{step}: expected a plain loop, got one that is {loop.kind}",
                              hint="a loop is one of parallel, vectorized and unrolled: "
                                   f"split({step.range!r}, 16) first, then name the outer part "
                                   "in one and the inner part in the other")
        if step.kind in REPLICATED_KINDS and loop.extent.op is not ops.CONST:
            raise KernelError(f"{step}: expected a range whose extent is a number",
                              hint=f"split it: split({step.range!r}, 16), then name the inner part")
        loop.kind = step.kind

    def levels(self, ranges: Iterable[UOp]) -> list[list[UOp]]:
        """Group the loops of a sum's ranges by the partial sums that they make: the loops inside of
        a loop in ``blocked_sums`` make a sum of their own. Innermost first; lanes and unrolled
        loops belong to the outermost."""
        sum_loops = [leaf for r in ranges for leaf in self.of[r].leaves()]
        positions = {loop: i for i, loop in enumerate(self.leaves.values())}
        partial_sums: list[list[UOp]] = [[]]
        for loop in sorted(sum_loops, key=positions.__getitem__, reverse=True):
            final = loop.final_range
            if final is None or final.op is not ops.RANGE or loop.kind in REPLICATED_KINDS:
                continue
            if loop in self.blocked_sums and partial_sums[-1]:
                partial_sums.append([])
            partial_sums[-1].append(final)
        replicated = [f for loop in sum_loops
                      if loop.kind in REPLICATED_KINDS and
                      (f := loop.final_range) is not None
                      and f.op is ops.RANGE]
        return [*[part[::-1] for part in partial_sums[:-1]], [*partial_sums[-1][::-1], *replicated]]

    def make_ranges(self) -> tuple[int, ...]:
        """Make the RANGEs, numbered in loop order, and return their ids. Loops of extent 1 are
        dropped unless they carry values."""
        number = 0
        for loop in self.leaves.values():
            if symbolic.bounds(loop.extent) == (1, 1) and not loop.carries:
                loop.final_range = build.const(0, dtypes.index)
            else:
                loop.final_range = build.range_(loop.extent, number, loop.kind, loop.name)
                number += 1
        return tuple(range(number))
