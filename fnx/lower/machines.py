"""Target backends: what each kind of target adds to the pipeline, in one place.

Facts of a target are in core/target.py, a value that is part of cache keys. Its behavior is the
entry of ``MACHINES`` for its ``kind``: how kernels get their loops, how a tiled kernel is compiled,
and what the device must know to launch it. A GPU is one more entry, with its own mapping to GRID
and THREAD ranges, its own SHARED stages and prologue; no other file asks which kind it is.

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

from fnx.core import build, ops
from fnx.core.dtypes import STORED
from fnx.core.errors import KernelError
from fnx.core.parts import extent
from fnx.core.process import deferred
from fnx.core.record import Record
from fnx.core.target import Target
from fnx.core.tiling import Bind, Schedule, StageOperand
from fnx.core.uop import UOp, inherit, toposort
from fnx.lower.driver import Pass
from fnx.lower.kernel.canonical import canonical
from fnx.lower.kernel.update_rows import update_rows
from fnx.lower.program import scratch
from fnx.lower.program.decompose import decompose
from fnx.lower.program.fills import block_fills
from fnx.lower.program.inside import inside
from fnx.lower.program.linearize import linearize
from fnx.lower.program.one_bound import one_bound
from fnx.lower.render import host
from fnx.lower.schedule.choose import decided
from fnx.lower.schedule.contraction import Contraction
from fnx.lower.schedule.contraction_tiling import shared_schedule
from fnx.lower.schedule.plan import MODEL, Decisions
from fnx.lower.schedule.staging import Part, part_of, split_global
from fnx.lower.schedule.tile import tile


class Work(Record):
    """A kernel on its way to its loops.

    Attributes:
        kernel: the KERNEL.
        schedule: the user's, () to choose one for a user-written kernel; None for a generated
            kernel whose schedule is not chosen yet.
        general: whether lengths and constants become arguments, if possible.
        scalars: the CONST of each VAR slot.
        of_loop: whether the kernel was generated from a loop, not written by the user.
    """

    kernel: UOp
    schedule: Schedule | None
    general: bool = False
    scalars: tuple[UOp, ...] = ()
    of_loop: bool = False

    @property
    def graphs(self) -> tuple[UOp]:
        return (self.kernel,)


class Tiled(Record):
    """Kernels with their loops: the packing kernels, then the main kernel that reads their output.

    ``temporaries`` are REFs: slot, dtype and dimensions of each packed buffer.
    """

    parts: tuple[Part, ...]
    temporaries: tuple[UOp, ...] = ()

    @property
    def graphs(self) -> list[UOp]:
        return [part.kernel for part in self.parts]


class Machine(Record):
    """The behavior of a kind of target.

    Attributes:
        kinds: of ranges that a tiled kernel may have (core/range_kinds.py); the first is the kind
            of the outermost parallel range of generated kernels.
        spaces: of stages that a tiled kernel may have.
        tiling: passes from a Work with an untiled kernel to a Tiled.
        code: passes from a tiled KERNEL to text; empty: the device takes kernels as they are.
        module: wraps the text of a kernel, given its symbol, for the device's compiler.
        extents: what the device must know to launch a tiled kernel, by name: index expressions
            over its VARs.
        products: the schedule for all contractions like one, whatever their lengths; None if each
            needs a kernel of its own.
        decided: returns the schedule of a kernel for given decisions, and reports to these which
            other choices are legal.
        sorts: whether a SORT is a native program, not run by the host's interpreter.
        loops: whether a LOOP of commands may be a kernel.
    """

    kinds: tuple[str, ...]
    spaces: tuple[str, ...]
    tiling: tuple[Pass, ...]
    code: tuple[Pass, ...]
    module: Callable[[str, str], str]
    extents: Callable[[UOp], Mapping[str, UOp]]
    products: Callable[[Contraction, Target], Schedule | None] = lambda found, target: None
    decided: Callable[[UOp, Target, Decisions], Schedule] = decided
    sorts: bool = False
    loops: bool = False


# ---- passes over one kernel -------------------------------------------------------------------


def scheduled(work: Work, target: Target) -> Work:
    """Choose the schedule: the user's, else the compiler's."""
    if work.schedule:
        return work
    made = MACHINES[target.kind].decided(work.kernel, target, Decisions(MODEL))
    return work.replace(schedule=made)


@wraps(update_rows)
def rows_of_updates(work: Work, target: Target) -> Work:
    if work.schedule is not None or work.general:
        return work
    made = update_rows(work.kernel, target)
    return work if made is work.kernel else work.replace(kernel=canonical(made))


def tiled(work: Work, target: Target) -> UOp:
    """Apply the schedule to the KERNEL.

    Raises:
        KernelError: the target has no such ranges, no such memory, or no such unit.
    """
    machine = MACHINES[target.kind]
    kernel = tile(work.kernel, _of_kinds(work.schedule or (), machine))
    for node in toposort(kernel.src):
        if node.op is ops.RANGE and node.arg.kind not in machine.kinds:
            raise KernelError(f"{target.name}: expected ranges of the kinds "
                              f"{', '.join(machine.kinds)}, got {node.arg.kind}",
                              hint="name groups and threads in the schedule, k.grid(...) and "
                              "k.thread(...), or leave it away: then one is chosen")
        if node.op is ops.STAGE and node.arg.space not in machine.spaces:
            raise KernelError(f"{target.name}: expected stages in {', '.join(machine.spaces)}, "
                              f"got {node.arg.space}")
        if node.op is ops.MMA and machine.code and node.arg.unit not in target.units:
            raise KernelError(f"{target.name}: expected a matrix unit of this machine "
                              f"({', '.join(target.units) or 'it has none'}), got "
                              f"{node.arg.unit}", hint="leave tensorize(...) away: the loops "
                              "around it compute the same")
    return kernel


def _of_kinds(schedule: Schedule, machine: Machine) -> Schedule:
    """Adapt a GPU schedule to a target without threads: bound ranges become loops, and shared
    stages become private to a worker."""
    if "THREAD" in machine.kinds:
        return schedule
    return tuple([step.replace(space="PRIV", double=False) if isinstance(step, StageOperand)
                  and step.space == "SHARED" else step
                  for step in schedule if not isinstance(step, Bind)])


def split(kernel: UOp, target: Target) -> Tiled:
    """Turn GLOBAL stages into kernels of their own.

    >>> from fnx.core import dtypes, tiling
    >>> i, j = build.range_(16, 0, name="i"), build.range_(8, 1, name="j")
    >>> x = build.load(build.at(build.ref(0, dtypes.float32, (8, 16)), j, i))
    >>> o = build.at(build.ref(1, dtypes.float32, (16, 8)), i, j)
    >>> turn = build.kernel([build.store(o, x)], "turn", (0, 1))
    >>> packed = tile(turn, [tiling.stage(0, None, "GLOBAL")])
    >>> [k.arg.name for k in split(packed, Target("cpu")).graphs]
    ['turn_pack', 'turn']
    """
    packs, main, temporaries = split_global(kernel, MACHINES[target.kind].kinds[0])
    return Tiled((*packs, main), tuple(temporaries))


def on_parts(run: Callable[[UOp, Target], UOp]) -> Callable[[Tiled, Target], Tiled]:
    """Lift a function of tiled KERNELs to one of Tileds."""
    @wraps(run)
    def on_each(tiled: Tiled, target: Target) -> Tiled:
        return tiled.replace(parts=tuple([part.replace(kernel=run(part.kernel, target))
                                           for part in tiled.parts]))
    return on_each


TILING = (
    Pass("choose", scheduled, "kernel", "kernel", of_target=True),
    Pass("tile", tiled, "kernel", "kernel", of_target=True),
    Pass("split_global", split, "kernel", "kernel", of_target=True),
)


# ---- the host ---------------------------------------------------------------------------------


def host_extents(kernel: UOp) -> Mapping[str, UOp]:
    """Return the iterations of the PAR range (1 without one), and a worker's scratch bytes."""
    parallel = [extent(r) for r in kernel.src[0].ranges if r.arg.kind == "PAR"]
    _, nbytes = scratch.layout(kernel)
    return {"parallel": parallel[0] if parallel else build.index_const(1), "scratch": nbytes}


