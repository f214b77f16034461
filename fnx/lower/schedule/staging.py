"""Stages: copy what a loop reads of an operand into a small buffer first.

    before  REDUCE(x[14*io + i, k] * w[k, 16*jr + l], k)              order io jr k i l
            stage("w", at="jr")
    after   W = STAGE(w[k', 16*jr + l'], k', l')      filled in each iteration of jr
            REDUCE(x[14*io + i, k] * W[k, l], k)      order io jr k i l k' l'

A stage closes the ranges of the load that lie inside ``at`` and is laid out in their loop order:
that is packing. One in SHARED memory also closes the ranges of threads and is laid out as the
operand is, so that adjacent threads fill adjacent elements. Elementwise work over the same ranges
(a scale, a cast) is staged too, so that it is done once per element. A GLOBAL stage is the same for
all workers: ``split_global`` turns it into a kernel of its own that writes a temporary buffer.
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core import build, dtypes, op_args, ops
from fnx.core.errors import KernelError
from fnx.core.parts import buffer, closed, dims, extent, indices, validity, value, written_slots
from fnx.core.record import Record
from fnx.core.rewriting import symbolic
from fnx.core.tiling import StageOperand
from fnx.core.uop import UOp, consumers, inherit, rebuild, substitute, toposort
from fnx.lower.kernel.canonical import canonical
from fnx.lower.schedule.loops import name_of, quoted
from fnx.lower.schedule.workload import product, stride

_MAX_UNROLLED_FILL = 16
_ROW = 16  # register words in a row of a matrix unit's tile


def place_stages(kernel: UOp, stages: Sequence[StageOperand], names: Sequence[str]) -> UOp:
    """Return a KERNEL with stages for some of its operands.

    Args:
        kernel: a KERNEL over its final loops.
        stages: what to stage, and at which loop.
        names: all loops, outermost first, also those of extent 1 that have no RANGE.

    Raises:
        KernelError: no such operand or loop, or nothing to stage.
    """
    for step in stages:
        kernel = _place(kernel, step, names)
    return kernel


def _place(kernel: UOp, step: StageOperand, names: Sequence[str]) -> UOp:
    nodes = toposort(kernel.src)
    slot = _slot(kernel, nodes, step)
    outside = _outside(names, step)
    place = {name: i for i, name in enumerate(names)}
    position = {r: place.get(name_of(r), len(names)) for r in nodes if r.op is ops.RANGE}
    users = consumers(nodes)
    written = set(map(value, kernel.src))
    to: dict[UOp, UOp] = {}
    fresh = 1 + max(kernel.arg.order, default=-1)
    number = 1 + max((n.arg.id for n in nodes if n.op is ops.STAGE), default=-1)
    order = list(kernel.arg.order)
    for load in nodes:
        if load.op is not ops.LOAD or buffer(load).op is not ops.REF \
                or buffer(load).arg.slot != slot or not _runs(load, step.along):
            continue
        staged = _grown(load, users, written)
        together = step.space == "SHARED"
        outer = [r for r in sorted(staged.ranges, key=position.__getitem__)
                 if position[r] > outside or together and r.arg.kind == "THREAD"]
        if together:  # coalesced reads: adjacent threads read adjacent elements
            walked, = rebuild([load], _unclamped)
            steps = {r: -abs(stride(walked, r)) for r in outer}
            outer.sort(key=steps.__getitem__)
        if staged in to or not outer:
            continue
        whole = [[r] for r in outer] if together else _whole(staged, outer)
        inner = [build.range_(_length(rs), fresh + i, "SEQ" if together else
                              _fill_kind(staged, rs[-1], rs[-1] is outer[-1]),
                              name_of(rs[-1]) + "_") for i, rs in enumerate(whole)]
        fresh += len(inner)
        order += [r.arg.id for r in inner]
        zero = {r: build.index_const(0) for rs in whole for r in rs}
        filled, = substitute([staged], zero | {rs[-1]: r for rs, r in zip(whole, inner)})
        stage = build.stage(filled, inner, number + len(to), step.space, buffer(load).arg.name,
                            step.double)
        places = [symbolic.ravel(rs, [extent(r) for r in rs]) for rs in whole]
        to[staged] = inherit(build.load(build.at(stage, *places)), staged)
    alive = {name_of(r) for r in position}
    if not to and any(name not in alive for name in names[outside + 1:]):
        return kernel  # the loops that it would close have extent 1: nothing to pack
    if not to:
        raise KernelError(f"{step}: expected loads of the operand over ranges inside of "
                          f"{step.at!r}; got none",
                          hint="name a loop further out, or leave the stage away")
    arg = kernel.arg
    return build.kernel(substitute(kernel.src, to), arg.name, order, arg.apart, arg.near)


def _whole(staged: UOp, loops: Sequence[UOp]) -> list[list[UOp]]:
    """Group the loops by dimension of the stage: loops that blocked summation made of one range are
    joined again, so that vectors fill the stage (program/fills.py)."""
    out: list[list[UOp]] = []
    for r in loops:
        if out and staged.op is ops.LOAD and _goes_on(staged, out[-1][-1], r):
            out[-1].append(r)
        else:
            out.append([r])
    return out


def _goes_on(load: UOp, r: UOp, inside: UOp) -> bool:
    """Return whether in each index of a LOAD both loops form one evenly split range."""
    valid = validity(load)
    if valid is not None and not valid.ranges.isdisjoint((r, inside)):
        return False
    if {r.arg.kind, inside.arg.kind} != {"SEQ"} or \
            any(extent(x).op is not ops.CONST for x in (r, inside)):
        return False
    n = build.const_of(extent(inside))
    steps = [(symbolic.coefficient(i, r), symbolic.coefficient(i, inside)) for i in indices(load)]
    return any(step for step, _ in steps) and all(
        isinstance(step, int) and isinstance(by, int) and step == n * by for step, by in steps)


def _length(loops: Sequence[UOp]) -> UOp:
    return extent(loops[0]) if len(loops) == 1 else build.index_const(product(loops))


def _unclamped(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
    """Drop the clamp of an index that rounds up."""
    clamps = node.op is ops.MIN and node.dtype is dtypes.index
    return next((s for s in src if s.ranges), None) if clamps else None


def _slot(kernel: UOp, nodes: Sequence[UOp], step: StageOperand) -> int:
    """Return the slot of the operand that a stage names."""
    refs: dict[int, UOp] = {n.arg.slot: n for n in nodes if n.op is ops.REF}
    found = [slot for slot, ref in refs.items()
             if step.operand in (slot, ref.arg.name) and step.operand != ""]
    outputs = written_slots(kernel)
    if not found:
        there = [ref.arg.name or slot for slot, ref in sorted(refs.items())
                 if slot not in outputs]
        raise KernelError(f"{step}: expected one of the operands {quoted(map(str, there))}")
    if found[0] in outputs:
        raise KernelError(f"{step}: expected an operand that is only read; "
                          f"{step.operand!r} is written")
    return found[0]


def _outside(names: Sequence[str], step: StageOperand) -> int:
    """Return the position of the loop in which a stage is filled; -1 for the start of the
    kernel."""
    if step.at is None:
        return -1
    if step.at not in names:
        raise KernelError(f"{step}: expected a loop of {quoted(names)}; got {step.at!r}")
    return names.index(step.at)


def _runs(load: UOp, along: str | None) -> bool:
    """Return whether a load depends on a loop, or on one that it was split into."""
    return along is None or any(f"{name_of(r)}_".startswith(f"{along}_") for r in load.ranges)


def _grown(load: UOp, users: dict[UOp, list[UOp]], written: set[UOp]) -> UOp:
    """Return the largest elementwise value made of ``load`` alone over the same ranges, but nothing
    made of reductions, which would be recomputed for each element."""
    grown = load
    while len(users[grown]) == 1:
        user, = users[grown]
        if user.op not in ops.ELEMENTWISE or user.ranges != load.ranges or user in written \
                or user.dtype.kind in ("index", "bool") \
                or any(n.op is ops.REDUCE for s in user.src if s is not grown
                       for n in toposort([s])):
            break
        grown = user
    return grown


def _fill_kind(staged: UOp, r: UOp, last: bool) -> str:
    """Choose VEC if loads and stores are contiguous; unroll the last short loop."""
    lanes = last and (r.arg.kind == "VEC" or _is_row_of_words(staged, r))
    if lanes and _is_contiguous(staged, r):
        return "VEC"
    loads = sum(n.op is ops.LOAD for n in toposort([staged]))
    short = extent(r).op is ops.CONST and \
        symbolic.bounds(extent(r))[1] * loads <= _MAX_UNROLLED_FILL
    return "UNROLL" if short and (lanes or r.arg.kind == "UNROLL") else "SEQ"


def _is_row_of_words(staged: UOp, r: UOp) -> bool:
    """Return whether a plain loop runs over the register words of a tile's row."""
    return staged.op is ops.LOAD and staged.dtype is dtypes.uint32 and r.arg.kind == "SEQ" and \
        extent(r) is build.index_const(_ROW)


