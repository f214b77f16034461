"""Printing in a user-written kernel: one line for each iteration, in program order.

    i = k.range(2)                          o = [...], line 0: i = [0, 1], where it is printed
    k.print("row {}", i)                    row 0
    j = k.range(2)                          at 0 0
    k.print("at {} {}", i, j)               at 0 1
                                            row 1 ...

A print stores to hidden outputs over the ranges that its values depend on: one output for each
value, and a mask of where it is printed. An effect after the kernel prints the lines in the order
in which the loops run, where consecutive prints share their common loops. So under every transform
each line is printed once and in order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.core.ir import accessors, build, dtypes
from fnx.core.ir.dtypes import DType, NDArray
from fnx.core.ir.ops import Shape
from fnx.core.ir.uop import UOp, current_loc
from fnx.core.scope.scope import recorded_location
from fnx.core.support.errors import KernelError, Location
from fnx.core.support.format_strings import check_format
from fnx.core.support.record import Record
from fnx.transforms.kernel_lang.trace_state import KernelTrace, current
from fnx.transforms.kernel_lang.values import Value, as_node, number_kind

FIRST_SLOT = 1 << 20    # of hidden outputs, while a kernel is traced
MAX_LINES = 1 << 24     # of one print, printed or masked


class PrintCall(Record):
    """A print: its format, its arguments (None for a traced value), the slots of its stores."""

    fmt: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    dynamic: tuple[int | str, ...]
    first: int
    loc: Location | None


class PlacedPrint(Record):
    """A print whose loops are known: its position among them, and its hidden outputs."""

    call: PrintCall
    path: tuple[int, ...]           # its position in the body of each enclosing loop
    outs: tuple[tuple[Shape, DType], ...]

    def lines(self, hidden_outputs: Sequence[NDArray]) -> list[tuple[Any, str]]:
        """Return (sort key, text) of each line, from the mask and the values of each argument."""
        mask, *values = hidden_outputs
        out = []
        for at in np.argwhere(mask):
            point = tuple([int(i) for i in at])
            dynamic = dict(zip(self.call.dynamic, [v[point] for v in values]))
            args = [dynamic.get(i, x) for i, x in enumerate(self.call.args)]
            kwargs = {name: dynamic.get(name, x) for name, x in self.call.kwargs}
            key = tuple([n for pair in zip(self.path, point) for n in pair]) + self.path[-1:]
            out.append((key, self.call.fmt.format(*args, **kwargs)))
        return out


class Prints(Record):
    """All prints of a kernel."""

    all: tuple[PlacedPrint, ...]

    @property
    def outs(self) -> tuple[tuple[Shape, DType], ...]:
        """The types of the hidden outputs."""
        return tuple([out for lines in self.all for out in lines.outs])

    def show(self, *hidden_outputs: Any) -> None:
        """Print all lines, given the values of the hidden outputs."""
        arrays = iter([np.asarray(x) for x in hidden_outputs])
        printed = [line for lines in self.all
                   for line in lines.lines([next(arrays) for _ in lines.outs])]
        for _, text in sorted(printed, key=lambda line: line[0]):
            print(text, flush=True)


def record_print(fmt: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Record a print in the kernel being traced.

    Raises:
        ArgumentError: the format does not match the arguments.
    """
    tracing = current()
    check_format(fmt, args, kwargs)
    loc = recorded_location(3)
    operands: list[tuple[int | str, Any]] = [*enumerate(args), *kwargs.items()]
    values = [(name, as_node(x, number_kind(x)[0])) for name, x in operands if type(x) is Value]
    first = FIRST_SLOT + tracing.hidden
    tracing.hidden += 1 + len(values)
    old, current_loc.loc = current_loc.loc, loc
    try:
        nodes = [build.const(True, dtypes.bool_), *[node for _, node in values]]
        for n, node in enumerate(nodes):
            tracing.put(build.store(build.index_into(build.ref(first + n, node.dtype, ())), node))
    finally:
        current_loc.loc = old
    tracing.prints.append(PrintCall(
        fmt, tuple([None if type(x) is Value else x for x in args]),
        tuple([(name, None if type(x) is Value else x) for name, x in kwargs.items()]),
        tuple([name for name, _ in values]), first, loc))


def collect_prints(tracing: KernelTrace, first_slot: int) -> tuple[Prints, list[tuple[UOp, Shape]]]:
    """Collect the prints of a traced kernel; index their STOREs by the loops they run in.

    Args:
        tracing: a trace whose STOREs are all in their loops.
        first_slot: the first slot of the hidden outputs.

    Returns:
        The prints, and (REF, shape) of the hidden outputs.

    Raises:
        KernelError: a print has more than MAX_LINES lines.
    """
    placed: list[PlacedPrint] = []
    refs: list[tuple[UOp, Shape]] = []
    nest: list[tuple[int, UOp]] = []  # the loops around the last print
    counts = [0]
    for printed in tracing.prints:
        slots = range(printed.first, printed.first + 1 + len(printed.dynamic))
        stores = [s for s in tracing.stores if accessors.buffer(s).arg.slot in slots]
        ranges = sorted({r for s in stores for r in s.ranges if _extent(r) != 1},
                        key=lambda r: r.arg.id)
        shape = tuple(map(_extent, ranges))
        if math.prod(shape) > MAX_LINES:
            raise KernelError(f"print: expected at most {MAX_LINES} iterations, got "
                              f"{math.prod(shape)}", loc=printed.loc,
                              hint="print a value over fewer ranges, or pass smaller arrays")
        for store in stores:
            old = accessors.buffer(store)
            slot = first_slot + old.arg.slot - FIRST_SLOT
            ref = build.ref(slot, old.dtype, shape, f"print{slot - first_slot}")
            indexed = build.store(build.index_into(ref, *ranges), accessors.value(store),
                                  accessors.validity(store))
            indexed.locs = store.locs
            tracing.stores[tracing.stores.index(store)] = indexed
            refs.append((ref, shape))
        placed.append(PlacedPrint(printed, _next_path(nest, counts, ranges),
                                  tuple([(shape, accessors.buffer(s).dtype) for s in stores])))
    return Prints(tuple(placed)), refs


def _next_path(nest: list[tuple[int, UOp]], counts: list[int], ranges: Sequence[UOp]
               ) -> tuple[int, ...]:
    """Return the path of the next print, which continues the loops it shares with the last."""
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
    n: int = build.const_of(accessors.extent(r))
    return n