STAGED = frozenset({ops.STAGE})
PLACED = frozenset({ops.CAST})  # converts an index that is loaded from data
ended_lanes = deferred("fnx.lower.program.ended_lanes", "ended_lanes")
seldom = deferred("fnx.lower.program.seldom", "seldom")
stage_instances = deferred("fnx.lower.program.stage_instances", "stage_instances")
stored = deferred("fnx.lower.program.stored", "stored")

KINDS = ("PAR", "SEQ", "UNROLL", "VEC")
SPACES = ("PRIV", "GLOBAL")

HOST = Machine(
    kinds=KINDS, spaces=SPACES,
    tiling=(Pass("update_rows", rows_of_updates, "kernel", "kernel", PLACED, True),
            *TILING[:-1], Pass("fills", block_fills, "kernel", "kernel", STAGED, True), TILING[-1],
            Pass("stages", on_parts(stage_instances), "kernel", "kernel", STAGED, True)),
    code=(
        Pass("ended_lanes", ended_lanes, "kernel", "kernel", frozenset({ops.ITER})),
        Pass("stored", stored, "kernel", "kernel", STORED, True),
        Pass("inside", inside, "kernel", "kernel"),
        Pass("one_bound", one_bound, "kernel", "kernel", PLACED),
        Pass("decompose", decompose, "kernel", "kernel", of_target=True),
        Pass("linearize", linearize, "kernel", "program", of_target=True),
        Pass("seldom", seldom, "program", "program", frozenset({ops.WHERE})),
        Pass("render", host.render, "program", "text"),
    ),
    module=host.module,
    extents=host_extents,
    products=shared_schedule,
    sorts=True,
    loops=True,
)


