"""Target lowerings: what each kind of target adds to the pipeline.

Facts of a target are in core/support/target.py, a value that is part of cache keys. Its behavior is
the entry of ``TARGET_LOWERINGS`` for its ``kind``: how kernels get their loops, how a tiled kernel
is compiled, and what the device must know to launch it. A GPU is one more entry, with its own
mapping to GRID and THREAD ranges, its own SHARED stages and prologue; no other file asks which kind
it is.

    host        LLVM functions for slices of one outermost PAR range (lower/render/host.py)
    kernels     kernels as they are, for devices that interpret (interp) or record them (null)
    opencl      OpenCL C for workgroups (lower/render/opencl.py)
    nvptx       LLVM IR for thread blocks (lower/render/nvptx.py)
    c           C source, to be compiled elsewhere (lower/render/c.py)
    wgsl        WGSL for workgroups; it has no 64-bit types (lower/render/wgsl.py)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps

from fnx.core.ir import build, ops
from fnx.core.ir.accessors import extent
from fnx.core.ir.dtypes import STORAGE_ONLY
from fnx.core.ir.tiling import Bind, Schedule, StageOperand
from fnx.core.ir.uop import UOp, copy_locs, toposort
from fnx.core.support.errors import KernelError
from fnx.core.support.process import lazy_import
from fnx.core.support.record import Record
from fnx.core.support.target import Target
from fnx.lower.analysis.canonicalize import canonicalize
from fnx.lower.driver import MASKED_LOAD, Pass
from fnx.lower.emit.addresses import scratch_layout
from fnx.lower.emit.clamp_uniform_mask_addresses import clamp_uniform_mask_addresses
from fnx.lower.emit.emit import emit_program
from fnx.lower.emit.merge_bounds_checks import merge_bounds_checks
from fnx.lower.emit.vectorize_stage_fills import vectorize_stage_fills
from fnx.lower.kernel.repeat_row_operands import repeat_row_operands
from fnx.lower.kernel.stage_scatter_rows import stage_scatter_rows
from fnx.lower.legalize.decompose import decompose
from fnx.lower.render import host
from fnx.lower.schedule.contraction import Contraction
from fnx.lower.schedule.generic_tiling import generic_schedule
from fnx.lower.schedule.heuristics import schedule_for_knobs
from fnx.lower.schedule.knobs import HEURISTIC, TuningKnobs
from fnx.lower.schedule.staging import SplitKernel, extract_kernel, split_global
from fnx.lower.schedule.tile import tile


class ScheduleInput(Record):
    """A kernel on its way to its loops.

    Attributes:
        kernel: the KERNEL.
        schedule: the user's, () to choose one for a user-written kernel; None for a generated
            kernel whose schedule is not chosen yet.
        fixed_lengths: if given, constants and all other lengths become arguments, if possible.
        scalars: the CONST of each VAR slot.
        is_generated: whether the kernel was generated from a loop, not written by the user.
    """

    kernel: UOp
    schedule: Schedule | None
    fixed_lengths: frozenset[int] | None = None
    scalars: tuple[UOp, ...] = ()
    is_generated: bool = False

    @property
    def graphs(self) -> tuple[UOp]:
        return (self.kernel,)


class ScheduledKernels(Record):
    """Kernels with their loops: the packing kernels, then the main kernel that reads their output.

    ``temporaries`` are REFs: slot, dtype and dimensions of each packed buffer.
    """

    parts: tuple[SplitKernel, ...]
    temporaries: tuple[UOp, ...] = ()

    @property
    def graphs(self) -> list[UOp]:
        return [part.kernel for part in self.parts]


class TargetLowering(Record):
    """The behavior of a kind of target.

    Attributes:
        kinds: of ranges that a tiled kernel may have (core/support/range_kinds.py); the first is
            the kind of the outermost parallel range of generated kernels.
        spaces: of stages that a tiled kernel may have.
        tiling: passes from a ScheduleInput to ScheduledKernels.
        code: passes from a tiled KERNEL to text; empty: the device takes kernels as they are.
        module: wraps the text of a kernel, given its symbol, for the device's compiler.
        extents: what the device must know to launch a tiled kernel, by name: index expressions
            over its VARs.
        contraction_schedule: the schedule for all contractions like one, whatever their lengths;
            None if each needs a kernel of its own.
        schedule_for_knobs: returns the schedule of a kernel for given knobs, and reports to these
            which other choices are legal.
        native_programs: whether a SORT or an FFT_STEP is a native program, not run by NumPy.
        native_linalg: whether a LINALG is a native program, not run by the host's interpreter.
        loop_kernels: whether a CMD_LOOP of commands may be a kernel.
        is_remote: whether the host shares no memory with the device, so it should neither sort nor
            read conditions.
    """

    kinds: tuple[str, ...]
    spaces: tuple[str, ...]
    tiling: tuple[Pass, ...]
    code: tuple[Pass, ...]
    module: Callable[[str, str], str]
    extents: Callable[[UOp], Mapping[str, UOp]]
    contraction_schedule: Callable[[Contraction, Target],
                                   Schedule | None] = lambda contraction, target: None
    schedule_for_knobs: Callable[[UOp, Target, TuningKnobs], Schedule] = schedule_for_knobs
    native_programs: bool = False
    native_linalg: bool = False
    loop_kernels: bool = False
    is_remote: bool = False


# ---- passes over one kernel ---------------------------------------------------------------------


def choose_schedule(work: ScheduleInput, target: Target) -> ScheduleInput:
    """Choose the schedule: the user's, else the compiler's."""
    if work.schedule:
        return work
    schedule = TARGET_LOWERINGS[target.kind].schedule_for_knobs(
        work.kernel, target, TuningKnobs(HEURISTIC))
    return work.replace(schedule=schedule)


def lift_to_unscheduled(
    run: Callable[[UOp, Target], UOp],
) -> Callable[[ScheduleInput, Target], ScheduleInput]:
    """Lift a function of KERNELs to one of those whose schedule is not given."""
    @wraps(run)
    def on_kernel(work: ScheduleInput, target: Target) -> ScheduleInput:
        if work.schedule is not None or work.fixed_lengths is not None:
            return work
        kernel = run(work.kernel, target)
        return work if kernel is work.kernel else work.replace(kernel=canonicalize(kernel))
    return on_kernel


def apply_schedule(work: ScheduleInput, target: Target) -> UOp:
    """Apply the schedule to the KERNEL.

    Raises:
        KernelError: the target has no such ranges, no such memory, or no such unit.
    """
    lowering = TARGET_LOWERINGS[target.kind]
    kernel = tile(work.kernel, _to_target_kinds(work.schedule or (), lowering))
    for node in toposort(kernel.src):
        if node.op is ops.RANGE and node.arg.kind not in lowering.kinds:
            raise KernelError(f"{target.name}: expected ranges of the kinds "
                              f"{', '.join(lowering.kinds)}, got {node.arg.kind}",
                              hint="name groups and threads in the schedule, k.grid(...) and "
                              "k.thread(...), or omit it to have one chosen")
        if node.op is ops.STAGE and node.arg.space not in lowering.spaces:
            raise KernelError(f"{target.name}: expected stages in {', '.join(lowering.spaces)}, "
                              f"got {node.arg.space}")
        if node.op is ops.MMA and lowering.code and node.arg.unit not in target.unit_names:
            raise KernelError(f"{target.name}: expected a matrix unit of this machine "
                              f"({', '.join(target.unit_names) or 'it has none'}), got "
                              f"{node.arg.unit}",
                              hint="remove tensorize(...): the loops around it compute the same "
                                   "result")
    return kernel


def _to_target_kinds(schedule: Schedule, lowering: TargetLowering) -> Schedule:
    """Adapt a GPU schedule to a target without threads: bound ranges become loops, and shared
    stages become private to a worker."""
    if "THREAD" in lowering.kinds:
        return schedule
    return tuple([step.replace(space="PRIV", double=False) if isinstance(step, StageOperand)
                  and step.space == "SHARED" else step
                  for step in schedule if not isinstance(step, Bind)])


def split_packing(kernel: UOp, target: Target) -> ScheduledKernels:
    """Turn GLOBAL stages into kernels of their own.

    >>> from fnx.core.ir import dtypes, tiling
    >>> i, j = build.range_(16, 0, name="i"), build.range_(8, 1, name="j")
    >>> x = build.load(build.index_into(build.ref(0, dtypes.float32, (8, 16)), j, i))
    >>> o = build.index_into(build.ref(1, dtypes.float32, (16, 8)), i, j)
    >>> turn = build.kernel([build.store(o, x)], "turn", (0, 1))
    >>> packed = tile(turn, [tiling.stage(0, None, "GLOBAL")])
    >>> [k.arg.name for k in split_packing(packed, Target("cpu")).graphs]
    ['turn_pack', 'turn']
    """
    packs, main, temporaries = split_global(kernel, TARGET_LOWERINGS[target.kind].kinds[0])
    return ScheduledKernels((*packs, main), tuple(temporaries))


def lift_to_parts(
    run: Callable[[UOp, Target], UOp],
) -> Callable[[ScheduledKernels, Target], ScheduledKernels]:
    """Lift a function of tiled KERNELs to one of ScheduledKernels."""
    @wraps(run)
    def on_each(tiled: ScheduledKernels, target: Target) -> ScheduledKernels:
        return tiled.replace(parts=tuple([part.replace(kernel=run(part.kernel, target))
                                          for part in tiled.parts]))
    return on_each


TILING = (
    Pass("choose", choose_schedule, "kernel", "kernel", takes_target=True),
    Pass("tile", apply_schedule, "kernel", "kernel", takes_target=True),
    Pass("split_global", split_packing, "kernel", "kernel", takes_target=True),
)


# ---- the host -----------------------------------------------------------------------------------


def host_extents(kernel: UOp) -> Mapping[str, UOp]:
    """Return the iterations of the PAR range (1 without one), and a worker's scratch bytes."""
    parallel = [extent(r) for r in kernel.src[0].ranges if r.arg.kind == "PAR"]
    _, nbytes = scratch_layout(kernel)
    return {"parallel": parallel[0] if parallel else build.index_const(1), "scratch": nbytes}


