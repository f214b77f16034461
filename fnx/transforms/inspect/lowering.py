"""Lowering: the steps from graph to commands that ``jit(f).lower(*args)`` shows.

``show()`` prints a summary (summary.py), ``show("all")`` all steps, ``show("kernels", "commands")``
some; in a notebook the object displays as a page with a section for each step. Each step is headed
by its passes and their times. The steps between graph and commands are recomputed on demand, once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from fnx.core.ir import accessors, ops
from fnx.core.ir.cache import cached_property
from fnx.core.ir.kernel_code import RunTrace
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels import show
from fnx.core.rewriting.peak_rates import PeakRates, arithmetic_type
from fnx.core.support.errors import ArgumentError, FnxError, Location
from fnx.core.support.process import lazy_import
from fnx.transforms.dispatch.executable import DeviceLike, LoweredLike
from fnx.transforms.dispatch.memory_use import arena_buffers
from fnx.transforms.dispatch.signature import check_compiler_options
from fnx.transforms.dispatch.specialized_call import CompiledLike, SignatureInfo, SpecializedCall
from fnx.transforms.inspect import lowering_html, schedule_reasons
from fnx.transforms.inspect.drawings import (
    MAX_DRAWN_NODES,
    Drawing,
    graph_drawing,
    memory_drawing,
    time_drawing,
)
from fnx.transforms.inspect.hlo import HloModule
from fnx.transforms.inspect.kernel_info import format_loops, kernel_info, name_and_line
from fnx.transforms.inspect.roofline import KernelCost, Roofline
from fnx.transforms.inspect.summary import summary
from fnx.transforms.inspect.timeline import RunTimes, run_times, slowdown

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

_TIMED_CALLS = 7  # timed calls, at most, of which the fastest of each run counts
_REMEASURE_RATIO = 1.2  # ratio to a limit above which the limit is measured again


_comms_reports: list[Callable[..., Any]] = []


def register_comms(report: Callable[[UOp, Sequence[Any], Any], Any]) -> None:
    """Register what reports the collectives of a graph for arguments with shardings."""
    _comms_reports.append(report)




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
        arguments: the leaves of the arguments of ``lower``.
        passes: every pass of the compiler with its input and output.
    """

    def __init__(self, graph: UOp, lowered: LoweredLike, device: DeviceLike, trace_ms: float,
                 rerun: Callable[[Callable[[Any], None]], Any], inputs: Sequence[str] = (),
                 name: str = "function",
                 record_calls: Callable[[int], list[RunTrace]] | None = None,
                 limits: Callable[[bool], PeakRates | None] = lambda beyond: None) -> None:
        self.graph, self.simplified = graph, lowered.function
        self.commands, self.arena = lowered.block.commands, lowered.block.arena
        self.milliseconds = {"trace": trace_ms, **lowered.milliseconds}
        self.kernels = tuple([kernel_info(*run) for run in
                              accessors.execs_in_loops(self.commands)])
        self._code, self._device, self._lines = lowered.code, device, lowered.lines
        self._rerun_passes, self._input_names = rerun, inputs
        self._name, self._record_calls, self._limits = name, record_calls, limits
        self.steps, self.arguments = tuple(STEPS), tuple[Any, ...]()

    def sign(self, specialized: SpecializedCall, compiled: Callable[[], CompiledLike],
             stablehlo: Callable[[bool], Any], default: str | None) -> None:
        """Set the signature, the function that compiles it, the one that writes it as StableHLO,
        and the dialect that is shown by default."""
        self._specialized, self._compiled = specialized, compiled
        self._stablehlo, self.default_dialect = stablehlo, default

    def __repr__(self) -> str:
        kernels = len(self.kernels)
        total = sum(k.bytes for k in self.kernels)
        return f"<lowering: {kernels} kernels, {total} bytes read and written, " \
               f"{self.arena} bytes of arena>"

    def show(self, *steps: str) -> None:
        """Print a summary of at most 60 lines: stages, the longest kernels, what is worth a look.

        A program that is predicted to be short is run for its times, on the arguments of ``lower``.

        Args:
            steps: the steps to print instead: graph, simplified, groups, kernels, schedules, tiled,
                programs, llvm, commands; or "all".

        Raises:
            ArgumentError: a step has another name.

        >>> import fnx, fnx.numpy as jnp
        >>> steps = fnx.jit(lambda x: jnp.exp(x) + 1).lower(jnp.zeros(3))
        >>> steps.show("commands")  # doctest: +ELLIPSIS
        ==== commands  (memory ... ms, commands ... ms)
        map_add_exp(x) -> out0 ...
        """
        if not steps:
            print(summary(self, self._name, self._device))
            return
        texts = [(name, self.text(name)) for name in (STEPS if steps == ("all",) else steps)]
        print("\n\n".join(f"==== {name}  ({self.times(name)})\n{text}" for name, text in texts))

    def text(self, step: str = "graph") -> str:
        """Return one step as text."""
        make_text = _STEP_TEXTS.get(step)
        if make_text is None:
            raise ArgumentError(f"expected a step of {', '.join(STEPS)}, or all; got {step!r}")
        return make_text(self)

    def compile(self, compiler_options: Mapping[str, Any] | None = None) -> CompiledLike:
        """Compile to a function of this signature only, which is never traced again.

        Args:
            compiler_options: those of XLA (``xla_...``) are accepted, and do nothing.

        Returns:
            A ``fnx.stages.Compiled``, called with the dynamic arguments.

        Raises:
            ArgumentError: another option is given.

        >>> import fnx, fnx.numpy as jnp
        >>> fnx.jit(lambda x: 2 * x).lower(jnp.ones(2)).compile()(jnp.ones(2))
        Array([2., 2.], dtype=float32)
        """
        check_compiler_options("compile", compiler_options)
        return self._compiled()

    def as_text(self, dialect: str | None = None, *, debug_info: bool = False) -> str:
        """Return one step as text.

        Args:
            dialect: a step of ``show``; None for the graph; "stablehlo" (or "mlir") and "hlo" for
                the graph in the formats of these. None of fnx reads them.
            debug_info: whether StableHLO has the user's lines, which steps of ``show`` have.

        Returns:
            A str.

        Raises:
            ArgumentError: ``dialect`` is not a step.
        """
        dialect = dialect or self.default_dialect or "graph"
        if dialect in ("stablehlo", "mlir"):
            return str(self._stablehlo(debug_info))
        return HloModule(self.graph).as_hlo_text() if dialect == "hlo" else self.text(dialect)

    def compiler_ir(self, dialect: str | None = None) -> Any:
        """Return a step as an IR node.

        Args:
            dialect: "graph", "simplified" or "commands"; None for the graph; of JAX's, those that
                ``as_text`` takes.

        Returns:
            The node of that step; for "hlo" an object with ``as_hlo_text()``, for "stablehlo" one
            whose ``str()`` is the module.

        Raises:
            ArgumentError: ``dialect`` is something else.
        """
        dialect = dialect or self.default_dialect or "graph"
        if dialect == "hlo":
            return HloModule(self.graph)
        if dialect in ("stablehlo", "mlir"):
            return self._stablehlo(False)
        nodes = {"graph": self.graph, "simplified": self.simplified, "commands": self.commands}
        if dialect not in nodes:
            raise ArgumentError(f"compiler_ir: expected {', '.join(nodes)} or None, got "
                                f"{dialect!r}",
                                hint="fnx has its own IR: use .text(step) or .llvm()")
        return nodes[dialect]

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

    def comms(self, topology: Any = "infiniband") -> Any:
        """Return the collectives that this signature needs on the mesh of its arguments.

        Args:
            topology: a ``fnx.sharding.Topology``, or the name of one.

        Returns:
            A report as ``fnx.sharding.comms`` returns it.

        Raises:
            ArgumentError: no argument of ``lower`` has a sharding over a mesh.

        >>> import fnx, fnx.numpy as jnp
        >>> x = fnx.ShapeDtypeStruct((8, 4), "float32", sharding=fnx.NamedSharding(
        ...     fnx.sharding.AbstractMesh((4,), ("data",)), fnx.P("data")))
        >>> fnx.jit(lambda x: x.sum()).lower(x).comms().nbytes
        6
        """
        whole = self._specialized.cached_trace.closed.function  # the graph may be of one process
        return _comms_reports[-1](whole, self.arguments, topology)

    def times(self, step: str) -> str:
        """Return the passes of a step and their times as text."""
        return ", ".join(f"{name} {ms:.1f} ms" for name, ms in self.pass_times(step).items()) \
            or "no pass of its own"

    def pass_times(self, step: str) -> dict[str, float]:
        """Return pass -> milliseconds of a step; cached passes are run again."""
        pass_ms = dict(self.milliseconds)
        for ran in self.passes:
            if ran.name not in self.milliseconds:
                pass_ms[ran.name] = pass_ms.get(ran.name, 0.0) + ran.milliseconds
        return {name: pass_ms[name] for name, pass_step in self._step_of.items()
                if pass_step == step and name in pass_ms}

    def llvm(self) -> str:
        """Return the LLVM IR of the distinct kernels."""
        return "\n".join(code.text() for code in self._distinct_codes())

    def assembly(self) -> str:
        """Return the assembly of the distinct kernels."""
        return "\n".join(self._device.assembly(code.text()) for code in self._distinct_codes())

    def _repr_html_(self) -> str:
        texts = [(name, self.times(name), self.text(name)) for name in STEPS]
        small = len(toposort([self.graph], into_functions=True)) <= MAX_DRAWN_NODES
        drawings = [self.draw("graph")] * small + [self.draw("memory")] * bool(self.arena)
        return lowering_html.page(repr(self)[1:-1], self.rows, texts,
                                  [(drawing.summary, drawing.svg()) for drawing in drawings])

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
        times: list[RunTimes] = []
        traces: list[RunTrace] = []
        try:
            if measured:
                traces = self._recorded(_TIMED_CALLS)
                times = run_times(self.commands, traces)
        except FnxError as e:
            why = e.message
        result = self._roofline(self._limits(False), times, why)
        remeasure = any(row.limit is not None and row.limit > _REMEASURE_RATIO
                        for row in result.rows)
        result = self._roofline(self._limits(True), times, why) if remeasure else result
        result.slowdown = slowdown(traces, result.total)
        return result

    def _roofline(self, limits: PeakRates | None, times: Sequence[RunTimes],
                  why: str) -> Roofline:
        rows = []
        for i, ((name, line, loops, work, nbytes, _, origin), info) in enumerate(
                zip(self.rows, self.kernels)):
            arithmetic = arithmetic_type(info.node)
            least, bound = (None, "") if limits is None or not arithmetic else \
                limits.min_time(work, nbytes, arithmetic)
            spent, runs = times[i] if times else (None, info.runs)
            memory_time = 0.0 if limits is None else limits.min_time(0, nbytes)[0]
            predicted = max(memory_time, self._device.estimate(info.node, info.scalars))
            rows.append(KernelCost(name, line, loops, origin, work, nbytes, predicted, spent, least,
                                   bound, runs, info.loop, bool(arithmetic),
                                   info.node.op is ops.CALLBACK))
        return Roofline(rows, limits, why)

    def view(self, port: int = 0, browser: bool = True) -> Any:
        """Serve an interactive local web page of all steps.

        It shows the graph after each pass and the rules that matched, kernels at every level, a
        timeline of a call with the work of each worker and the memory in use, the live ranges of
        buffers, and the source lines.

        The process serves the page. If ``view()`` is the last line of a script, the process stays
        until Ctrl-C; without a terminal, until the browser has asked for nothing for a minute;
        without both, it ends with the script.

        Args:
            port: the port; 0 for a free one.
            browser: whether to open the page in a browser. If not, nothing keeps the process:
                print the ``url``, and ``wait()``.

        Returns:
            A Page with the ``url`` (which ends in a random token that every request needs),
            ``wait()`` and ``close()``; also a context manager.

        Raises:
            ArgumentError: the port is in use.

        >>> import fnx, fnx.numpy as jnp
        >>> with fnx.jit(jnp.tanh).lower(jnp.zeros(3)).view(browser=False) as page:
        ...     page.url                                              # doctest: +ELLIPSIS
        'http://127.0.0.1:.../.../'
        """
        return server.serve([(self._name, lambda: self)], port, browser)

    def draw(self, what: str = "graph") -> Drawing:
        """Draw the program: for a notebook, or for a file.

        Args:
            what: "graph", the operations of the function as traced; "time", when each kernel runs,
                in a call made for this; "memory", where each buffer between kernels is.

        Returns:
            A picture, which a notebook shows; ``save(path)`` writes it as SVG.

        Raises:
            ArgumentError: ``what`` is something else, or the program may not be run for "time".

        >>> import fnx, fnx.numpy as jnp
        >>> fnx.jit(lambda x: jnp.exp(x) + 1).lower(jnp.zeros(3)).draw()
        <picture: 5 nodes>
        """
        if what == "graph":
            return graph_drawing(self.graph)
        if what == "time":
            return time_drawing(self.timeline.runs)
        if what != "memory":
            raise ArgumentError(f"draw: expected 'graph', 'time' or 'memory', got {what!r}")
        return memory_drawing(arena_buffers(self.commands), self.arena, len(self.commands.src))

    # ---- text of each step

    @cached_property
    def rows(self) -> list[lowering_html.KernelRow]:
        """For each command: name, line, loops, arithmetic operations, bytes, schedule and its
        origin."""
        return [(*name_and_line(k.name), format_loops(k.node), k.flops, k.bytes,
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
        return self._recorded(1)[0]

    def _recorded(self, most: int) -> list[RunTrace]:
        if self._record_calls is None:
            raise ArgumentError("expected a program of a device")
        return self._record_calls(most)

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
    def lines(self) -> Collection[Location]:
        """The user's lines of the trace; those of all nodes if they are not known."""
        nodes = toposort([self.graph], into_functions=True)
        return self._lines or {loc for n in nodes for loc in n.locs}

    @cached_property
    def _schedules(self) -> dict[UOp, tuple[str, str]]:
        """For each tiled kernel, its schedule on one line and its origin."""
        result: dict[UOp, tuple[str, str]] = {}
        schedule = "", ""
        for ran in self.passes:
            if ran.name == "choose":
                schedule = (", ".join(map(repr, ran.after.schedule)),
                            schedule_reasons.origin(ran.before))
            elif ran.name in STEPS["tiled"]:
                result.update((k, schedule) for k in getattr(ran.after, "graphs", ()))
        return result

    def _distinct_codes(self) -> list[Any]:
        return [self._code[k] for k in self._distinct_kernels() if k in self._code]

    def _distinct_kernels(self) -> list[UOp]:
        return list(dict.fromkeys(k.node for k in self.kernels))

    def _pretty(self, nodes: UOp | list[UOp]) -> str:
        return show.pretty(nodes, locs=self.lines, inputs=self._input_names,
                           scopes=nodes is not self.commands)

    def _groups(self) -> str:
        fusion = next(ran.after for ran in self.passes if ran.name == "kernelize")
        return "\n".join(show.pretty_groups(fusion.groups, self.lines, self._input_names))

    def _untiled(self) -> str:
        kernels = dict.fromkeys(ran.after.kernel for ran in self.passes
                                if ran.name == "canonicalize")
        return self._pretty(list(kernels))

    def _schedules_text(self) -> str:
        """Return the decisions that passes report, and the schedule of each kernel."""
        why = dict.fromkeys(line for ran in self.passes for line in ran.why)
        texts = [schedule_reasons.explain(ran.before, ran.after)
                 for ran in self.passes if ran.name == "choose"]
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
