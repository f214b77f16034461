"""The whole compiler as a readable list of passes: a FUNCTION becomes a Block of commands.

    TENSOR_PASSES           FUNCTION -> FUNCTION
    FUSION_PASSES           FUNCTION -> groups -> untiled KERNELs
    KERNEL_PASSES           each KERNEL: fewer loops, canonical numbering
    TargetLowering.tiling   each distinct KERNEL: a schedule, loops, packing kernels
    TargetLowering.code     each distinct tiled KERNEL: elementary ops, a PROGRAM, text
    COMMAND_PASSES          all launches: memory, then COMMANDS
    LOOP_PASSES             COMMANDS of the whole program: loops that become kernels

``passes(target)`` returns all of them in one list; lower/target_lowerings.py has those that depend
on the kind of target. The driver (lower/driver.py) times each, checks the spec on both sides, and
reports to ``on_pass``.

>>> from fnx.core.ir import build, dtypes
>>> x = build.param(0, dtypes.float32, (8,))
>>> target = Target("interp", kind="kernels")
>>> lowered = lower(build.function([build.exp(build.add(x, x))], 1), target)
>>> [command.src[0].arg.name for command in lowered.block.commands.src]
['map_exp_add']
>>> " ".join(step.name for step in passes(target))
'inline collectives_to_callbacks unroll_linalg interleave_linalg complex_to_real select_from_sort
sort_by_network plan_fft conv_input_gradient_to_contraction push_slice_through_reduce
select_branches drop_stand_ins two_pass_scan push_gather_to_operands simplify fuse_loop_into_kernel
fold_transposes fold_comparisons one_hot_to_gather fuse_argreduce elementwise_before_permute
attention push_reduce_through_reshape split_reduction split_concat_by_buffer_limit unique_results
kernelize ranges fold_slices promote_to_compute_dtype hoist_scalar_factors coalesce
split_by_divisor unroll_columns split_index_sets row_blocks row_epilogues runtime_extents
canonicalize choose tile split_global overlap_collectives memory commands loop_kernels
guarded_commands'
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps

from fnx.core.ir import accessors, ops
from fnx.core.ir.dtypes import COMPLEX, STORAGE_ONLY
from fnx.core.ir.kernel_code import KernelCode
from fnx.core.ir.tiling import Schedule
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import Location
from fnx.core.support.process import lazy_import
from fnx.core.support.record import Record
from fnx.core.support.target import Target
from fnx.lower.analysis.canonicalize import canonicalize
from fnx.lower.analysis.program_lines import choose_lines
from fnx.lower.analysis.split_index_sets import split_index_sets
from fnx.lower.analysis.workload import may_have_products
from fnx.lower.blocks import BlockPasses, Blocks
from fnx.lower.code_generation import kernel_code
from fnx.lower.driver import Driver, Pass, PassTrace, lift_to_bodies, reuse_orders
from fnx.lower.fusion.bindings import limit_bindings
from fnx.lower.fusion.kernel_steps import reads_slices
from fnx.lower.fusion.ranges import build_kernels
from fnx.lower.fusion.unique_results import unique_results
from fnx.lower.kernel.coalesce import coalesce
from fnx.lower.kernel.fold_slices import fold_slices
from fnx.lower.kernel.hoist_scalar_factors import hoist_scalar_factors
from fnx.lower.kernel.row_blocks import block_rows
from fnx.lower.kernel.row_epilogues import stage_row_epilogues as stage_rows
from fnx.lower.kernel.runtime_extents import generalize
from fnx.lower.kernel.split_by_divisor import split_by_divisor
from fnx.lower.kernel.unroll_columns import unroll_columns
from fnx.lower.memory.commands import Block, build_block, plan_memory
from fnx.lower.memory.in_place import (
    donated_pairs,
)
from fnx.lower.schedule import contraction
from fnx.lower.schedule.cost_model import kernel_cycles
from fnx.lower.target_lowerings import TARGET_LOWERINGS, ScheduledKernels, ScheduleInput
from fnx.lower.tensor.fold_comparisons import BOOLEAN_RULES, fold_comparisons
from fnx.lower.tensor.fuse_argreduce import fuse_argreduce
from fnx.lower.tensor.inline import inline
from fnx.lower.tensor.one_hot_to_gather import one_hot_to_gather
from fnx.lower.tensor.push_reduce_through_reshape import push_reduce_through_reshape
from fnx.lower.tensor.simplify import RULES, simplify
from fnx.lower.tensor.split_concat_by_buffer_limit import split_concat_by_buffer_limit
from fnx.lower.tensor.split_reduction import split_reduction

# Passes for rare ops are loaded on first use.
collectives_to_callbacks = lazy_import("fnx.lower.tensor.collectives_to_callbacks",
                                       "collectives_to_callbacks")
complex_to_real = lazy_import("fnx.lower.tensor.complex_to_real", "complex_to_real")
conv_input_gradient_to_contraction = lazy_import(
    "fnx.lower.tensor.conv_input_gradient_to_contraction", "conv_input_gradient_to_contraction")
select_from_sort = lazy_import("fnx.lower.tensor.select_from_sort", "select_from_sort")
sort_by_network = lazy_import("fnx.lower.tensor.sort_by_network", "sort_by_network")
plan_fft = lazy_import("fnx.lower.tensor.plan_fft", "plan_fft")
push_slice_through_reduce = lazy_import("fnx.lower.tensor.push_slice_through_reduce",
                                        "push_slice_through_reduce")
push_gather_to_operands = lazy_import("fnx.lower.tensor.push_gather_to_operands",
                                      "push_gather_to_operands")
interleave_linalg = lazy_import("fnx.lower.tensor.interleave_linalg", "interleave_linalg")
unroll_linalg = lazy_import("fnx.lower.tensor.unroll_linalg", "unroll_linalg")
two_pass_scan = lazy_import("fnx.lower.loops.two_pass_scan", "two_pass_scan")
select_branches = lazy_import("fnx.lower.tensor.select_branches", "select_branches")
drop_stand_ins = lazy_import("fnx.lower.tensor.drop_stand_ins", "drop_stand_ins")
elementwise_before_permute = lazy_import("fnx.lower.tensor.elementwise_before_permute",
                                         "elementwise_before_permute")
fuse_loop_into_kernel = lazy_import("fnx.lower.loops.fuse_loop_into_kernel",
                                    "fuse_loop_into_kernel")
double_float_carries = lazy_import("fnx.lower.loops.double_float_carries", "double_float_carries")
fold_transposes = lazy_import("fnx.lower.loops.fold_transposes", "fold_transposes")
loop_kernels = lazy_import("fnx.lower.loops.loop_kernels", "loop_kernels")
guarded_commands = lazy_import("fnx.lower.loops.guarded_commands", "guarded_commands")
arena_bytes = lazy_import("fnx.lower.loops.loop_memory", "arena_bytes")
promote_to_compute_dtype = lazy_import("fnx.lower.kernel.promote_to_compute_dtype",
                                       "promote_to_compute_dtype")
tile_attention = lazy_import("fnx.lower.attention.tile_attention", "tile_attention")
overlap_collectives = lazy_import("fnx.lower.memory.overlap_collectives", "overlap_collectives")
explain_full_kernels = lazy_import("fnx.lower.pass_reports", "explain_full_kernels")
explain_loops = lazy_import("fnx.lower.pass_reports", "explain_loops")
explain_regions = lazy_import("fnx.lower.pass_reports", "explain_regions")


def lift_to_kernel(run: Callable[[UOp], UOp],
                   user_written: bool = True) -> Callable[[ScheduleInput], ScheduleInput]:
    """Lift a function of KERNELs to one of ScheduleInputs. ``user_written``: also apply it to
    user-written kernels."""
    @wraps(run)
    def on_work(schedule_input: ScheduleInput) -> ScheduleInput:
        kernel = run(schedule_input.kernel) if user_written or schedule_input.schedule is None \
            else schedule_input.kernel
        return schedule_input if kernel is schedule_input.kernel \
            else schedule_input.replace(kernel=kernel)
    return on_work


@wraps(block_rows)
def row_blocks(work: ScheduleInput, target: Target) -> ScheduleInput:
    if work.fixed_lengths is not None or work.schedule is not None or target.threads > 1:
        return work
    kernel = block_rows(work.kernel, target)
    return work if kernel is work.kernel else work.replace(kernel=kernel)


@wraps(stage_rows)
# a contraction is tiled together with its epilogue
def row_epilogues(work: ScheduleInput) -> ScheduleInput:
    if work.fixed_lengths is not None or work.schedule is not None or \
            contraction.match_contraction(work.kernel) is not None:
        return work
    kernel = stage_rows(work.kernel)
    return work if kernel is work.kernel else work.replace(kernel=kernel)


def runtime_extents(work: ScheduleInput, target: Target) -> ScheduleInput:
    """Turn lengths and constants into arguments. The tiles of a contraction depend on its lengths,
    so it gets its schedule first. Skipped if the target limits the steps of a thread: unknown
    lengths could not be checked against that limit."""
    if work.fixed_lengths is None or work.schedule is not None and not work.is_generated or \
            target.max_steps:
        return work
    kernel, schedule = work.kernel, None
    if contraction.match_contraction(kernel) is not None:
        kernel = canonicalize(kernel)
        match = contraction.match_contraction(kernel)
        schedule = None if match is None \
            else TARGET_LOWERINGS[target.kind].contraction_schedule(match, target)
        if schedule is None:
            return work
    kernel, scalars = generalize(kernel, work.fixed_lengths)
    return work.replace(kernel=kernel, scalars=scalars, schedule=schedule)


@wraps(select_from_sort)
def select_ends(fn: UOp, target: Target) -> UOp:
    is_remote = TARGET_LOWERINGS[target.kind].is_remote
    return lift_to_bodies(partial(select_from_sort, is_remote=is_remote))(fn, target)


@wraps(plan_fft)
def plan_transforms(fn: UOp, target: Target) -> UOp:
    """Plan Fourier transforms in all bodies. A step is a program of vectors, or run by NumPy."""
    lowering = TARGET_LOWERINGS[target.kind]
    by_stages = bool(lowering.code) and not (lowering.native_programs and "VEC" in lowering.kinds)
    return lift_to_bodies(partial(plan_fft, by_stages=by_stages))(fn)


@wraps(fuse_loop_into_kernel)
def fuse_loops(fn: UOp, target: Target) -> UOp:
    if not target.has_64bit:
        fn = double_float_carries(fn)
    lowered: UOp = fuse_loop_into_kernel(fn, buffers=target.max_buffers, steps=target.max_steps)
    return lowered


def only_if(attribute: str, run: Callable[..., UOp], *more: Callable[..., UOp]
            ) -> Callable[[UOp, Target], UOp]:
    """Return a pass for the targets whose lowering has this attribute."""
    @wraps(run)
    def on_target(graph: UOp, target: Target) -> UOp:
        return run(graph, target, *[partial(f, target=target) for f in more]) \
            if getattr(TARGET_LOWERINGS[target.kind], attribute) else graph
    return on_target


def _tiled(kernel: UOp, target: Target) -> UOp:
    """Apply the chosen schedule to a KERNEL that packs nothing."""
    scheduled: ScheduledKernels = Driver(target).run_cached(
        TARGET_LOWERINGS[target.kind].tiling, ScheduleInput(kernel, None))
    return scheduled.parts[-1].kernel


@wraps(tile_attention)
def tile_regions(fn: UOp, target: Target) -> UOp:  # its kernels need loops and vectors
    lowering = TARGET_LOWERINGS[target.kind]
    if "VEC" not in lowering.kinds:
        return fn
    in_order = bool(lowering.code)  # else NumPy's order of summation depends on the layout

    def tile_body(body: UOp) -> UOp:
        if not may_have_products(body):
            return body
        tiled_body: UOp = tile_attention(body, target, partial(predicted_time, target=target),
                                         again=in_order)
        return tiled_body
    return lift_to_bodies(tile_body)(fn)


def predicted_time(fn: UOp, target: Target) -> float:
    """Return the predicted cycles of the kernels of a FUNCTION without bodies, if its products stay
    as they are."""
    driver = Driver(target)
    total = 0.0
    for step in driver.run((*POST_ATTENTION_PASSES, *FUSION_PASSES), fn):
        work = driver.run_cached(KERNEL_PASSES,
                                 ScheduleInput(step.kernel, step.schedule,
                                               is_generated=step.is_generated))
        tiled: ScheduledKernels = driver.run_cached(TARGET_LOWERINGS[target.kind].tiling, work)
        total += sum([kernel_cycles(part.kernel, target) for part in tiled.parts])
    return total


LOOP_OPS = frozenset({ops.SCAN, ops.WHILE})
REDUCE_OPS = frozenset({ops.REDUCE})
SELECT_OPS = frozenset({ops.WHERE})

POST_ATTENTION_PASSES = (
    Pass("push_reduce_through_reshape", lift_to_bodies(push_reduce_through_reshape), "tensor",
         "tensor", features=REDUCE_OPS),
    Pass("split_reduction", lift_to_bodies(split_reduction), "tensor", "tensor",
         features=REDUCE_OPS, takes_target=True),
    Pass("split_concat_by_buffer_limit", lift_to_bodies(split_concat_by_buffer_limit),
         "tensor", "tensor", features=frozenset({ops.CONCAT}), takes_target=True),
)
TENSOR_PASSES = (
    Pass("inline", inline, "tensor", "tensor", features=frozenset({ops.CALL, ops.CUSTOM})),
    Pass("collectives_to_callbacks", lift_to_bodies(collectives_to_callbacks), "tensor", "tensor",
         features=frozenset({ops.COLLECTIVE})),
    Pass("unroll_linalg", lift_to_bodies(unroll_linalg), "tensor", "tensor",
         features=frozenset({ops.LINALG}), takes_target=True),
    Pass("interleave_linalg", lift_to_bodies(interleave_linalg), "tensor", "tensor",
         features=frozenset({ops.LINALG}), takes_target=True),
    Pass("complex_to_real", complex_to_real, "tensor", "tensor", features=COMPLEX),
    Pass("select_from_sort", select_ends, "tensor", "tensor", features=frozenset({ops.SORT}),
         takes_target=True),
    Pass("sort_by_network", only_if("is_remote", lift_to_bodies(sort_by_network)), "tensor",
         "tensor", features=frozenset({ops.SORT}), takes_target=True),
    Pass("plan_fft", plan_transforms, "tensor", "tensor", features=frozenset({ops.FFT}),
         takes_target=True),
    Pass("conv_input_gradient_to_contraction", lift_to_bodies(conv_input_gradient_to_contraction),
         "tensor", "tensor", features=frozenset({ops.FOLD})),
    Pass("push_slice_through_reduce", lift_to_bodies(push_slice_through_reduce), "tensor", "tensor",
         features=frozenset({ops.SHRINK})),
    Pass("select_branches", lift_to_bodies(select_branches), "tensor", "tensor",
         features=frozenset({ops.COND})),
    Pass("drop_stand_ins", lift_to_bodies(drop_stand_ins), "tensor", "tensor",
         features=SELECT_OPS),
    Pass("two_pass_scan", lift_to_bodies(two_pass_scan), "tensor", "tensor", features=LOOP_OPS,
         takes_target=True),
    Pass("push_gather_to_operands", lift_to_bodies(push_gather_to_operands), "tensor", "tensor",
         features=frozenset({ops.GATHER})),
    Pass("simplify", simplify, "tensor", "tensor", rules=RULES),
    Pass("fuse_loop_into_kernel", lift_to_bodies(fuse_loops), "tensor", "tensor",
         features=LOOP_OPS, takes_target=True, why=explain_loops),
    Pass("fold_transposes", lift_to_bodies(fold_transposes), "tensor", "tensor",
         features=frozenset({ops.KERNEL})),
    Pass("fold_comparisons", lift_to_bodies(fold_comparisons), "tensor", "tensor",
         features=frozenset({*BOOLEAN_RULES, ops.GATHER})),
    Pass("one_hot_to_gather", lift_to_bodies(one_hot_to_gather), "tensor", "tensor",
         features=frozenset({ops.CMPEQ}), takes_target=True),
    Pass("fuse_argreduce", lift_to_bodies(fuse_argreduce), "tensor", "tensor",
         features=SELECT_OPS),
    Pass("elementwise_before_permute", lift_to_bodies(elementwise_before_permute), "tensor",
         "tensor", features=frozenset({ops.PERMUTE})),
    Pass("attention", tile_regions, "tensor", "tensor", features=REDUCE_OPS, takes_target=True,
         why=partial(explain_regions, predicted_time),
         needs=partial(may_have_products, into_functions=True)),
    *POST_ATTENTION_PASSES,
)
FUSION_PASSES = (
    Pass("unique_results", unique_results, "tensor", "tensor"),
    Pass("kernelize", limit_bindings, "tensor", "tensor", takes_target=True,
         why=explain_full_kernels),
    Pass("ranges", build_kernels, "tensor", "kernel"),
    Pass("fold_slices", fold_slices, "kernel", "kernel", needs=reads_slices),
)
KERNEL_PASSES = (
    Pass("promote_to_compute_dtype", lift_to_kernel(promote_to_compute_dtype), "kernel", "kernel",
         features=STORAGE_ONLY),
    Pass("hoist_scalar_factors", lift_to_kernel(hoist_scalar_factors, user_written=False), "kernel",
         "kernel", features=REDUCE_OPS),
    Pass("coalesce", lift_to_kernel(coalesce, user_written=False), "kernel", "kernel"),
    Pass("split_by_divisor", lift_to_kernel(split_by_divisor, user_written=False), "kernel",
         "kernel", features=frozenset({ops.IDIV, ops.REM})),
    Pass("unroll_columns", lift_to_kernel(unroll_columns, user_written=False), "kernel", "kernel",
         features=SELECT_OPS),
    Pass("split_index_sets", lift_to_kernel(split_index_sets, user_written=False), "kernel",
         "kernel", features=SELECT_OPS),
    Pass("row_blocks", row_blocks, "kernel", "kernel", features=REDUCE_OPS, takes_target=True),
    Pass("row_epilogues", row_epilogues, "kernel", "kernel", features=REDUCE_OPS),
    Pass("runtime_extents", runtime_extents, "kernel", "kernel", takes_target=True,
         needs=lambda work: work.fixed_lengths is not None),
    Pass("canonicalize", lift_to_kernel(canonicalize), "kernel", "kernel"),
)
COMMAND_PASSES = (
    Pass("overlap_collectives", overlap_collectives, "kernel", "kernel",
         needs=lambda launches: launches.has_started_collectives),
    Pass("memory", plan_memory, "kernel", "kernel"),
    Pass("commands", build_block, "kernel", "command"),
)
LOOP_PASSES = (
    Pass("loop_kernels", only_if("loop_kernels", loop_kernels, _tiled), "command", "command",
         features=frozenset({ops.CMD_LOOP}), takes_target=True),
    Pass("guarded_commands", only_if("is_remote", guarded_commands, _tiled), "command", "command",
         features=frozenset({ops.CMD_LOOP, ops.BRANCH}), takes_target=True),
)


def passes(target: Target) -> tuple[Pass, ...]:
    """Return all passes for a target, in execution order."""
    lowering = TARGET_LOWERINGS[target.kind]
    return (*TENSOR_PASSES, *FUSION_PASSES, *KERNEL_PASSES, *lowering.tiling, *lowering.code,
            *COMMAND_PASSES, *LOOP_PASSES)


class Lowered(Record):
    """The result of lowering, which jit links and replays, and which can be printed.

    Attributes:
        function: the tensor graph after the tensor passes.
        block: its commands, and what their slots refer to.
        code: how to print each KERNEL.
        milliseconds: time of each pass.
        lines: the user's lines of its trace, if they are known.
    """

    function: UOp
    block: Block
    code: dict[UOp, KernelCode]
    milliseconds: dict[str, float]
    lines: frozenset[Location] = frozenset()


def lower(fn: UOp, target: Target, fixed_lengths: frozenset[int] | None = None,
          on_kernel_ready: Callable[[KernelCode], None] | None = None,
          on_pass: Callable[[PassTrace], None] | None = None, donated: Sequence[int] = (),
          schedules: Callable[[UOp], Schedule | None] | None = None,
          lines: frozenset[Location] = frozenset()) -> Lowered:
    """Lower a FUNCTION.

    Args:
        fn: a closed FUNCTION.
        target: the machine.
        fixed_lengths: if given, constants and all other loop lengths become kernel arguments, if
            possible. None are fixed in eager calls, which see many shapes.
        on_kernel_ready: called with each kernel as it is ready, so that it can be compiled
            concurrently.
        on_pass: called after each pass. Each distinct kernel is printed then, and caches are
            bypassed.
        donated: parameters whose memory may be overwritten.
        schedules: returns the schedule of a generated kernel, or None: the heuristic chooses.
        lines: the user's lines of its trace, if they are known: commands have no others.
    """
    driver = Driver(target, on_pass)
    code: dict[UOp, KernelCode] = {}

    def ready(kernel: UOp) -> None:
        if kernel not in code:
            printed = code[kernel] = kernel_code(kernel, driver)
            with reuse_orders():
                if on_kernel_ready is not None:
                    on_kernel_ready(printed)
                if on_pass is not None:
                    printed.text()

    blocks = Blocks(driver, ready, BlockPasses(FUSION_PASSES, KERNEL_PASSES, COMMAND_PASSES),
                    schedules)
    traced, fn = fn, driver.run(TENSOR_PASSES, fn)
    donations = donated_pairs(fn, unique_results(fn).src, donated) if donated else ()
    block = blocks.lower(fn, fixed_lengths, carried=donations)
    commands = driver.run(LOOP_PASSES, block.commands)
    if commands is not block.commands:
        block = block.replace(commands=commands, arena=max(block.arena, arena_bytes(commands)))
    for run in accessors.all_execs(block.commands):
        if run.src[0].op is not ops.CALLBACK:
            ready(run.src[0])
    if lines:
        block = block.replace(commands=choose_lines(block.commands, traced, lines))
    return Lowered(fn, block, code, driver.milliseconds, lines)