STAGE_OPS = frozenset({ops.STAGE})
CAST_OPS = frozenset({ops.CAST})  # converts an index that is loaded from data
mask_finished_lanes = lazy_import("fnx.lower.legalize.mask_finished_lanes", "mask_finished_lanes")
outline_cold_branches = lazy_import("fnx.lower.legalize.outline_cold_branches",
                                    "outline_cold_branches")
privatize_stages = lazy_import("fnx.lower.emit.privatize_stages", "privatize_stages")
split_masked_stores = lazy_import("fnx.lower.legalize.split_masked_stores", "split_masked_stores")
emulate_unsupported_dtypes = lazy_import("fnx.lower.legalize.emulate_unsupported_dtypes",
                                         "emulate_unsupported_dtypes")

KINDS = ("PAR", "SEQ", "UNROLL", "VEC")
SPACES = ("PRIV", "GLOBAL")

HOST = TargetLowering(
    kinds=KINDS, spaces=SPACES,
    tiling=(Pass("stage_scatter_rows", lift_to_unscheduled(stage_scatter_rows), "kernel",
                 "kernel", CAST_OPS, True),
            Pass("repeat_row_operands", lift_to_unscheduled(repeat_row_operands), "kernel",
                 "kernel", takes_target=True),
            *TILING[:-1], Pass("vectorize_stage_fills", vectorize_stage_fills, "kernel", "kernel",
                               STAGE_OPS, True),
            TILING[-1],
            Pass("privatize_stages", lift_to_parts(privatize_stages), "kernel", "kernel",
                 STAGE_OPS, True)),
    code=(
        Pass("mask_finished_lanes", mask_finished_lanes, "kernel", "kernel", frozenset({ops.LOOP})),
        Pass("emulate_unsupported_dtypes", emulate_unsupported_dtypes, "kernel", "kernel",
             STORAGE_ONLY, True),
        Pass("clamp_uniform_mask_addresses", clamp_uniform_mask_addresses, "kernel", "kernel",
             frozenset({MASKED_LOAD})),
        Pass("merge_bounds_checks", merge_bounds_checks, "kernel", "kernel", CAST_OPS),
        Pass("decompose", decompose, "kernel", "kernel", takes_target=True),
        Pass("emit", emit_program, "kernel", "program", takes_target=True),
        Pass("outline_cold_branches", outline_cold_branches, "program", "program",
             frozenset({ops.UNLIKELY})),
        Pass("split_masked_stores", split_masked_stores, "program", "program", takes_target=True),
        Pass("render", host.render, "program", "text"),
    ),
    module=host.module,
    extents=host_extents,
    contraction_schedule=generic_schedule,
    native_programs=True,
    native_linalg=True,
    loop_kernels=True,
)


