"""Lowering: the steps from graph to commands that ``jit(f).lower(*args)`` shows.

``show()`` prints all steps, ``show("kernels", "commands")`` some; in a notebook the object displays
as a page with a section for each step. Each step is headed by its passes and their times. The steps
between graph and commands are recomputed on demand, once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fnx.core.ir import accessors, build, ops
from fnx.core.ir.cache import cached_property
from fnx.core.ir.kernel_code import RunTrace
from fnx.core.ir.peak_rates import PeakRates, arithmetic_type, count_flops
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels import show
from fnx.core.support.errors import ArgumentError, FnxError
from fnx.core.support.process import lazy_import
from fnx.core.support.record import Record
from fnx.transforms.dispatch.executable import DeviceLike, LoweredLike
from fnx.transforms.dispatch.schedule_search import outcome_of
from fnx.transforms.dispatch.specialized_call import CompiledLike, SignatureInfo, SpecializedCall
from fnx.transforms.inspect import lowering_html
from fnx.transforms.inspect.roofline import KernelCost, Roofline

server = lazy_import("fnx.transforms.page.server")

# Each step, and its passes; a pass that is not named belongs to the step of the pass before it.
STEPS: dict[str, tuple[str, ...]] = {
    "graph": ("trace",),
    "simplified": ("inline", "simplify", "split_reduction", "unique_results"),
    "groups": ("kernelize",),
    "kernels": ("ranges", "coalesce", "runtime_extents", "canonicalize"),
    "schedules": ("choose",),
    "tiled": ("tile", "vectorize_stage_fills", "split_global"),
    "programs": ("decompose", "emit"),
    "llvm": ("render", "print", "llvm", "link"),
    "commands": ("memory", "commands"),
}
# The kind of a kernel, by the first word of its name, and the consequences for its loops.
_KIND_REASONS = {
    "contract": "a sum of products: a tile of the result stays in registers during the sum",
    "rows": "rows that are read again: each stays in the cache, with lanes along it",
    "reduce": "a fold: lanes go where reads are contiguous, each with an accumulator of its own",
    "map": "an element at a time: lanes go along what is contiguous",
    "scan": "a loop with carried values, in registers: each lane has one of its own",
    "while": "a loop with carried values, in registers: each lane ends with its own condition",
    "scatter": "places that are data: in order, with lanes only along an index of its own",
}


_TIMED_CALLS = 3  # timed calls, of which the fastest counts
_REMEASURE_RATIO = 1.2  # ratio to a limit above which the limit is measured again


class KernelInfo(Record):
    """One command: its kernel's name, bytes of its buffers, arithmetic operations, node, and scalar
    operands."""

    name: str
    bytes: int
    flops: int
    node: UOp
    scalars: tuple[int, ...] = ()


class Lowering(SignatureInfo):
    """The steps from the graph of one signature to its commands.

    Attributes:
        graph: the FUNCTION as traced.
        simplified: the FUNCTION after the tensor passes.
        commands: the COMMANDS node.
        kernels: a KernelInfo for each command, in execution order.
        arena: bytes of intermediate buffers.
        milliseconds: times of the trace, of each pass, of LLVM (which runs concurrently with the
            passes) and of linking.
        steps: the names that ``show`` accepts.
        passes: every pass of the compiler with its input and output.
    """

    def __init__(self, graph: UOp, lowered: LoweredLike, device: DeviceLike, trace_ms: float,
                 rerun: Callable[[Callable[[Any], None]], Any], inputs: Sequence[str] = (),
                 name: str = "function", record_call: Callable[[], RunTrace] | None = None,
                 limits: Callable[[bool], PeakRates | None] = lambda beyond: None) -> None:
        self.graph, self.simplified = graph, lowered.function
        self.commands, self.arena = lowered.block.commands, lowered.block.arena
        self.milliseconds = {"trace": trace_ms, **lowered.milliseconds}
        self.kernels = tuple(map(_kernel_info, accessors.all_execs(self.commands)))
        self._code, self._device = lowered.code, device
        self._rerun_passes, self._input_names = rerun, inputs
        self._name, self._record_call, self._limits = name, record_call, limits
        self.steps = tuple(STEPS)

    def sign(self, specialized: SpecializedCall, compiled: Callable[[], CompiledLike]) -> None:
        """Set the signature, and the function that compiles it."""
        self._specialized, self._compiled = specialized, compiled

    def __repr__(self) -> str:
        kernels = len(self.kernels)
        total = sum(k.bytes for k in self.kernels)
        return f"<lowering: {kernels} kernels, {total} bytes read and written, " \
               f"{self.arena} bytes of arena>"

    def show(self, *steps: str) -> None:
        """Print steps, by default all: graph, simplified, groups, kernels, schedules, tiled,
        programs, llvm, commands.

        >>> import fnx, fnx.numpy as jnp
        >>> steps = fnx.jit(lambda x: jnp.exp(x) + 1).lower(jnp.zeros(3))
        >>> steps.show("commands")  # doctest: +ELLIPSIS
        ==== commands  (memory ... ms, commands ... ms)
        map_add_exp(x) -> out0 ...
        """
        texts = [(name, self.text(name)) for name in steps or STEPS]
        print("\n\n".join(f"==== {name}  ({self.times(name)})\n{text}" for name, text in texts))

    def text(self, step: str = "graph") -> str:
        """Return one step as text."""
        make_text = _STEP_TEXTS.get(step)
        if make_text is None:
            raise ArgumentError(f"expected a step of {', '.join(STEPS)}; got {step!r}")
        return make_text(self)

    def compile(self, compiler_options: Mapping[str, Any] | None = None) -> CompiledLike:
        """Compile to a function of this signature only, which is never traced again.

        Args:
            compiler_options: must be None, as there are no XLA options.

        Returns:
            A ``fnx.stages.Compiled``, called with the dynamic arguments.

        Raises:
            ArgumentError: ``compiler_options`` are given.

        >>> import fnx, fnx.numpy as jnp
        >>> fnx.jit(lambda x: 2 * x).lower(jnp.ones(2)).compile()(jnp.ones(2))
        Array([2., 2.], dtype=float32)
        """
        if compiler_options:
            raise ArgumentError(f"compile: expected no compiler_options, got "
                                f"{sorted(compiler_options)}", hint="they are XLA's")
        return self._compiled()

    def as_text(self, dialect: str | None = None, *, debug_info: bool = False) -> str:
        """Return one step as text.

        Args:
            dialect: a step of ``show``; None for the graph.
            debug_info: accepted for JAX compatibility; the user's lines are always shown.

        Returns:
            A str.

        Raises:
            ArgumentError: ``dialect`` is not a step; the dialects of JAX are not supported.
        """
        return self.text("graph" if dialect is None else dialect)

    def compiler_ir(self, dialect: str | None = None) -> UOp:
        """Return a step as an IR node.

        Args:
            dialect: "graph", "simplified" or "commands"; None for the graph.

        Returns:
            The node of that step.

        Raises:
            ArgumentError: ``dialect`` is something else.
        """
        nodes = {"graph": self.graph, "simplified": self.simplified, "commands": self.commands}
        if dialect is not None and dialect not in nodes:
            raise ArgumentError(f"compiler_ir: expected {', '.join(nodes)} or None, got "
                                f"{dialect!r}",
                                hint="fnx has its own IR: use .text(step) or .llvm()")
        return nodes[dialect or "graph"]

    def cost_analysis(self) -> dict[str, float]:
        """Estimate the cost of a call, with the body of a loop counted once.

        Returns:
            A dict: "flops", floating-point operations, and "bytes accessed", by the kernels.

        >>> import fnx, fnx.numpy as jnp
        >>> fnx.jit(lambda x: 2 * x).lower(jnp.ones(16)).cost_analysis()
        {'flops': 16.0, 'bytes accessed': 128.0}
        """
        return {"flops": float(sum(k.flops for k in self.kernels)),
                "bytes accessed": float(sum(k.bytes for k in self.kernels))}

    def times(self, step: str) -> str:
        """Return the passes of a step and their times; cached passes are run again."""
        pass_ms = dict(self.milliseconds)
        for ran in self.passes:
            if ran.name not in self.milliseconds:
                pass_ms[ran.name] = pass_ms.get(ran.name, 0.0) + ran.milliseconds
        return ", ".join(f"{name} {pass_ms[name]:.1f} ms"
                         for name, pass_step in self._step_of.items()
                         if pass_step == step and name in pass_ms) or "no pass of its own"

    def llvm(self) -> str:
        """Return the LLVM IR of the distinct kernels."""
        return "\n".join(code.text() for code in self._distinct_codes())

    def assembly(self) -> str:
        """Return the assembly of the distinct kernels."""
        return "\n".join(self._device.assembly(code.text()) for code in self._distinct_codes())

    def _repr_html_(self) -> str:
        texts = [(name, self.times(name), self.text(name)) for name in STEPS]
        return lowering_html.page(repr(self)[1:-1], self.rows, texts)

    def roofline(self, measured: bool = True) -> Roofline:
        """Compare the cost of each kernel with the limits of this machine.

        Lists loops, arithmetic, bytes, and the predicted, measured and least possible time. The
        limits of the machine are measured once and cached on disk.

        Args:
            measured: whether to run the program to time its kernels, on the arguments of
                ``lower``; for ShapeDtypeStructs, on generated numbers that exercise all of the
                work (inspect/timeline.py).

        Returns:
            A Roofline, which prints as a table; its ``rows`` are a KernelCost for each command.

        >>> import fnx, fnx.numpy as jnp
        >>> x = jnp.ones((64, 64))
        >>> found = fnx.jit(lambda x: x @ x).lower(x).roofline()
        >>> [(row.flops >= 2 * 64 ** 3, row.bound, row.chosen) for row in found.rows]
        [(True, 'float32', 'model')]
        """
        why = ""
        times: list[float | None] = [None] * len(self.kernels)
        try:
            for _ in range(_TIMED_CALLS if measured else 0):
                times = [min(s for s in pair if s is not None) if pair != (None, None) else None
                         for pair in zip(times, self._times())]
        except FnxError as e:
            why = e.message
        result = self._roofline(self._limits(False), times, why)
        remeasure = any(row.limit is not None and row.limit > _REMEASURE_RATIO
                        for row in result.rows)
        return self._roofline(self._limits(True), times, why) if remeasure else result

    def _roofline(self, limits: PeakRates | None, times: Sequence[float | None],
                  why: str) -> Roofline:
        rows = []
        for (name, line, loops, work, nbytes, _, origin), info, spent in zip(
                self.rows, self.kernels, times):
            least, bound = (None, "") if limits is None else \
                limits.min_time(work, nbytes, arithmetic_type(info.node))
            memory_time = 0.0 if limits is None else limits.min_time(0, nbytes)[0]
            predicted = max(memory_time, self._device.estimate(info.node, info.scalars))
            rows.append(KernelCost(name, line, loops, origin, work, nbytes, predicted, spent, least,
                                   bound))
        return Roofline(rows, limits, why)

    def _times(self) -> list[float | None]:
        """Return the nanoseconds of each command; None if it did not run.

        If a loop repeats commands, each gets the mean over all runs of its name.
        """
        times: dict[str, list[int]] = {}
        runs = self._recorded().runs
        if len(runs) == len(self.kernels):
            return [float(run.stop - run.start) for run in runs]
        for run in runs:
            times.setdefault(run.name, []).append(run.stop - run.start)
        names = [_name_and_line(info.name)[0] for info in self.kernels]
        return [sum(times[name]) / len(times[name]) if name in times else None for name in names]

    def view(self, port: int = 0, browser: bool = True) -> Any:
        """Serve an interactive local web page of all steps.

        It shows the graph after each pass and the rules that matched, kernels at every level, a
        timeline of a call with the work of each worker and the memory in use, the live ranges of
        buffers, and the source lines.

        Args:
            port: the port; 0 for a free one.
            browser: whether to open the page in a browser.

        Returns:
            A Page with the ``url`` (which ends in a random token that every request needs) and
            ``close()``; also a context manager.

        Raises:
            ArgumentError: the port is in use.

        >>> import fnx, fnx.numpy as jnp
        >>> with fnx.jit(jnp.tanh).lower(jnp.zeros(3)).view(browser=False) as page:
        ...     page.url                                              # doctest: +ELLIPSIS
        'http://127.0.0.1:.../.../'
        """
        return server.serve([(self._name, lambda: self)], port, browser)

    # ---- text of each step

    @cached_property
    def rows(self) -> list[lowering_html.KernelRow]:
        """For each command: name, line, loops, arithmetic operations, bytes, schedule and its
        origin."""
        return [(*_name_and_line(k.name), _format_loops(k.node), k.flops, k.bytes,
                 *self._schedules.get(k.node, ("", ""))) for k in self.kernels]

    def kernel_texts(self, kernel: UOp) -> dict[str, Callable[[], str]]:
        """Return level -> text of a kernel, from loops to assembly; texts are built on demand."""
        texts = {"tiled": lambda: self._pretty([kernel])}
        code = self._code.get(kernel)
        if code is not None:
            texts |= {"program": lambda: self._pretty(code.program()), "llvm": code.text,
                      "assembly": lambda: self._device.assembly(code.text())}
        return texts

    @cached_property
    def timeline(self) -> RunTrace:
        """The times at which each kernel ran, in a call made for this."""
        return self._recorded()

    def _recorded(self) -> RunTrace:
        if self._record_call is None:
            raise ArgumentError("expected a program of a device")
        return self._record_call()

    @cached_property
    def passes(self) -> list[Any]:
        ran: list[Any] = []
        self._rerun_passes(ran.append)
        return ran

    @cached_property
    def _step_of(self) -> dict[str, str]:
        """The step of each pass: the one that lists it, else that of the pass before."""
        out = {name: step for step, names in STEPS.items() for name in names}
        current_step = "graph"
        for ran in self.passes:
            current_step = out.setdefault(ran.name, current_step)
        return out

    @cached_property
    def _locs(self) -> set[Any]:
        nodes = toposort([self.graph], into_functions=True)
        return {loc for n in nodes for loc in n.locs}

    @cached_property
    def _schedules(self) -> dict[UOp, tuple[str, str]]:
        """For each tiled kernel, its schedule on one line and its origin."""
        result: dict[UOp, tuple[str, str]] = {}
        schedule = "", ""
        for ran in self.passes:
            if ran.name == "choose":
                schedule = ", ".join(map(repr, ran.after.schedule)), _origin(ran.before)
            elif ran.name in STEPS["tiled"]:
                result.update((k, schedule) for k in getattr(ran.after, "graphs", ()))
        return result

    def _distinct_codes(self) -> list[Any]:
        return [self._code[k] for k in self._distinct_kernels() if k in self._code]

    def _distinct_kernels(self) -> list[UOp]:
        return list(dict.fromkeys(k.node for k in self.kernels))

    def _pretty(self, nodes: UOp | list[UOp]) -> str:
        return show.pretty(nodes, locs=self._locs, inputs=self._input_names,
                           scopes=nodes is not self.commands)

    def _groups(self) -> str:
        fusion = next(ran.after for ran in self.passes if ran.name == "kernelize")
        return "\n".join(show.pretty_groups(fusion.groups, self._locs, self._input_names))

    def _untiled(self) -> str:
        kernels = dict.fromkeys(ran.after.kernel for ran in self.passes
                                if ran.name == "canonicalize")
        return self._pretty(list(kernels))

    def _schedules_text(self) -> str:
        """Return the decisions that passes report, and the schedule of each kernel."""
        why = dict.fromkeys(line for ran in self.passes for line in ran.why)
        texts = [_explain(ran.before, ran.after) for ran in self.passes if ran.name == "choose"]
        return "\n\n".join(["\n".join(why)] * bool(why) + texts)

    def _programs_text(self) -> str:
        return "\n\n".join(f"program {node.arg.name}\n" + "\n".join(
            "  " + line for line in self._pretty(self._code[node].program()).splitlines())
            for node in self._distinct_kernels() if node in self._code)


_STEP_TEXTS: dict[str, Callable[[Lowering], str]] = {
    "graph": lambda s: s._pretty(s.graph), "simplified": lambda s: s._pretty(s.simplified),
    "groups": Lowering._groups, "kernels": Lowering._untiled, "schedules": Lowering._schedules_text,
    "tiled": lambda s: s._pretty(s._distinct_kernels()), "programs": Lowering._programs_text,
    "llvm": Lowering.llvm, "commands": lambda s: s._pretty(s.commands),
}


def _name_and_line(name: str) -> tuple[str, str]:
    kernel, _, line = name.partition(" (")
    return kernel, line.rstrip(")")


def _origin(schedule_input: Any) -> str:
    """Return the origin of a schedule: "search", "user" or "model"."""
    outcome = outcome_of(schedule_input.kernel.arg.name, schedule_input.schedule)
    return "search" if outcome is not None else "user" if schedule_input.schedule else "model"


def _explain(schedule_input: Any, scheduled: Any) -> str:
    """Describe a schedule and its origin: the user, a search, or the heuristic for its kind of
    kernel."""
    name = schedule_input.kernel.arg.name
    outcome = outcome_of(name, schedule_input.schedule)
    why = str(outcome) if outcome is not None else \
        "as the user wrote it" if schedule_input.schedule else \
        "the model's choice: " + _KIND_REASONS.get(name.partition("_")[0], "loops as they are")
    steps = list(scheduled.schedule)
    kinds = {type(step).__name__ for step in steps}
    if "Parallel" not in kinds and not schedule_input.schedule:
        why += "; one thread: there is little work, or an order to keep"
    lines = [f"{name}: {why}"]
    for _, group in itertools.groupby(steps, key=lambda step: type(step).__name__):
        lines.append("  " + ", ".join(map(repr, group)))
    return "\n".join(lines)


def _format_loops(kernel: UOp) -> str:
    """Format the loops of a kernel, outermost first: ``par(7) seq(300) vec(16)``."""
    if kernel.op is not ops.KERNEL:
        return kernel.op.name.lower()
    ranges = sorted((n for n in toposort([kernel]) if n.op is ops.RANGE),
                    key=accessors.LoopOrder(kernel.arg.order))
    return " ".join(f"{r.arg.kind.lower()}({_format_extent(accessors.extent(r))})" for r in ranges)


def _format_extent(node: UOp) -> str:
    return str(build.const_of(node)) if node.op is ops.CONST else \
        getattr(node.arg, "name", "") or "n"


def _kernel_info(execution: UOp) -> KernelInfo:
    kernel, *operands = execution.src
    scalars = [build.const_of(s) for s in operands if s.op is ops.CONST]
    nbytes = sum(accessors.possible_slots(s)[0].nbytes for s in operands if s.op is not ops.CONST)
    return KernelInfo(execution.arg.label, nbytes, count_flops(kernel, scalars), kernel,
                      tuple(scalars))