# ---- thread blocks ----------------------------------------------------------------------------


decided_for_groups = deferred("fnx.lower.schedule.groups", "decided_for_groups")
threads = deferred("fnx.lower.program.threads", "threads")
groups_of = deferred("fnx.lower.program.together", "groups_of")
threads_of = deferred("fnx.lower.program.together", "threads_of")
vectors = deferred("fnx.lower.program.vectors", "vectors")
async_copies = deferred("fnx.lower.program.async_copies", "async_copies")
widths = deferred("fnx.lower.program.widths", "widths")


def group_extents(kernel: UOp) -> Mapping[str, UOp]:
    """Return the number of thread blocks, and the threads of each."""
    return {"groups": groups_of(kernel), "threads": build.index_const(threads_of(kernel))}


def together(tiled: Tiled, target: Target) -> Tiled:
    """Apply the passes for cooperating threads to each part; drop arguments that it no longer
    reads."""
    parts = []
    for part in tiled.parts:
        kernel = threads(part.kernel, target)
        made = part_of(kernel.src, kernel.arg)
        if len(made.refs) == len(part.refs) and len(made.scalars) == len(part.scalars):
            parts.append(part.replace(kernel=kernel))
        else:
            parts.append(Part(inherit(made.kernel, kernel),
                              tuple([part.refs[i] for i in made.refs]),
                              tuple([part.scalars[i] for i in made.scalars])))
    return tiled.replace(parts=tuple(parts))


def of_groups(render: Callable[[UOp], str], module: Callable[[str, str], str]) -> Machine:
    """Return a backend that runs thread blocks, in a given language."""
    return Machine(
        kinds=("GRID", "THREAD", "SEQ", "UNROLL"), spaces=("PRIV", "SHARED", "GLOBAL"),
        tiling=(*TILING,
                Pass("stages", on_parts(stage_instances), "kernel", "kernel", STAGED, True),
                Pass("threads", together, "kernel", "kernel", of_target=True)),
        code=(*HOST.code[:-1], Pass("vectors", vectors, "program", "program", of_target=True),
              Pass("async_copies", async_copies, "program", "program"),
              Pass("widths", widths, "program", "program"),
              Pass("render", render, "program", "text")),
        module=module, extents=group_extents, decided=decided_for_groups)


# ---- devices that take kernels ------------------------------------------------------------------

KERNELS = Machine((*KINDS, "GRID", "THREAD"), (*SPACES, "SHARED"), TILING, (),
                  lambda symbol, text: "", lambda kernel: {}, shared_schedule)

OPENCL = of_groups(deferred("fnx.lower.render.opencl", "render"),
                   deferred("fnx.lower.render.opencl", "module"))

NVPTX = of_groups(deferred("fnx.lower.render.nvptx", "render"),
                  deferred("fnx.lower.render.nvptx", "module"))

_WGSL = of_groups(deferred("fnx.lower.render.wgsl", "render"),
                  deferred("fnx.lower.render.wgsl", "module"))
lacking = deferred("fnx.lower.program.lacking", "lacking")
only_narrow = deferred("fnx.lower.program.widths", "only_narrow")
few_steps = deferred("fnx.lower.program.few_steps", "few_steps")
WGSL = _WGSL.replace(code=tuple([q for p in _WGSL.code if p.name != "vectors" for q in (
    (Pass("lacking", lacking, "kernel", "kernel", of_target=True),) if p.name == "decompose" else
    (Pass("only_narrow", only_narrow, "program", "program", of_target=True),
     Pass("few_steps", few_steps, "program", "program", of_target=True)) if p.name == "widths"
    else (p,))]))  # no vectors: buffers are arrays of words, read one by one

# ---- source files of other languages ------------------------------------------------------------


def _as_written(work: Work) -> Work:
    """Leave the loops of a kernel nested as they are, for a compiler that schedules by itself."""
    return work.replace(schedule=())


C = Machine(
    kinds=("SEQ",), spaces=("PRIV", "GLOBAL"),
    tiling=(Pass("choose", _as_written, "kernel", "kernel"), *TILING[1:],
            Pass("stages", on_parts(stage_instances), "kernel", "kernel", STAGED, True)),
    code=(*HOST.code[:-1],
          Pass("render", deferred("fnx.lower.render.c", "render"), "program", "text")),
    module=deferred("fnx.lower.render.c", "module"), extents=host_extents)

MACHINES = {"host": HOST, "kernels": KERNELS, "opencl": OPENCL, "nvptx": NVPTX,
            "wgsl": WGSL, "c": C}