# ---- thread blocks ------------------------------------------------------------------------------


workgroups_for_knobs = lazy_import("fnx.lower.schedule.workgroup_heuristics",
                                   "workgroups_for_knobs")
lower_threads = lazy_import("fnx.lower.emit.lower_threads", "lower_threads")
group_count = lazy_import("fnx.lower.emit.shared_memory", "group_count")
thread_count = lazy_import("fnx.lower.emit.shared_memory", "thread_count")
vectorize_accesses = lazy_import("fnx.lower.emit.vectorize_accesses", "vectorize_accesses")
form_async_copies = lazy_import("fnx.lower.emit.form_async_copies", "form_async_copies")
narrow_indices = lazy_import("fnx.lower.legalize.narrow_indices", "narrow_indices")


def launch_extents(kernel: UOp) -> Mapping[str, UOp]:
    """Return the number of thread blocks, and the threads of each."""
    return {"groups": group_count(kernel), "threads": build.index_const(thread_count(kernel))}


def lower_threads_in_parts(tiled: ScheduledKernels, target: Target) -> ScheduledKernels:
    """Apply the passes for cooperating threads to each part; drop arguments that it no longer
    reads."""
    parts = []
    for part in tiled.parts:
        kernel = lower_threads(part.kernel, target)
        remaining = extract_kernel(kernel.src, kernel.arg)
        if len(remaining.refs) == len(part.refs) and len(remaining.scalars) == len(part.scalars):
            parts.append(part.replace(kernel=kernel))
        else:
            parts.append(SplitKernel(copy_locs(remaining.kernel, kernel),
                                     tuple([part.refs[i] for i in remaining.refs]),
                                     tuple([part.scalars[i] for i in remaining.scalars])))
    return tiled.replace(parts=tuple(parts))


