"""Printing in a hand-written kernel: a line for each iteration, in the order of the program.

    i = k.range(2)                          o = [...], line 0: i = [0, 1], where it is printed
    k.print("row {}", i)                    row 0
    j = k.range(2)                          at 0 0
    k.print("at {} {}", i, j)               at 0 1
                                            row 1 ...

What is printed is stored beside the results, in outputs that nobody sees: one for each value and
one for where it is printed, over the ranges that the values depend on. An effect behind the
kernel prints the lines, sorted as the loops run: prints that follow one another share the loops
that they have in common. So prints are once each, in order, under every transform.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.core import build, dtypes, parts
from fnx.core.dtypes import DType, NDArray
from fnx.core.errors import KernelError, Site, user_site
from fnx.core.formats import check_format
from fnx.core.ops import Shape
from fnx.core.record import Record
from fnx.core.uop import UOp, current_site
from fnx.transforms.kernels.tracing import Tracing, current
from fnx.transforms.kernels.values import Value, as_node, number_kind

FIRST_SLOT = 1 << 20    # of what is printed, while a kernel is traced
MAX_LINES = 1 << 24     # of a print, that are or are not printed


class Printed(Record):
    """A print: its format, its arguments (None: the next value), the slots of its stores."""

    fmt: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    dynamic: tuple[int | str, ...]
    first: int
    site: Site | None


class PrintedLines(Record):
    """A print whose loops are known: where it stands among them, and its hidden outputs."""

    printed: Printed
    path: tuple[int, ...]           # its place in the body of each loop around it
    outs: tuple[tuple[Shape, DType], ...]

    def lines(self, given: Sequence[NDArray]) -> list[tuple[Any, str]]:
        """(where it stands, text) of what is printed: first where it is, then each value."""
        where, *values = given
        out = []
        for at in np.argwhere(where):
            place = tuple([int(i) for i in at])
            found = dict(zip(self.printed.dynamic, [v[place] for v in values]))
            args = [found.get(i, x) for i, x in enumerate(self.printed.args)]
            kwargs = {name: found.get(name, x) for name, x in self.printed.kwargs}
            key = tuple([n for pair in zip(self.path, place) for n in pair]) + self.path[-1:]
            out.append((key, self.printed.fmt.format(*args, **kwargs)))
        return out


class Prints(Record):
    """All prints of a kernel."""

    all: tuple[PrintedLines, ...]

    @property
    def outs(self) -> tuple[tuple[Shape, DType], ...]:
        """The types of their hidden outputs."""
        return tuple([out for lines in self.all for out in lines.outs])

    def show(self, *given: Any) -> None:
        """Print, from the values of the hidden outputs."""
        arrays = iter([np.asarray(x) for x in given])
        found = [line for lines in self.all
                 for line in lines.lines([next(arrays) for _ in lines.outs])]
        for _, text in sorted(found, key=lambda line: line[0]):
            print(text, flush=True)


def record(fmt: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Print values of the kernel that is being traced, where it stands.

    Raises:
        ArgumentError: the format does not name the arguments.
        KernelError: more lines than memory is spent on.
    """
    tracing = current()
    check_format(fmt, args, kwargs)
    site = user_site(3)
    given: list[tuple[int | str, Any]] = [*enumerate(args), *kwargs.items()]
    values = [(name, as_node(x, number_kind(x)[0])) for name, x in given if type(x) is Value]
    first = FIRST_SLOT + tracing.hidden
    tracing.hidden += 1 + len(values)
    old, current_site.site = current_site.site, site
    try:
        nodes = [build.const(True, dtypes.bool_), *[node for _, node in values]]
        for n, node in enumerate(nodes):
            tracing.put(build.store(build.at(build.ref(first + n, node.dtype, ())), node))
    finally:
        current_site.site = old
    tracing.prints.append(Printed(
        fmt, tuple([None if type(x) is Value else x for x in args]),
        tuple([(name, None if type(x) is Value else x) for name, x in kwargs.items()]),
        tuple([name for name, _ in values]), first, site))


def finished(tracing: Tracing, first_slot: int) -> tuple[Prints, list[tuple[UOp, Shape]]]:
    """The prints of a traced kernel; its STOREs are put over the loops that they run in.

    Args:
        tracing: all of whose STOREs are in their loops.
        first_slot: of the hidden outputs.

    Returns:
        The prints, and (REF, shape) of the hidden outputs.
    """
    made: list[PrintedLines] = []
    refs: list[tuple[UOp, Shape]] = []
    nest: list[tuple[int, UOp]] = []  # the loops that the last print stands in
    counts = [0]
    for printed in tracing.prints:
        slots = range(printed.first, printed.first + 1 + len(printed.dynamic))
        own = [s for s in tracing.stores if parts.buffer(s).arg.slot in slots]
        ranges = sorted({r for s in own for r in s.ranges if _extent(r) != 1},
                        key=lambda r: r.arg.id)
        shape = tuple(map(_extent, ranges))
        if math.prod(shape) > MAX_LINES:
            raise KernelError(f"print: expected at most {MAX_LINES} iterations, got "
                              f"{math.prod(shape)}", site=printed.site,
                              hint="print what depends on fewer ranges, or give smaller arrays")
        for store in own:
            old = parts.buffer(store)
            slot = first_slot + old.arg.slot - FIRST_SLOT
            ref = build.ref(slot, old.dtype, shape, f"print{slot - first_slot}")
            moved = build.store(build.at(ref, *ranges), parts.value(store), parts.validity(store))
            moved.sites = store.sites
            tracing.stores[tracing.stores.index(store)] = moved
            refs.append((ref, shape))
        made.append(PrintedLines(printed, _stands(nest, counts, ranges),
                          tuple([(shape, parts.buffer(s).dtype) for s in own])))
    return Prints(tuple(made)), refs


def _stands(nest: list[tuple[int, UOp]], counts: list[int], ranges: Sequence[UOp]
            ) -> tuple[int, ...]:
    """The place of the next print: it goes on in the loops that it shares with the last one."""
    shared = 0
    while shared < min(len(nest), len(ranges)) and nest[shared][1] is ranges[shared]:
        shared += 1
    del nest[shared:]
    del counts[shared + 1:]
    for r in ranges[shared:]:
        nest.append((counts[-1], r))
        counts[-1] += 1
        counts.append(0)
    path = (*[at for at, _ in nest], counts[-1])
    counts[-1] += 1
    return path


def _extent(r: UOp) -> int:
    n: int = build.const_of(parts.extent(r))
    return n
