"""The summary that ``jit(f).lower(...).show()`` prints: stages, the longest kernels, and what is
worth a look.

A program that is predicted to be short is run, so that the times are measured; other times are the
model's. All counts and times are those of ``show("all")``, ``roofline()`` and ``view()``.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from typing import Any, Protocol

from fnx.core.ir import accessors, build, ops
from fnx.core.ir.uop import UOp, toposort
from fnx.core.rewriting.peak_rates import arithmetic_type, high_limit_note
from fnx.core.support.quantities import counted, duration, size, three_digits
from fnx.transforms.inspect.roofline import KernelCost, Roofline

WIDTH = 100
_MAX_KERNELS, _MAX_FINDING_LINES = 12, 24  # lines of each; with the stages, at most 60 are printed
_MEASURED_NS = 200e6  # predicted time of a call up to which the program is run
_LONG_SHARE = 0.2  # share of the time above which a kernel is worth a look,
_LOW_LIMIT = 0.3  # if it reaches less than this fraction of the machine's limit
_SHORT_CALL_NS = 20e3  # a call below which no kernel is worth a look: Python takes as long
_BUSY = 2.0  # how many times as long as its fastest runs a call takes on a machine with other work
_SHORT_RUN_NS = 1e3  # a mean run below which the launch, of about 50 ns, counts
_LARGE_SHARE, _LONG_COMPILE_MS = 0.5, 1000.0  # share of one pass in a compilation of this time


class LoweringLike(Protocol):
    """What a summary reads of a Lowering."""

    graph: UOp
    simplified: UOp
    commands: UOp
    arena: int
    kernels: tuple[Any, ...]
    steps: tuple[str, ...]

    @property
    def passes(self) -> list[Any]: ...

    @property
    def rows(self) -> list[tuple[str, str, str, int, int, str, str]]: ...

    def pass_times(self, step: str) -> dict[str, float]: ...

    def text(self, step: str = "graph") -> str: ...

    def roofline(self, measured: bool = True) -> Roofline: ...


def summary(lowering: LoweringLike, name: str, device: Any) -> str:
    """Return at most 60 lines: stages, kernels, what is worth a look."""
    costs = lowering.roofline(measured=False)
    if costs.total <= _MEASURED_NS:
        costs = lowering.roofline()
    runs = sum([row.runs for row in costs.rows])
    kernels = counted(len(costs.rows), "kernel") + f" in {runs:,} runs" * (runs != len(costs.rows))
    total_ms = sum(ms for _, ms, _ in _stage_rows(lowering))
    lines = [f"{name} on {device.name}: {kernels}, {duration(costs.total)} a call, "
             f"{total_ms:,.0f} ms to compile", "",
             f"{'stage':12} {'holds':42} {'ms':>8}  its longest pass"]
    lines += [_cut(f"{stage:12} {holds:42} {ms:8.1f}  {longest}")
              for (stage, ms, longest), holds in zip(_stage_rows(lowering), _contents(lowering))]
    lines += ["", *_kernel_lines(costs), "", "worth a look"]
    findings = _findings(lowering, costs, device)
    texts = [text for line in findings for text in textwrap.wrap(
        line, WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)]
    lines += texts[:_MAX_FINDING_LINES] or ["  nothing stands out"]
    return "\n".join([*lines, "", 'show("all") prints every stage, show("kernels", "llvm") these; '
                      "view() serves a page"])


def _stage_rows(lowering: LoweringLike) -> list[tuple[str, float, str]]:
    """For each stage: its name, milliseconds, and the longest of several passes."""
    rows = []
    for step in lowering.steps:
        times = lowering.pass_times(step)
        longest = max(times, key=lambda name: times[name], default="")
        rows.append((step, sum(times.values()),
                     f"{longest} {times[longest]:.1f} ms" if len(times) > 1 else longest))
    return rows


def _contents(lowering: LoweringLike) -> list[str]:
    """For each stage, what it holds."""
    kernels = list(dict.fromkeys(info.node for info in lowering.kernels))
    loops = Counter(word.partition("(")[0] for row in lowering.rows for word in row[2].split())
    origins = Counter(row[6] for row in lowering.rows if row[6])
    groups = next((len(ran.after.groups) for ran in lowering.passes if ran.name == "kernelize"), 0)
    return [counted(_size(lowering.graph), "node"), counted(_size(lowering.simplified), "node"),
            counted(groups, "group"), counted(len(kernels), "distinct kernel"),
            ", ".join(f"{n} by the {who}" for who, n in origins.items()),
            f"{loops['par']} parallel, {loops['seq']} sequential, {loops['vec']} vector loops",
            counted(len(lowering.text("programs").splitlines()), "line"),
            counted(len(lowering.text("llvm").splitlines()), "line"),
            f"{counted(len(lowering.kernels), 'launch', 'es')}, {size(lowering.arena)} of buffers"]


def _kernel_lines(costs: Roofline) -> list[str]:
    rows = _grouped(costs)
    total = costs.total or 1.0
    measured = all(row.measured is not None for row in rows)
    lines = [f"{'time' if measured else 'predicted':>10} {'%':>4} {'runs':>6} {'FLOP':>8} "
             f"{'bytes':>9} {'of limit':>13}  kernel (line): loops"]
    for row in rows[:_MAX_KERNELS]:
        limit = "" if row.limit is None else f"{100 * row.limit:.0f}% {row.bound}"
        flops = three_digits(row.runs * row.flops) if row.is_counted else ""
        lines.append(_cut(
            f"{duration(row.total):>10} {100 * row.total / total:4.0f} {row.runs:6} "
            f"{flops:>8} {size(row.runs * row.nbytes):>9} {limit:>13}  "
            f"{_title(row)}: {row.loops}"))
    rest = rows[_MAX_KERNELS:]
    if rest:
        part = sum([row.total for row in rest])
        lines.append(f"{duration(part):>10} {100 * part / total:4.0f} {'':40} {len(rest)} more")
    return lines


def _findings(lowering: LoweringLike, costs: Roofline, device: Any) -> list[str]:
    """Return what is worth a look, a sentence each, the most important first."""
    lines = [*_long_kernels(costs), *_short_iterations(lowering, costs)]
    wide = sum(map(_has_float64_arrays, lowering.kernels)) \
        if _is_given_float64(lowering.graph) else 0
    if wide:
        lines.append(f"{counted(wide, 'kernel')} {'computes' if wide == 1 else 'compute'} in "
                     "float64, at most half as fast as float32: pass float32 arrays if 7 digits "
                     "are enough")
    if lowering.arena > device.target.l2:
        lines.append(f"intermediate results take {size(lowering.arena)}, more than the L2 cache "
                     "holds: a smaller batch may be faster per example, and in a gradient "
                     "fnx.checkpoint keeps fewer of them")
    times = {name: ms for step in lowering.steps for name, ms in lowering.pass_times(step).items()}
    whole, longest = sum(times.values()), max(times, key=lambda name: times[name], default="")
    if whole > _LONG_COMPILE_MS and times[longest] > _LARGE_SHARE * whole:
        lines.append(f"compiling took {whole / 1e3:.1f} s, {100 * times[longest] / whole:.0f}% of "
                     f"it in {longest}, once for each signature: if a Python loop made many of its "
                     "kernels, fnx.lax.scan compiles faster")
    note = high_limit_note([(row.bound, row.limit) for row in costs.rows])
    lines += [note] * bool(note)
    if costs.slowdown > _BUSY:
        lines.append(f"this machine is busy: a call took {costs.slowdown:.1f} times as long as the "
                     "times here, which are the shortest of several calls")
    lines += [f"the kernels in {loop} are counted for one iteration, as data ends this loop: "
              "fnx.profile(f)(*args) counts all" for loop in costs.open_loops]
    if costs.why:
        lines.append(f"not measured: {costs.why}; fnx.profile(f)(*args) times a call")
    elif any(row.measured is None for row in costs.rows):
        lines.append(f"not measured: a call is predicted to take {duration(costs.total)}; "
                     "fnx.profile(f)(*args) times one")
    return lines


def _grouped(costs: Roofline) -> list[KernelCost]:
    """Return the costs, those of equal kernels of one line as one, such as of a Python loop that
    was unrolled; the longest first."""
    groups: dict[Any, list[KernelCost]] = {}
    for row in costs.rows:
        groups.setdefault((row.name, row.line, row.loops, row.flops, row.nbytes, row.bound,
                           row.measured is None), []).append(row)
    result = []
    for rows in groups.values():
        runs = sum([row.runs for row in rows])
        mean = sum([row.total for row in rows]) / runs if runs else 0.0
        result.append(rows[0].replace(runs=runs, predicted=mean) if rows[0].measured is None else
                      rows[0].replace(runs=runs, measured=mean))
    return sorted(result, key=lambda row: row.total, reverse=True)


_SLICE_A_SORT = "if few elements of a row are needed, slice them in the program that sorts, or " \
    "use lax.top_k"
_CALL_LESS = "fewer or smaller calls are the only cure"


def _long_kernels(costs: Roofline) -> list[str]:
    """Return the kernels that take long, far from the limits of the machine, and what may help."""
    lines = []
    for row in _grouped(costs):
        if costs.total < _SHORT_CALL_NS:
            break
        share = row.total / (costs.total or 1.0)
        if share < _LONG_SHARE:
            break
        taken = f"{_title(row)} takes {100 * share:.0f}% of the time"
        if row.is_callback:
            lines.append(f"{taken} in Python: call it less often, or compute with fnx.numpy")
        elif not row.is_counted:
            cure = _SLICE_A_SORT if row.name == "sort" else _CALL_LESS
            lines.append(f"{taken} in a library routine: {cure}")
        elif row.limit is not None and row.limit < _LOW_LIMIT:
            kind = "arithmetic" if row.bound.startswith(("float", "bfloat", "dp")) else "bandwidth"
            lines.append(f"{taken} and reaches {100 * row.limit:.0f}% of this machine's "
                         f"{row.bound} {kind}: look here first; view() shows the loops of its line")
    return lines


def _short_iterations(lowering: LoweringLike, costs: Roofline) -> list[str]:
    """Return the loops that launch short kernels and take long, and what may help."""
    in_loop: dict[UOp, list[KernelCost]] = {}
    for row, (_, loops) in zip(costs.rows, accessors.execs_in_loops(lowering.commands)):
        if loops:
            in_loop.setdefault(loops[-1], []).append(row)
    lines = []
    for loop, rows in in_loop.items():
        total, runs = sum([row.total for row in rows]), sum([row.runs for row in rows])
        if total >= _LONG_SHARE * costs.total and total < _SHORT_RUN_NS * runs:
            trips = "" if loop.arg.trips is None else f" of {loop.arg.trips:,} iterations"
            lines.append(
                f"the loop {loop.arg.label} launches {counted(len(rows), 'kernel')} in each"
                f"{trips or ' iteration'}, so short that launching them counts: give an iteration "
                "more work (a batch, vmap), or move what needs no carried value out of the loop")
    return lines


def _is_given_float64(graph: UOp) -> bool:
    """Whether an argument or a result is of float64: sums that fnx accumulates in it are not."""
    return any(n.dtype.is_float and n.dtype.itemsize == 8
               for n in (*build.params(graph).values(), *graph.src))


def _has_float64_arrays(info: Any) -> bool:
    """Whether a kernel computes in float64 because its arrays are."""
    return arithmetic_type(info.node) == "float64" and any(
        n.op is ops.REF and n.dtype.is_float and n.dtype.itemsize == 8
        for n in toposort([info.node]))


def _title(row: KernelCost) -> str:
    return f"{row.name} ({row.line})" if row.line else row.name


def _size(graph: UOp) -> int:
    return len(toposort([graph], into_functions=True))


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH else line[:WIDTH - 4].rstrip() + " ..."