def gpu_lowering(render: Callable[[UOp], str], module: Callable[[str, str], str]) -> TargetLowering:
    """Return the lowering of targets that run thread blocks, in a given language."""
    return TargetLowering(
        kinds=("GRID", "THREAD", "SEQ", "UNROLL"), spaces=("PRIV", "SHARED", "GLOBAL"),
        tiling=(*TILING,
                Pass("privatize_stages", lift_to_parts(privatize_stages), "kernel", "kernel",
                     STAGE_OPS, True),
                Pass("lower_threads", lower_threads_in_parts, "kernel", "kernel",
                     takes_target=True)),
        code=(*HOST.code[:-1],
              Pass("vectorize_accesses", vectorize_accesses, "program", "program",
                   takes_target=True),
              Pass("form_async_copies", form_async_copies, "program", "program"),
              Pass("narrow_indices", narrow_indices, "program", "program"),
              Pass("render", render, "program", "text")),
        module=module, extents=launch_extents, schedule_for_knobs=workgroups_for_knobs,
        is_remote=True)


# ---- devices that take kernels ------------------------------------------------------------------

KERNELS = TargetLowering((*KINDS, "GRID", "THREAD"), (*SPACES, "SHARED"), TILING, (),
                         lambda symbol, text: "", lambda kernel: {}, generic_schedule)

OPENCL = gpu_lowering(lazy_import("fnx.lower.render.opencl", "render"),
                      lazy_import("fnx.lower.render.opencl", "module"))

NVPTX = gpu_lowering(lazy_import("fnx.lower.render.nvptx", "render"),
                     lazy_import("fnx.lower.render.nvptx", "module"))

_WGSL = gpu_lowering(lazy_import("fnx.lower.render.wgsl", "render"),
                     lazy_import("fnx.lower.render.wgsl", "module"))
decompose_unsupported = lazy_import("fnx.lower.legalize.decompose_unsupported",
                                    "decompose_unsupported")
check_index_width = lazy_import("fnx.lower.legalize.narrow_indices", "check_index_width")
check_iteration_limit = lazy_import("fnx.lower.legalize.check_iteration_limit",
                                    "check_iteration_limit")
WGSL = _WGSL.replace(code=tuple([q for p in _WGSL.code if p.name != "vectorize_accesses" for q in (
    (Pass("decompose_unsupported", decompose_unsupported, "kernel", "kernel", takes_target=True),)
    if p.name == "decompose" else
    (Pass("check_index_width", check_index_width, "program", "program", takes_target=True),
     Pass("check_iteration_limit", check_iteration_limit, "program", "program", takes_target=True))
     if p.name == "narrow_indices"
    else (p,))]))  # no vectors: buffers are arrays of words, read one by one

# ---- source files of other languages ------------------------------------------------------------


def keep_loop_order(work: ScheduleInput) -> ScheduleInput:
    """Leave the loops of a kernel nested as they are, for a compiler that schedules by itself."""
    return work.replace(schedule=())


C = TargetLowering(
    kinds=("SEQ",), spaces=("PRIV", "GLOBAL"),
    tiling=(Pass("choose", keep_loop_order, "kernel", "kernel"), *TILING[1:],
            Pass("privatize_stages", lift_to_parts(privatize_stages), "kernel", "kernel",
                 STAGE_OPS, True)),
    code=(*HOST.code[:-1],
          Pass("render", lazy_import("fnx.lower.render.c", "render"), "program", "text")),
    module=lazy_import("fnx.lower.render.c", "module"), extents=host_extents)

TARGET_LOWERINGS = {"host": HOST, "kernels": KERNELS, "opencl": OPENCL, "nvptx": NVPTX,
                    "wgsl": WGSL, "c": C}
