"""The whole compiler as a readable list of passes: a FUNCTION becomes a Block of commands.

    FUNCTION_PASSES   FUNCTION -> FUNCTION -> groups -> untiled KERNELs
    KERNEL_PASSES     each KERNEL: fewer loops, canonical numbering
    machine.tiling    each distinct KERNEL: a schedule, loops, packing kernels
    machine.code      each distinct tiled KERNEL: elementary ops, a PROGRAM, text
    COMMAND_PASSES    all launches: memory, then COMMANDS
    LOOP_PASSES       COMMANDS of the whole program: loops that become kernels

``passes(target)`` returns all of them in one list; lower/machines.py has those that depend on the
kind of target. The driver (lower/driver.py) times each, checks the spec on both sides, and reports
to ``keep``.

>>> from fnx.core import build, dtypes
>>> x = build.param(0, dtypes.float32, (8,))
>>> target = Target("interp", kind="kernels")
>>> lowered = lower(build.function([build.exp(build.add(x, x))], 1), target)
>>> [command.src[0].arg.name for command in lowered.block.commands.src]
['map_exp_add']
>>> " ".join(step.name for step in passes(target))
'inline folded_windows parts_of_sums chunked simplify one_kernel turned decide one_hots pair_folds
blockwise split_reduce few_parts unique_results kernelize ranges slices widen outer_factors
coalesce columns index_sets row_epilogues runtime_extents canonical choose tile split_global memory
commands loop_kernels'
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial, wraps

from fnx.core import build, dtypes, op_args, ops, parts
from fnx.core.dtypes import STORED
from fnx.core.errors import labelled
from fnx.core.process import deferred
from fnx.core.program import KernelCode
from fnx.core.record import Record
from fnx.core.rewriting.evaluate import evaluate
from fnx.core.target import Target
from fnx.core.tiling import Schedule
from fnx.core.uop import UOp, rebuild, substitute, toposort
from fnx.lower.blockwise.products import may_have_products
from fnx.lower.bodies import Carried, distinct_results, expand
from fnx.lower.commands import AnyLaunch, Block, Launch, Launches, commands, plan_memory
from fnx.lower.donated import donated_pairs
from fnx.lower.driver import Driver, Pass, Ran
from fnx.lower.fusion.bindings import within_bindings
from fnx.lower.fusion.kernelize import Fusion
from fnx.lower.fusion.ranges import BodyStep, StepBody, build_kernels
from fnx.lower.fusion.unique_results import results_of, unique_results
from fnx.lower.in_place import copied_slots, shared_slots
from fnx.lower.kernel.canonical import canonical
from fnx.lower.kernel.coalesce import coalesce
from fnx.lower.kernel.columns import columns
from fnx.lower.kernel.index_sets import split_index_sets
from fnx.lower.kernel.left_first import left_first
from fnx.lower.kernel.outer_factors import outer_factors
from fnx.lower.kernel.row_epilogues import row_epilogues as stage_rows
from fnx.lower.kernel.runtime_extents import generalize
from fnx.lower.kernel.slices import slices
from fnx.lower.machines import MACHINES, Tiled, Work
from fnx.lower.memory import ALIGNMENT, alignment_of, nodes_of
from fnx.lower.program.codegen import kernel_code
from fnx.lower.program.sorting import of_any_length
from fnx.lower.schedule import contraction
from fnx.lower.schedule.cost import cycles
from fnx.lower.sharing import WrittenRead
from fnx.lower.tensor.decide import OUTCOMES, decide
from fnx.lower.tensor.few_parts import few_parts
from fnx.lower.tensor.inline import inline
from fnx.lower.tensor.one_hots import one_hots
from fnx.lower.tensor.pair_folds import pair_folds
from fnx.lower.tensor.simplify import RULES, simplify
from fnx.lower.tensor.split_reduce import split_reduce
from fnx.lower.written_parts import parts_in_place

# Passes for rare ops are loaded on first use.
folded_windows = deferred("fnx.lower.tensor.folded_windows", "folded_windows")
parts_of_sums = deferred("fnx.lower.tensor.parts_of_sums", "parts_of_sums")
chunked = deferred("fnx.lower.loops.chunked", "chunked")
one_kernel = deferred("fnx.lower.loops.one_kernel", "one_kernel")
single_carries = deferred("fnx.lower.loops.single_carries", "single_carries")
turned = deferred("fnx.lower.loops.turned", "turned")
loops_as_kernels = deferred("fnx.lower.loops.loop_kernels", "loop_kernels")
is_candidate = deferred("fnx.lower.loops.loop_kernels", "is_candidate")
arena_bytes = deferred("fnx.lower.loops.loop_memory", "arena_bytes")
widen = deferred("fnx.lower.kernel.widen", "widen")
by_blocks = deferred("fnx.lower.blockwise.blockwise", "blockwise")


def on_kernel(run: Callable[[UOp], UOp], by_hand: bool = True) -> Callable[[Work], Work]:
    """Lift a function of KERNELs to one of Works. ``by_hand``: also apply it to user-written
    kernels."""
    @wraps(run)
    def on_work(work: Work) -> Work:
        made = run(work.kernel) if by_hand or work.schedule is None else work.kernel
        return work if made is work.kernel else work.replace(kernel=made)
    return on_work


@wraps(stage_rows)
def row_epilogues(work: Work) -> Work:  # a contraction is tiled together with its epilogue
    if work.general or work.schedule is not None or contraction.find(work.kernel) is not None:
        return work
    made = stage_rows(work.kernel)
    return work if made is work.kernel else work.replace(kernel=made)


def runtime_extents(work: Work, target: Target) -> Work:
    """Turn lengths and constants into arguments. The tiles of a contraction depend on its lengths,
    so it gets its schedule first. Skipped if the target limits the steps of a thread: unknown
    lengths could not be checked against that limit."""
    if not work.general or work.schedule is not None and not work.of_loop or target.steps:
        return work
    kernel, steps = work.kernel, None
    if contraction.find(kernel) is not None:
        kernel = canonical(kernel)
        found = contraction.find(kernel)
        steps = None if found is None else MACHINES[target.kind].products(found, target)
        if steps is None:
            return work
    kernel, scalars = generalize(kernel)
    return work.replace(kernel=kernel, scalars=scalars, schedule=steps)


@wraps(one_kernel)
def loops_in_kernels(fn: UOp, target: Target) -> UOp:
    if not target.wide:
        fn = single_carries(fn)
    made: UOp = one_kernel(fn, buffers=target.buffers, steps=target.steps)
    return made


@wraps(loops_as_kernels)
def loop_kernels(commands: UOp, target: Target) -> UOp:
    machine = MACHINES[target.kind]
    if not machine.loops:
        return commands

    def tiled(kernel: UOp) -> UOp:
        made: Tiled = Driver(target).once(machine.tiling, Work(kernel, None))
        return made.parts[-1].kernel
    found: UOp = loops_as_kernels(commands, target, tiled)
    return found


def loop_decisions(fn: UOp, _: UOp) -> list[str]:
    """Report what becomes of each loop, and why."""
    found: list[str] = []

    def tell(loop: UOp, what: str) -> None:
        found.append(f"{labelled(f'{loop.op.name.lower()} {loop.arg.name}', loop.sites)}: {what}")
    on_bodies(partial(one_kernel, tell=tell))(fn)
    return found


def block_decisions(fn: UOp, after: UOp) -> list[str]:
    """Report what becomes of products that are only summed, and why."""
    found: list[str] = []
    reader = Target("reader")

    def tell(product: UOp, what: str) -> None:
        if fn is not after or not what.startswith("computed"):  # another target has other loops
            found.append(f"{labelled('product', product.sites)}: {what}")
    for body in toposort([fn], into_functions=True):
        if body.op is ops.FUNCTION and may_have_products(body):
            by_blocks(body, reader, partial(predicted_time, target=reader), tell)
    return found


def full_kernels(_: UOp, fusion: Fusion) -> list[str]:
    """Report which kernels end early because they reached the work limit."""
    lines = []
    for i, g in enumerate(fusion.groups):
        if g.beyond:
            names = [labelled(node.op.name, node.sites) for node in dict.fromkeys(g.beyond)]
            lines.append(f"group {i}: full ({g.work} additions): it reads {names[0]} from memory"
                         + f", and {len(names) - 1} more" * (len(names) > 1))
    return lines


def on_bodies(run: Callable[[UOp], UOp]) -> Callable[[UOp], UOp]:
    """Lift a function of FUNCTIONs without bodies to one that also rewrites each distinct body."""
    @wraps(run)
    def on_each(fn: UOp) -> UOp:
        done: dict[UOp, UOp] = {}
        for body in toposort([fn], into_functions=True):
            if body.op is ops.FUNCTION:
                done[body] = run(body.over(tuple(substitute(body.src, done))))
        return done[fn]
    return on_each


def on_bodies_of(run: Callable[[UOp, Target], UOp]) -> Callable[[UOp, Target], UOp]:
    """As ``on_bodies``, for functions that also take the target."""
    @wraps(run)
    def on_each(fn: UOp, target: Target) -> UOp:
        return on_bodies(lambda body: run(body, target))(fn)
    return on_each


@wraps(by_blocks)
def blockwise(fn: UOp, target: Target) -> UOp:  # its kernels need loops and vectors
    machine = MACHINES[target.kind]
    if "VEC" not in machine.kinds:
        return fn
    in_order = bool(machine.code)  # else NumPy's order of summation depends on the layout

    def by_blocks_if_any(body: UOp) -> UOp:
        if not may_have_products(body):
            return body
        made: UOp = by_blocks(body, target, partial(predicted_time, target=target), again=in_order)
        return made
    return on_bodies(by_blocks_if_any)(fn)


def predicted_time(fn: UOp, target: Target) -> float:
    """Return the predicted cycles of the kernels of a FUNCTION without bodies, if its products stay
    as they are."""
    driver = Driver(target)
    total = 0.0
    for step in driver.run((*AFTER_BLOCKS, *FUSION_PASSES), fn):
        work = driver.once(KERNEL_PASSES, Work(step.kernel, step.schedule, of_loop=step.of_loop))
        tiled: Tiled = driver.once(MACHINES[target.kind].tiling, work)
        total += sum([cycles(part.kernel, target) for part in tiled.parts])
    return total


CALLING = frozenset({ops.CALL, ops.CUSTOM})
FOLDED, PARTS = frozenset({ops.FOLD}), frozenset({ops.SHRINK})
KERNELS = frozenset({ops.KERNEL})
LOOPING = frozenset({ops.SCAN, ops.WHILE})
DECIDED = frozenset({*OUTCOMES, ops.GATHER})
REDUCED = frozenset({ops.REDUCE})
EQUAL = frozenset({ops.CMPEQ})
CHOOSING = frozenset({ops.WHERE})
JOINED = frozenset({ops.CONCAT})

AFTER_BLOCKS = (
    Pass("split_reduce", on_bodies_of(split_reduce), "tensor", "tensor", about=REDUCED,
         of_target=True),
    Pass("few_parts", on_bodies_of(few_parts), "tensor", "tensor", about=JOINED, of_target=True),
)
TENSOR_PASSES = (
    Pass("inline", inline, "tensor", "tensor", about=CALLING),
    Pass("folded_windows", on_bodies(folded_windows), "tensor", "tensor", about=FOLDED),
    Pass("parts_of_sums", on_bodies(parts_of_sums), "tensor", "tensor", about=PARTS),
    Pass("chunked", on_bodies_of(chunked), "tensor", "tensor", about=LOOPING, of_target=True),
    Pass("simplify", simplify, "tensor", "tensor", rules=RULES),
    Pass("one_kernel", on_bodies_of(loops_in_kernels), "tensor", "tensor", about=LOOPING,
         of_target=True, why=loop_decisions),
    Pass("turned", on_bodies(turned), "tensor", "tensor", about=KERNELS),
    Pass("decide", on_bodies(decide), "tensor", "tensor", about=DECIDED),
    Pass("one_hots", on_bodies_of(one_hots), "tensor", "tensor", about=EQUAL, of_target=True),
    Pass("pair_folds", on_bodies(pair_folds), "tensor", "tensor", about=CHOOSING),
    Pass("blockwise", blockwise, "tensor", "tensor", about=REDUCED, of_target=True,
         why=block_decisions),
    *AFTER_BLOCKS,
)
FUSION_PASSES = (
    Pass("unique_results", unique_results, "tensor", "tensor"),
    Pass("kernelize", within_bindings, "tensor", "tensor", of_target=True, why=full_kernels),
    Pass("ranges", build_kernels, "tensor", "kernel"),
    Pass("slices", slices, "kernel", "kernel"),
)
KERNEL_PASSES = (
    Pass("widen", on_kernel(widen), "kernel", "kernel", about=STORED),
    Pass("outer_factors", on_kernel(outer_factors, by_hand=False), "kernel", "kernel",
         about=REDUCED),
    Pass("coalesce", on_kernel(coalesce, by_hand=False), "kernel", "kernel"),
    Pass("columns", on_kernel(columns, by_hand=False), "kernel", "kernel", about=CHOOSING),
    Pass("index_sets", on_kernel(split_index_sets, by_hand=False), "kernel", "kernel",
         about=CHOOSING),
    Pass("row_epilogues", row_epilogues, "kernel", "kernel", about=REDUCED),
    Pass("runtime_extents", runtime_extents, "kernel", "kernel", of_target=True),
    Pass("canonical", on_kernel(canonical), "kernel", "kernel"),
)
COMMAND_PASSES = (
    Pass("memory", plan_memory, "kernel", "kernel"),
    Pass("commands", commands, "kernel", "command"),
)
LOOP_PASSES = (
    Pass("loop_kernels", loop_kernels, "command", "command", about=frozenset({ops.LOOP}),
         of_target=True),
)


def passes(target: Target) -> tuple[Pass, ...]:
    """Return all passes for a target, in execution order."""
    machine = MACHINES[target.kind]
    return (*TENSOR_PASSES, *FUSION_PASSES, *KERNEL_PASSES, *machine.tiling, *machine.code,
            *COMMAND_PASSES, *LOOP_PASSES)


class Lowered(Record):
    """The result of lowering, which jit links and replays, and which can be printed.

    Attributes:
        function: the tensor graph after the tensor passes.
        block: its commands, and what their slots refer to.
        code: how to print each KERNEL.
        milliseconds: time of each pass.
    """

    function: UOp
    block: Block
    code: dict[UOp, KernelCode]
    milliseconds: dict[str, float]


def lower(fn: UOp, target: Target, general: bool = False,
          prepare: Callable[[KernelCode], None] | None = None,
          keep: Callable[[Ran], None] | None = None, donated: Sequence[int] = (),
          schedules: Callable[[UOp], Schedule | None] | None = None) -> Lowered:
    """Lower a FUNCTION.

    Args:
        fn: a closed FUNCTION.
        target: the machine.
        general: turn loop lengths and constants into kernel arguments, if possible: for eager
            calls, which see many shapes.
        prepare: called with each kernel as it is ready, so that it can be compiled concurrently.
        keep: called after each pass. Each distinct kernel is printed then, and caches are
            bypassed.
        donated: parameters whose memory may be overwritten.
        schedules: returns the schedule of a generated kernel, or None: the heuristic chooses.
    """
    driver = Driver(target, keep)
    code: dict[UOp, KernelCode] = {}

    def ready(kernel: UOp) -> None:
        if kernel not in code:
            made = code[kernel] = kernel_code(kernel, driver)
            if prepare is not None:
                prepare(made)
            if keep is not None:
                made.text()

    blocks = Blocks(driver, ready, schedules)
    fn = driver.run(TENSOR_PASSES, fn)
    results = unique_results(fn).src
    over = donated_pairs(fn, results, donated)
    block = blocks.of(fn, general, carried=over)
    commands = driver.run(LOOP_PASSES, block.commands)
    if commands is not block.commands:
        block = block.replace(commands=commands, arena=max(block.arena, arena_bytes(commands)))
    for run in parts.executions(block.commands):
        if run.src[0].op is not ops.HOST:
            ready(run.src[0])
    return Lowered(fn, block, code, driver.milliseconds)


class Blocks:
    """Lowers FUNCTIONs to Blocks after the tensor passes; each body once.

    Args:
        driver: runs the passes.
        ready: called with the kernel of each launch, before the next one is tiled.
        schedules: as in ``lower``.
    """

    def __init__(self, driver: Driver, ready: Callable[[UOp], None],
                 schedules: Callable[[UOp], Schedule | None] | None = None) -> None:
        self.driver, self.ready, self.schedules = driver, ready, schedules
        self.made: dict[tuple[UOp, tuple[int, ...], tuple[int, ...], Carried], Block] = {}
        self.bodies = 0  # number of bodies being lowered

    def of_body(self, fn: UOp, ins: tuple[int, ...], outs: tuple[int, ...],
                carried: Carried = ()) -> Block:
        """Return the Block of a body: each result has its own buffer, with the given alignments.
        Its kernels are not compiled yet if they may become parts of one kernel for the whole
        loop."""
        key = fn, ins, outs, carried
        if key not in self.made:
            self.bodies += 1
            block = self.made[key] = self.of(distinct_results(fn), False, ins, outs, carried)
            self.bodies -= 1
            target = self.driver.target
            if not (MACHINES[target.kind].loops and is_candidate(block.commands, target)):
                for run in parts.executions(block.commands):
                    if run.src[0].op is not ops.HOST:
                        self.ready(run.src[0])
        return self.made[key]

    def of(self, fn: UOp, general: bool, ins: Sequence[int] = (), outs: Sequence[int] = (),
           carried: Carried = ()) -> Block:
        """Lower a FUNCTION to a Block.

        Args:
            fn: the FUNCTION.
            general: as in ``lower``.
            ins, outs: alignments of parameters and results; by default ``ALIGNMENT``.
            carried: (result, parameter) pairs: the result may be written over the parameter.
        """
        fn = parts_in_place(fn, unique_results(fn).src, carried)
        steps: list[StepBody | BodyStep] = self.driver.run(FUSION_PASSES, fn)
        results = unique_results(fn).src
        aligned = dict(zip(results, outs))
        aligned.update((p, ins[slot]) for slot, p in (build.params(fn) if ins else {}).items())

        def alignment(node: UOp) -> int:
            return aligned.get(node, ALIGNMENT)

        launches: list[AnyLaunch] = []
        for step in steps:
            made = [step] if isinstance(step, StepBody) else expand(step, self.of_body, alignment)
            for part in made:
                if isinstance(part, StepBody):
                    launches += self._launches(part, general, alignment)
                else:
                    launches.append(part)
        unaligned = frozenset([node for node, n in aligned.items() if n < ALIGNMENT])
        block: Block = self.driver.run(COMMAND_PASSES, Launches(
            results, results_of(fn), launches, carried, unaligned,
            bool(self.driver.target.buffers)))
        return block

    def _launches(self, step: StepBody, general: bool, alignment: Callable[[UOp], int]
                  ) -> Iterator[Launch]:
        """Yield a kernel under its schedule, after the kernels that pack its operands."""
        if step.kernel.op is ops.HOST:
            yield Launch(step.kernel, step.operands, (), step.sites, step.writes)
            return
        driver = self.driver
        if step.kernel.op is ops.SORT:
            shared = general and MACHINES[driver.target.kind].sorts
            sort, scalars = of_any_length(step.kernel) if shared else (step.kernel, ())
            if not self.bodies:
                self.ready(sort)
            yield Launch(sort, step.operands, scalars, step.sites, step.writes)
            return
        if general and step.schedule is None:
            step = left_first(step)
        kernel = realigned(step.kernel, [alignment_of(o, alignment) for o in step.operands])
        through = driver.run if general else driver.once  # with many shapes few states recur
        work: Work = through(KERNEL_PASSES, Work(kernel, step.schedule, general,
                                                 of_loop=step.of_loop))
        schedule = work.schedule
        if schedule is None and not general and self.schedules is not None:
            schedule = self.schedules(work.kernel)
        tiled: Tiled = driver.once(MACHINES[driver.target.kind].tiling,
                                   Work(work.kernel, schedule))
        shares, copies = driver.remember("in place", step.kernel, lambda: (
            shared_slots(step.kernel), copied_slots(step.kernel)))
        operands = [*step.operands, *[_temporary(ref, work.scalars) for ref in tiled.temporaries]]
        once = nodes_of(operands)
        whole = [o if isinstance(o, UOp) and once.count(o) == 1 else None for o in operands]

        def nodes(pair: tuple[int, int]) -> Iterator[WrittenRead]:
            to, source = whole[pair[0]], whole[pair[1]]
            if to is not None and source is not None:
                yield to, source

        for part in () if self.bodies else reversed(tiled.parts):  # slowest to compile
            self.ready(part.kernel)  # comes first
        for part in tiled.parts:
            used = [operands[i] for i in part.refs]
            writes = nodes_of([used[slot] for slot in parts.written_slots(part.kernel)])
            main = part is tiled.parts[-1]
            yield Launch(part.kernel, tuple(used), tuple([work.scalars[i] for i in part.scalars]),
                         step.sites, tuple(writes),
                         tuple([p for pair in shares if main for p in nodes(pair)]),
                         next(nodes(copies), None) if copies else None)


def realigned(kernel: UOp, alignments: Sequence[int]) -> UOp:
    """Set the alignments of the KERNEL's buffers in its REFs, which are part of its cache key."""
    if all(a == ALIGNMENT for a in alignments):
        return kernel

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is not ops.REF:
            return None
        arg = node.arg
        return node.replace(src=src, arg=arg.replace(alignment=alignments[arg.slot]))
    return rebuild([kernel], visit)[0]


def _temporary(ref: UOp, scalars: Sequence[UOp]) -> UOp:
    """Return a new buffer for what a GLOBAL stage packs."""
    lengths: dict[UOp | int, int] = {i: build.const_of(s) for i, s in enumerate(scalars)
                                     if s.dtype is dtypes.index}
    shape = tuple([evaluate(d, lengths) for d in ref.src])
    return UOp(ops.BUFFER, ref.dtype, (), op_args.Buffer(object(), shape))