def _is_contiguous(staged: UOp, r: UOp) -> bool:
    """Return whether every load that depends on r is contiguous along it."""
    return all(stride(n, r) in (0, 1) for n in toposort([staged]) if n.op is ops.LOAD)


# ---- GLOBAL stages ----------------------------------------------------------------------------


class Part(Record):
    """A kernel that was split off, or the remaining kernel.

    ``refs[i]`` is the slot, in the original kernel, of this kernel's buffer i; ``scalars[i]`` that
    of its VAR i. Slots from the original number of buffers on are temporaries.
    """

    kernel: UOp
    refs: tuple[int, ...]
    scalars: tuple[int, ...]


def split_global(kernel: UOp, kind: str) -> tuple[list[Part], Part, list[UOp]]:
    """Return the kernels that fill the GLOBAL stages, the kernel that reads them, and the
    temporaries.

    A temporary is a REF with slot, dtype and dimensions. The outermost range of a kernel that fills
    a stage gets this ``kind``.
    """
    temporaries: list[UOp] = []
    packs: list[Part] = []
    to: dict[UOp, UOp] = {}
    nodes = toposort(kernel.src)
    count = 1 + max((n.arg.slot for n in nodes if n.op is ops.REF), default=-1)
    for node in nodes:
        if node.op is ops.STAGE and node.arg.space == "GLOBAL":
            if node.ranges:
                raise KernelError("a GLOBAL stage is filled once: expected at=None, got a stage "
                                  f"inside {quoted(name_of(r) for r in node.ranges)}")
            ref = build.ref(count + len(packs), node.dtype, dims(node), node.arg.name)
            temporaries.append(ref)
            to[node] = ref
            packs.append(_pack(kernel, node, ref, kind))
    if not packs:
        scalars = sorted({n.arg.slot for n in nodes if n.op is ops.VAR})
        if scalars != list(range(len(scalars))):  # its loops no longer need some of them
            return [], part_of(kernel.src, kernel.arg), []
        return [], Part(kernel, tuple(range(count)), tuple(scalars)), []
    main = part_of(substitute(kernel.src, to), kernel.arg)
    return packs, main, temporaries


