"""FUNCTIONs after the tensor passes -> Blocks: fusion, the kernel passes, memory and commands.

    FUNCTION -> groups -> KERNELs -> launches, each after those of the bodies in it -> COMMANDS

pipeline.py has the passes; a body that several loops run is lowered once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from fnx.core.ir import accessors, build, ops
from fnx.core.ir.tiling import Schedule
from fnx.core.ir.uop import UOp
from fnx.core.support.process import lazy_import
from fnx.core.support.record import Record
from fnx.lower.analysis.memory import (
    ALIGNMENT,
    alignment_of,
    nodes_of,
    set_alignments,
    temporary_buffer,
)
from fnx.lower.control_flow import CarriedPairs, distinct_results, expand_control_flow
from fnx.lower.driver import Driver, Pass, reuse_orders
from fnx.lower.fusion.kernel_steps import ControlFlowStep, KernelStep
from fnx.lower.fusion.unique_results import results_of, unique_results
from fnx.lower.kernel.canonicalize_operand_order import canonicalize_operand_order
from fnx.lower.memory.buffer_sharing import AliasPair
from fnx.lower.memory.commands import Block, Launch, Launches, LaunchKind
from fnx.lower.memory.in_place import (
    aliasable_rows,
    aliasable_slots,
    copied_slots,
    scatter_updates,
)
from fnx.lower.target_lowerings import TARGET_LOWERINGS, ScheduledKernels, ScheduleInput

is_candidate = lazy_import("fnx.lower.loops.loop_kernels", "is_candidate")
opaque_launch = lazy_import("fnx.lower.opaque_launches", "opaque_launch")


class BlockPasses(Record):
    """The passes of a Block: those that form kernels, those of each kernel, those of commands."""

    fusion: tuple[Pass, ...]
    kernel: tuple[Pass, ...]
    commands: tuple[Pass, ...]


class Blocks:
    """Lowers FUNCTIONs to Blocks after the tensor passes; each body once.

    Args:
        driver: runs the passes.
        ready: called with the kernel of each launch, before the next one is tiled.
        passes: those after the tensor passes.
        schedules: returns the schedule of a generated kernel, or None: the heuristic chooses.
    """

    def __init__(self, driver: Driver, ready: Callable[[UOp], None], passes: BlockPasses,
                 schedules: Callable[[UOp], Schedule | None] | None = None) -> None:
        self.driver, self.ready, self.passes, self.schedules = driver, ready, passes, schedules
        self.cache: dict[tuple[UOp, tuple[int, ...], tuple[int, ...], CarriedPairs], Block] = {}
        self.bodies = 0  # number of bodies being lowered

    def lower_body(self, fn: UOp, ins: tuple[int, ...], outs: tuple[int, ...],
                   carried: CarriedPairs = ()) -> Block:
        """Return the Block of a body: each result has its own buffer, with the given alignments.
        Its kernels are not compiled yet if they may become parts of one kernel for the whole
        loop."""
        key = fn, ins, outs, carried
        if key not in self.cache:
            self.bodies += 1
            block = self.cache[key] = self.lower(distinct_results(fn), None, ins, outs, carried)
            self.bodies -= 1
            target = self.driver.target
            if not (TARGET_LOWERINGS[target.kind].loop_kernels and
                    is_candidate(block.commands, target)):
                for run in accessors.all_execs(block.commands):
                    if run.src[0].op is not ops.CALLBACK:
                        self.ready(run.src[0])
        return self.cache[key]

    def lower(self, fn: UOp, fixed_lengths: frozenset[int] | None, ins: Sequence[int] = (),
              outs: Sequence[int] = (), carried: CarriedPairs = ()) -> Block:
        """Lower a FUNCTION to a Block.

        Args:
            fn: the FUNCTION.
            fixed_lengths: if given, other constants and lengths become kernel arguments.
            ins, outs: alignments of parameters and results; by default ``ALIGNMENT``.
            carried: (result, parameter) pairs: the result may be written over the parameter.
        """
        if carried:
            fn = scatter_updates(fn, unique_results(fn).src, carried)
        steps: list[KernelStep | ControlFlowStep] = self.driver.run(self.passes.fusion, fn)
        results = unique_results(fn).src
        alignments = dict(zip(results, outs))
        alignments.update((p, ins[slot]) for slot, p in (build.params(fn) if ins else {}).items())

        def alignment(node: UOp) -> int:
            return alignments.get(node, ALIGNMENT)

        launches: list[LaunchKind] = []
        for step in steps:
            launches_of_step = [step] if isinstance(step, KernelStep) else \
                expand_control_flow(step, self.lower_body, alignment)
            for part in launches_of_step:
                if isinstance(part, KernelStep):
                    with reuse_orders():
                        launches += self._launches(part, fixed_lengths, alignment)
                else:
                    launches.append(part)
        unaligned = frozenset([node for node, n in alignments.items() if n < ALIGNMENT])
        block: Block = self.driver.run(self.passes.commands, Launches(
            results, results_of(fn), launches, carried, unaligned,
            bool(self.driver.target.max_buffers)))
        return block

    def _schedule_input(self, step: KernelStep, fixed_lengths: frozenset[int] | None,
                        alignment: Callable[[UOp], int]) -> ScheduleInput:
        """Run the kernel passes, and look up the schedule of a generated kernel."""
        kernel = set_alignments(step.kernel, [alignment_of(o, alignment) for o in step.operands])
        # with many shapes few states recur
        run_passes = self.driver.run_cached if fixed_lengths is None else self.driver.run
        work: ScheduleInput = run_passes(self.passes.kernel,
                                         ScheduleInput(kernel, step.schedule, fixed_lengths,
                                                       is_generated=step.is_generated))
        if work.schedule is None and fixed_lengths is None and self.schedules is not None:
            return work.replace(schedule=self.schedules(work.kernel))
        return work

    def _launches(self, step: KernelStep, fixed_lengths: frozenset[int] | None,
                  alignment: Callable[[UOp], int]) -> Iterator[Launch]:
        """Yield a kernel under its schedule, after the kernels that pack its operands."""
        lowering = TARGET_LOWERINGS[self.driver.target.kind]
        if step.kernel.op is not ops.KERNEL:
            launch: Launch = opaque_launch(step, lowering, fixed_lengths is None)
            if launch.kernel.op is not ops.CALLBACK and not self.bodies:
                self.ready(launch.kernel)
            yield launch
            return
        if fixed_lengths is not None and step.schedule is None:
            step = canonicalize_operand_order(step)
        work = self._schedule_input(step, fixed_lengths, alignment)
        tiled: ScheduledKernels = self.driver.run_cached(
            lowering.tiling, ScheduleInput(work.kernel, work.schedule))
        shares, copies = self.driver.memoize("in place", step.kernel, lambda: (
            aliasable_slots(step.kernel), copied_slots(step.kernel)))
        main = tiled.parts[-1]
        rows = self.driver.memoize("rows in place", main.kernel,
                                   lambda: aliasable_rows(main.kernel))
        shares = (*shares, *[(main.refs[written], main.refs[read]) for written, read in rows])
        packed = [temporary_buffer(ref, work.scalars) for ref in tiled.temporaries]
        operands = [*step.operands, *packed]
        buffer_nodes = nodes_of(operands)
        whole_buffers = [o if isinstance(o, UOp) and buffer_nodes.count(o) == 1 else None
                         for o in operands]

        def nodes(pair: tuple[int, int]) -> Iterator[AliasPair]:
            written, read = whole_buffers[pair[0]], whole_buffers[pair[1]]
            if written is not None and read is not None:
                yield written, read

        for part in () if self.bodies else reversed(tiled.parts):  # slowest to compile
            self.ready(part.kernel)  # comes first
        for part in tiled.parts:
            used = [operands[i] for i in part.refs]
            writes = nodes_of([used[slot] for slot in accessors.written_slots(part.kernel)])
            is_main = part is main
            yield Launch(part.kernel, tuple(used), tuple([work.scalars[i] for i in part.scalars]),
                         step.locs, tuple(writes),
                         tuple([p for pair in shares if is_main for p in nodes(pair)]),
                         next(nodes(copies), None) if copies else None)
