"""The whole compiler as a list one can read: a FUNCTION becomes COMMANDS.

>>> from fnx.core import build, dtypes
>>> from fnx.core.target import Target
>>> x = build.param(0, dtypes.float32, (8,))
>>> lowered = lower(build.function([build.exp(build.add(x, x))], 1), Target("interp"))
>>> [k.arg.name for k in lowered.kernels]
['map_exp_add']
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from fnx.core import build, ops
from fnx.core.config import config
from fnx.core.levels import spec
from fnx.core.program import KernelCode
from fnx.core.target import Target
from fnx.core.uop import UOp
from fnx.lower import memory
from fnx.lower.fusion.kernelize import kernelize
from fnx.lower.fusion.ranges import Step, build_kernels
from fnx.lower.fusion.unique_results import Result, unique_results
from fnx.lower.kernel.canonical import canonical
from fnx.lower.kernel.coalesce import coalesce
from fnx.lower.kernel.runtime_extents import generalize
from fnx.lower.program.codegen import kernel_code
from fnx.lower.schedule import contraction
from fnx.lower.schedule.choose import choose
from fnx.lower.schedule.staging import Part, split_global
from fnx.lower.schedule.tile import tile
from fnx.lower.tensor.drop_empty import drop_empty
from fnx.lower.tensor.inline import inline
from fnx.lower.tensor.simplify import simplify
from fnx.lower.tensor.split_reduce import split_reduce


class Pass(NamedTuple):
    """A step of the compiler: its name, its function, and the level before and after."""

    name: str
    run: Callable[[UOp], UOp]
    before: str
    after: str


# FUNCTION -> FUNCTION, tensor level. Then: kernelize, ranges, coalesce, generalize (kernel
# level, one kernel at a time), choose and tile (once per distinct kernel), memory, commands.
PASSES = (
    Pass("inline", inline, "tensor", "tensor"),
    Pass("simplify", simplify, "tensor", "tensor"),
    Pass("drop_empty", drop_empty, "tensor", "tensor"),
    Pass("split_reduce", split_reduce, "tensor", "tensor"),
)


@dataclass(frozen=True)
class Lowered:
    """What jit links and replays, and what a reader may print.

    Attributes:
        function: the tensor graph after the tensor passes.
        commands: the COMMANDS node.
        arena: bytes of intermediate buffers.
        code: how to print each KERNEL (empty where the target compiles nothing).
        results: where each result of the original FUNCTION is found.
        kernels: the KERNEL of each command, in order.
        outs: (shape, dtype) of the buffers that hold results.
        milliseconds: time of each pass.
    """

    function: UOp
    commands: UOp
    arena: int
    code: dict[UOp, KernelCode]
    results: tuple[Result, ...]
    kernels: tuple[UOp, ...]
    outs: tuple[UOp, ...]
    milliseconds: dict[str, float]


class _Clock:
    def __init__(self) -> None:
        self.milliseconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.milliseconds[name] = self.milliseconds.get(name, 0.0) + (now - self._last) * 1e3
        self._last = now


class Placed(NamedTuple):
    """A tiled kernel with its operands (nodes) and scalars (CONSTs)."""

    kernel: UOp
    operands: tuple[UOp, ...]
    scalars: tuple[UOp, ...]
    step: Step


def lower(fn: UOp, target: Target, runtime_extents: bool = False,
          prepare: Callable[[KernelCode], None] | None = None) -> Lowered:
    """Lower a FUNCTION.

    Args:
        fn: a closed FUNCTION.
        target: the machine.
        runtime_extents: loop lengths and constants become arguments of the kernels, where
            they can: for eager calls, which see many shapes.
        prepare: told of each kernel as it is ready, so that it can be compiled beside.
    """
    clock = _Clock()
    for step in PASSES:
        if config.check_spec:
            spec.check([fn], step.before)
        fn = step.run(fn)
        clock.lap(step.name)
    fn, results = unique_results(fn)
    if config.check_spec:
        spec.check([fn], "tensor")
    fusion = kernelize(fn)
    clock.lap("kernelize")
    steps = build_kernels(fusion)
    clock.lap("ranges")
    code: dict[UOp, KernelCode] = {}
    placed: list[Placed] = []
    for group in steps:
        made = _tiled(group, target, runtime_extents)
        placed += made
        clock.lap("tile")
        for p in made:
            if target.triple and p.kernel not in code:
                code[p.kernel] = kernel_code(p.kernel, target)
                if prepare is not None:
                    prepare(code[p.kernel])
        clock.lap("code")
    commands, arena = _commands(placed, fn)
    clock.lap("memory")
    return Lowered(fn, commands, arena, code, results, tuple(p.kernel for p in placed),
                   fn.src, clock.milliseconds)


def _tiled(step: Step, target: Target, runtime_extents: bool) -> list[Placed]:
    """A kernel under its schedule: itself, after the kernels that pack what it reads."""
    kernel, scalars = step.kernel, ()  # type: tuple[UOp, tuple[UOp, ...]]
    if step.schedule is None:
        kernel = coalesce(kernel)
        if runtime_extents:
            general, numbers = generalize(kernel)
            if contraction.find(general) is None:  # its tiles follow its extents
                kernel, scalars = general, numbers
    packs, main, temporaries = _tile(canonical(kernel), step.schedule, target)
    operands = [*step.operands, *[_temporary(t) for t in temporaries]]
    return [Placed(part.kernel, tuple([operands[i] for i in part.refs]),
                   tuple([scalars[i] for i in part.scalars]), step) for part in (*packs, main)]


def _temporary(ref: UOp) -> UOp:
    """A buffer of its own for what a GLOBAL stage packs."""
    shape = tuple(build.const_of(d) for d in ref.src)
    return UOp(ops.BUFFER, ref.dtype, (), ops.Buffer(object(), shape))


_tiles: dict[tuple[Any, ...], tuple[list[Part], Part, list[UOp]]] = {}
_MAX_TILES = 4096


def _tile(kernel: UOp, schedule: Any, target: Target) -> tuple[list[Part], Part, list[UOp]]:
    """Schedule and tile a kernel; equal kernels once."""
    key = (kernel, schedule, target)
    found = _tiles.get(key)
    if found is None:
        chosen = schedule if schedule else choose(kernel, target)
        found = split_global(tile(kernel, chosen))
        if config.check_spec:
            spec.check([part.kernel for part in (*found[0], found[1])], "kernel")
        if len(_tiles) >= _MAX_TILES:
            _tiles.clear()
        _tiles[key] = found
    return found


def _commands(placed: list[Placed], fn: UOp) -> tuple[UOp, int]:
    """Slots for all operands, and one EXEC a kernel."""
    outs = {node: i for i, node in enumerate(fn.src)}
    sizes = {n: memory.size_of(n) for p in placed for n in p.operands
             if n.op is not ops.PARAM and n not in outs}
    offsets, arena = memory.plan([p.operands for p in placed], sizes)

    def slot(node: UOp) -> UOp:
        nbytes = memory.size_of(node)
        if node.op is ops.PARAM:
            return build.slot("in", node.arg.slot, 0, nbytes, node.dtype)
        if node in outs:
            return build.slot("out", outs[node], 0, nbytes, node.dtype)
        return build.slot("arena", 0, offsets[node], nbytes, node.dtype)

    execs = [build.exec_(p.kernel, [slot(n) for n in p.operands], p.scalars,
                         _name(p)) for p in placed]
    return build.commands(execs), arena


def _name(p: Placed) -> str:
    """The kernel's name and the user's lines, for profiles and faults."""
    lines = [f"{file.rpartition('/')[2]}:{line}" for file, line in p.step.sites[:2]]
    return f"{p.kernel.arg.name} ({', '.join(lines)})" if lines else str(p.kernel.arg.name)