def _pack(kernel: UOp, stage: UOp, ref: UOp, kind: str) -> Part:
    """Return STORE(temporary[d...], value) with an outermost range of this kind."""
    first, *rest = closed(stage)
    outer = first
    if first.arg.kind == "SEQ":
        outer = first.replace(arg=op_args.Range(first.arg.id, kind, first.arg.name))
    store, = substitute([build.store(build.at(ref, first, *rest), value(stage))], {first: outer})
    return part_of([store], op_args.Kernel(f"{kernel.arg.name}_pack",
                                           tuple([r.arg.id for r in (outer, *rest)])))


def part_of(stores: Sequence[UOp], arg: op_args.Kernel) -> Part:
    """Return a KERNEL with dense slots of its own."""
    nodes = toposort(stores)
    refs = sorted({n.arg.slot for n in nodes if n.op is ops.REF})
    scalars = sorted({n.arg.slot for n in nodes if n.op is ops.VAR})

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        given = node.arg
        if node.op is ops.VAR:
            return node.replace(arg=op_args.Var(scalars.index(given.slot), given.low,
                                                given.high, given.name))
        if node.op is ops.REF:
            return node.replace(src=src, arg=given.replace(slot=refs.index(given.slot)))
        return None

    # canonical drops dead ranges
    made = build.kernel(rebuild(stores, visit), arg.name, arg.order, arg.apart, arg.near)
    return Part(canonical(made), tuple(refs), tuple(scalars))
