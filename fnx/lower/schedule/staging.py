"""Stages: copy what a loop reads of an operand into a small buffer first.

    before  REDUCE(x[14*io + i, k] * w[k, 16*jr + l], k)              order io jr k i l
            stage("w", at="jr")
    after   W = STAGE(w[k', 16*jr + l'], k', l')      filled in each iteration of jr
            REDUCE(x[14*io + i, k] * W[k, l], k)      order io jr k i l k' l'

A stage closes the ranges of the load that lie inside ``at`` and is laid out in their loop order:
that is packing. One in SHARED memory also closes the ranges of threads and is laid out as the
operand is, so that adjacent threads fill adjacent elements. Elementwise work over the same ranges
(a scale, a cast) is staged too, so that it is done once per element; of a factor of a product all
that it is computed from, whose lines may cross the lanes: these have stages of their own first. A
GLOBAL stage is the same for all workers: ``split_global`` turns it into a kernel of its own that
writes a temporary buffer.
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core.ir import build, dtypes, kernel_args, ops
from fnx.core.ir.accessors import (
    bound_ranges,
    buffer,
    conjuncts,
    consumers,
    dims,
    extent,
    indices,
    validity,
    value,
    written_slots,
)
from fnx.core.ir.tiling import StageOperand
from fnx.core.ir.uop import UOp, copy_locs, rebuild, substitute, toposort
from fnx.core.rewriting import symbolic
from fnx.core.support.errors import KernelError
from fnx.core.support.range_kinds import LOOP_KINDS, WORKER_KIND
from fnx.core.support.record import Record
from fnx.lower.analysis.canonicalize import canonicalize
from fnx.lower.analysis.loops import ScheduledLoop, name_of, quote_names
from fnx.lower.analysis.tuning import LINE_BYTES
from fnx.lower.analysis.workload import (
    is_contiguous_along,
    is_long_fill,
    leaf_loads,
    stride,
    volume,
)

_MAX_UNROLLED_FILL = 16
_WORDS_PER_ROW = 16  # register words in a row of a matrix unit's tile


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
        kernel = _place_stage(kernel, step, names)
    return kernel


def _place_stage(kernel: UOp, step: StageOperand, names: Sequence[str]) -> UOp:
    nodes = toposort(kernel.src)
    slot = _find_slot(kernel, nodes, step)
    depth = _loop_position(names, step)
    name_positions = {name: i for i, name in enumerate(names)}
    position = {r: name_positions.get(name_of(r), len(names)) for r in nodes if r.op is ops.RANGE}
    consumers_of = consumers(nodes)
    written = set(map(value, kernel.src))
    replacements: dict[UOp, UOp] = {}
    builder = _StageBuilder(kernel, nodes)
    for load in nodes:
        if load.op is not ops.LOAD or buffer(load).op is not ops.REF \
                or buffer(load).arg.slot != slot or \
                step.along is not None and not _depends_on_loop(load, step.along):
            continue
        staged = _grow_elementwise(load, nodes, consumers_of, written, step.over)
        closed_ranges = [r for r in sorted(staged.ranges, key=position.__getitem__)
                         if position[r] > depth or step.space == "SHARED" and
                         r.arg.kind == "THREAD"]
        if step.space == "SHARED":  # coalesced reads: adjacent threads read adjacent elements
            unclamped, = rebuild([load], _drop_clamp)
            strides = {r: -abs(stride(unclamped, r)) for r in closed_ranges}
            closed_ranges.sort(key=strides.__getitem__)
        if staged not in replacements and closed_ranges:
            replacements[staged] = builder.read(staged, closed_ranges, step.space,
                                                buffer(load).arg.name, step.double)
    live_names = {name_of(r) for r in position}
    if not replacements and any(name not in live_names for name in names[depth + 1:]):
        return kernel  # the loops that it would close have extent 1: nothing to pack
    if not replacements:
        raise KernelError(f"{step}: expected loads of the operand over ranges inside of "
                          f"{step.at!r}; got none",
                          hint="name an outer loop, or remove the stage")
    return builder.kernel(replacements)


class _StageBuilder:
    """Makes stages of the values of a KERNEL."""

    def __init__(self, kernel: UOp, nodes: Sequence[UOp]) -> None:
        self.root, self.order = kernel, list(kernel.arg.order)
        self.range_id = 1 + max(self.order, default=-1)
        self.stage_id = 1 + max((n.arg.id for n in nodes if n.op is ops.STAGE), default=-1)

    def kernel(self, replacements: dict[UOp, UOp]) -> UOp:
        arg = self.root.arg
        return build.kernel(substitute(self.root.src, replacements), arg.name, self.order,
                            arg.stores_disjoint, arg.index_fits_int32)

    def read(self, staged: UOp, closed_ranges: Sequence[UOp], space: str, name: str = "",
             double: bool = False) -> UOp:
        """Return a LOAD of a stage that holds a value over these ranges, outermost first."""
        is_shared = space == "SHARED"
        loop_groups = [[r] for r in closed_ranges] if is_shared else \
            _join_split_loops(staged, closed_ranges)
        around = len(loop_groups[0]) if space == "GLOBAL" else 0  # a kernel has the first in a loop
        filled = staged if is_shared else self._with_lanes_along(staged, closed_ranges[around:])
        fill_ranges = [build.range_(_joined_extent(rs), self.range_id + i, "SEQ" if is_shared else
                                    _fill_kind(filled, rs[-1], closed_ranges),
                                    name_of(rs[-1]) + "_") for i, rs in enumerate(loop_groups)]
        self.range_id += len(fill_ranges)
        self.order += [r.arg.id for r in fill_ranges]
        zeros = {r: build.index_const(0) for rs in loop_groups for r in rs}
        fill_value, = substitute([filled],
                                 zeros | {rs[-1]: r for rs, r in zip(loop_groups, fill_ranges)})
        stage = build.stage(fill_value, fill_ranges, self.stage_id, space, name, double)
        self.stage_id += 1
        stage_indices = [symbolic.ravel(rs, [extent(r) for r in rs]) for rs in loop_groups]
        return copy_locs(build.load(build.index_into(stage, *stage_indices)), staged)

    def _with_lanes_along(self, staged: UOp, ranges: Sequence[UOp]) -> UOp:
        """Return a value whose loads across its lanes read a stage each, if others are contiguous
        along them:

            before  x[t, l] * m[l, t]                       l VEC
            after   x[t, l] * STAGE(m[l', t'], t', l')[t, l]
        """
        lane = ranges[-1] if ranges else None
        if lane is None or lane.arg.kind != "VEC":
            return staged
        loads = [n for n in leaf_loads(staged) if lane in n.ranges]
        across = [n for n in loads if abs(stride(n, lane)) > 1 and any(
            is_contiguous_along(n, r) for r in ranges[:-1])]
        if not across or len(across) == len(loads):
            return staged
        return substitute([staged], {
            n: self.read(n, [r for r in ranges if r in n.ranges], "PRIV") for n in across})[0]


def _join_split_loops(staged: UOp, loops: Sequence[UOp]) -> list[list[UOp]]:
    """Group the loops by dimension of the stage: loops that blocked summation made of one range are
    joined again, so that vectors fill the stage (emit/vectorize_stage_fills.py)."""
    groups: list[list[UOp]] = []
    loads = [n for n in toposort([staged]) if n.op is ops.LOAD]
    for r in loops:
        moving = [n for n in loads if groups and not n.ranges.isdisjoint((groups[-1][-1], r))]
        if moving and all(_is_even_split(n, groups[-1][-1], r) for n in moving):
            groups[-1].append(r)
        else:
            groups.append([r])
    return groups


def _is_even_split(load: UOp, r: UOp, inner_range: UOp) -> bool:
    """Return whether in each index of a LOAD both loops form one evenly split range."""
    valid = validity(load)
    if valid is not None and not valid.ranges.isdisjoint((r, inner_range)):
        return False
    if {r.arg.kind, inner_range.arg.kind} != {"SEQ"} or \
            any(extent(x).op is not ops.CONST for x in (r, inner_range)):
        return False
    n = build.const_of(extent(inner_range))
    coefficients = [(symbolic.coefficient(i, r), symbolic.coefficient(i, inner_range))
                    for i in indices(load)]
    return any(step for step, _ in coefficients) and all(
        isinstance(step, int) and isinstance(by, int) and step == n * by
        for step, by in coefficients)


def _joined_extent(loops: Sequence[UOp]) -> UOp:
    return extent(loops[0]) if len(loops) == 1 else build.index_const(volume(loops))


def _drop_clamp(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
    """Drop the clamp of an index that rounds up."""
    clamps = node.op is ops.MIN and node.dtype is dtypes.index
    return next((s for s in src if s.ranges), None) if clamps else None


def _find_slot(kernel: UOp, nodes: Sequence[UOp], step: StageOperand) -> int:
    """Return the slot of the operand that a stage names."""
    refs: dict[int, UOp] = {n.arg.slot: n for n in nodes if n.op is ops.REF}
    slots = [slot for slot, ref in refs.items()
             if step.operand in (slot, ref.arg.name) and step.operand != ""]
    outputs = written_slots(kernel)
    if not slots:
        operands = [ref.arg.name or slot for slot, ref in sorted(refs.items())
                    if slot not in outputs]
        raise KernelError(f"{step}: expected one of the operands {quote_names(map(str, operands))}")
    if slots[0] in outputs:
        raise KernelError(f"{step}: expected an operand that is only read; "
                          f"{step.operand!r} is written")
    return slots[0]


def _loop_position(names: Sequence[str], step: StageOperand) -> int:
    """Return the position of the loop in which a stage is filled; -1 for the start of the
    kernel."""
    if step.at is None:
        return -1
    if step.at not in names:
        raise KernelError(f"{step}: expected a loop of {quote_names(names)}; got {step.at!r}")
    return names.index(step.at)


def _depends_on_loop(load: UOp, loop_name: str) -> bool:
    """Return whether a load depends on a loop, or on one that it was split into."""
    return any(_is_part(r, loop_name) for r in load.ranges)


def _is_part(r: UOp, loop_name: str) -> bool:
    return f"{name_of(r)}_".startswith(f"{loop_name}_")


def _grow_elementwise(load: UOp, nodes: Sequence[UOp], consumers_of: dict[UOp, list[UOp]],
                      stored_values: set[UOp], over: Sequence[str]) -> UOp:
    """Return the largest elementwise value made of ``load`` alone over the same ranges, through
    which all that is made of it passes (x * x + x, not its product), but nothing made of
    reductions, which would be recomputed for each element, nor of another load over these ranges,
    with which it may be filled element by element. If loops are given, the largest value over
    these, whatever else it is made of: a factor of a product."""
    largest, derived = load, {load}
    unseen = len(consumers_of[load])  # operands in ``derived`` of nodes that are not
    before_other_loads: UOp | None = None
    for user in nodes:  # in topological order
        operands = [s for s in user.src if s in derived]
        if not operands:
            continue
        others = toposort([s for s in user.src if s not in derived])
        is_within = all(any(_is_part(r, name) for name in over) for r in user.ranges) if over \
            else user.ranges == load.ranges
        if user.op not in ops.ELEMENTWISE or not is_within or user in stored_values \
                or user.dtype.kind == "index" or any(n.op is ops.REDUCE for n in others):
            break
        if not over and before_other_loads is None and \
                any(n.op is ops.LOAD and n.ranges == load.ranges for n in others):
            before_other_loads = largest
        derived.add(user)
        unseen -= len(operands)
        if not unseen and user.dtype.kind != "bool":
            largest = user
        unseen += len(consumers_of[user])
    is_word = any(user.op is ops.MMA for user in consumers_of[largest])
    return largest if is_word or before_other_loads is None else before_other_loads


def _fill_kind(staged: UOp, r: UOp, closed_ranges: Sequence[UOp]) -> str:
    """Choose VEC if loads and stores are contiguous; unroll the last short loop, unless that is a
    copy of long work for each row that no vectors share (emit/vectorize_stage_fills.py)."""
    is_vector = r is closed_ranges[-1] and (r.arg.kind == "VEC" or _is_word_row(staged, r))
    if is_vector and _is_contiguous(staged, r):
        return "VEC"
    count = sum(n.op is ops.LOAD and n.ranges == staged.ranges for n in toposort([staged]))
    is_short = extent(r).op is ops.CONST and \
        symbolic.bounds(extent(r))[1] * count <= _MAX_UNROLLED_FILL
    if not is_short or not is_vector and r.arg.kind != "UNROLL":
        return "SEQ"
    is_filled_by_vectors = any(
        is_contiguous_along(staged, q) for q in closed_ranges if q is not r)
    return "UNROLL" if is_filled_by_vectors or not is_long_fill(staged, r) else "SEQ"


def _is_word_row(staged: UOp, r: UOp) -> bool:
    """Return whether a plain loop runs over the register words of a tile's row."""
    return staged.op is ops.LOAD and staged.dtype is dtypes.uint32 and r.arg.kind == "SEQ" and \
        extent(r) is build.index_const(_WORDS_PER_ROW)


def _is_contiguous(staged: UOp, r: UOp) -> bool:
    """Return whether every load that depends on r is contiguous along it."""
    return all(stride(n, r) in (0, 1) for n in toposort([staged]) if n.op is ops.LOAD)


# ---- GLOBAL stages ----------------------------------------------------------------------------


class SplitKernel(Record):
    """A kernel that was split off, or the remaining kernel.

    ``refs[i]`` is the slot, in the original kernel, of this kernel's buffer i; ``scalars[i]`` that
    of its VAR i. Slots from the original number of buffers on are temporaries.
    """

    kernel: UOp
    refs: tuple[int, ...]
    scalars: tuple[int, ...]


def split_global(kernel: UOp, kind: str) -> tuple[list[SplitKernel], SplitKernel, list[UOp]]:
    """Return the kernels that fill the GLOBAL stages, the kernel that reads them, and the
    temporaries.

    A temporary is a REF with slot, dtype and dimensions. The outermost range of a kernel that fills
    a stage gets this ``kind``.
    """
    temporaries: list[UOp] = []
    packs: list[SplitKernel] = []
    replacements: dict[UOp, UOp] = {}
    nodes = toposort(kernel.src)
    buffer_count = 1 + max((n.arg.slot for n in nodes if n.op is ops.REF), default=-1)
    for node in nodes:
        if node.op is ops.STAGE and node.arg.space == "GLOBAL":
            if node.ranges:
                raise KernelError("a GLOBAL stage is filled once: expected at=None, got a stage "
                                  f"inside {quote_names(name_of(r) for r in node.ranges)}")
            ref = build.ref(buffer_count + len(packs), node.dtype, dims(node), node.arg.name)
            temporaries.append(ref)
            replacements |= _masked_reads(nodes, node, ref) | {node: ref}
            packs.append(_pack_kernel(kernel, node, ref, kind))
    if not packs:
        scalars = sorted({n.arg.slot for n in nodes if n.op is ops.VAR})
        if scalars != list(range(len(scalars))):  # its loops no longer need some of them
            return [], extract_kernel(kernel.src, kernel.arg), []
        return [], SplitKernel(kernel, tuple(range(buffer_count)), tuple(scalars)), []
    main = extract_kernel(substitute(kernel.src, replacements), kernel.arg)
    return packs, main, temporaries


def _masked_reads(nodes: Sequence[UOp], stage: UOp, ref: UOp) -> dict[UOp, UOp]:
    """Return the loads of a stage with the masks that other factors of its products have, where it
    is filled with 0: then a product ends there (emit/loop_peeling.py), which a buffer can't say.

        before  x[i, 64*s + t] if 64*s + t < 191    *  W[s, t, l]
        after   x[i, 64*s + t] if 64*s + t < 191    *  (W[s, t, l] if 64*s + t < 191)
    """
    filled = value(stage)
    if filled.op is not ops.LOAD or validity(filled) is None:
        return {}
    masks = {c for n in nodes if n.op is ops.LOAD for c in conjuncts(validity(n))
             if all(r.arg.kind in LOOP_KINDS for r in c.ranges)}
    out = {}
    for load in nodes:
        if load.op is ops.LOAD and buffer(load) is stage and validity(load) is None:
            at, = substitute([filled], dict(zip(bound_ranges(stage), indices(load))))
            same = [c for c in conjuncts(validity(at)) if c in masks]
            if len(same) == 1:
                out[load] = copy_locs(build.load(build.index_into(ref, *indices(load)), *same),
                                      load)
    return out


def _pack_kernel(kernel: UOp, stage: UOp, ref: UOp, kind: str) -> SplitKernel:
    """Return STORE(temporary[d...], value) with an outermost range of this kind.

    On a CPU, workers take as many outer iterations together as share lines of the source, which is
    read line by line then:

        before  for ir in par(128), t in seq(512), i in vec(4):
                  o[ir, t, i] = x[t, 4*ir + i]
        after   for r in par(32), t in seq(512), q in unroll(4), i in vec(4):
                  o[4*r + q, t, i] = x[t, 16*r + 4*q + i]
    """
    first_range, *inner_ranges = bound_ranges(stage)
    loop = ScheduledLoop(first_range.arg.name, extent(first_range))
    loop.final_range, ranges = first_range, [first_range, *inner_ranges]
    if first_range.arg.kind == "SEQ":
        shared = _shared_line_iterations(stage) if kind == WORKER_KIND else 1
        if shared > 1:
            outer, inner = loop.split(shared, loop.name, f"{name_of(first_range)}_")
            inner.final_range = build.range_(inner.extent, 1 + max(r.arg.id for r in ranges),
                                             "UNROLL", inner.name)
            ranges.insert(-1, inner.final_range)
        else:
            outer = loop
        ranges[0] = outer.final_range = build.range_(outer.extent, first_range.arg.id, kind,
                                                     outer.name)
    fill, = substitute([value(stage)], {first_range: loop.clamped()})
    store = build.store(build.index_into(ref, loop.value(), *inner_ranges), fill,
                        next(loop.guards(), None))
    range_ids = tuple([r.arg.id for r in ranges])
    return extract_kernel([store], kernel_args.Kernel(f"{kernel.arg.name}_pack", range_ids))


def _shared_line_iterations(stage: UOp) -> int:
    """Return how many iterations of a stage's first range read the same cache lines, while a range
    inside of it moves on to others; 1 if they share none."""
    first_range, *inner_ranges = bound_ranges(stage)
    if len(inner_ranges) < 2 or extent(first_range).op is not ops.CONST or \
            inner_ranges[-1].arg.kind not in ("VEC", "UNROLL"):
        return 1
    unclamped, = rebuild([value(stage)], _drop_clamp)
    loads = [n for n in toposort([unclamped]) if n.op is ops.LOAD and first_range in n.ranges]
    steps = {abs(stride(n, first_range)) * n.dtype.itemsize for n in loads}
    moves = all(any(abs(stride(n, r)) * n.dtype.itemsize >= LINE_BYTES for r in inner_ranges[:-1])
                for n in loads)
    if len(steps) != 1 or not moves or not 0 < (step := steps.pop()) < LINE_BYTES:
        return 1
    row = volume([inner_ranges[-1]]) if inner_ranges[-1].arg.kind == "UNROLL" else 1
    shared = min(-(-LINE_BYTES // step), _MAX_UNROLLED_FILL // row)
    return shared if volume([first_range]) > shared else 1


def extract_kernel(stores: Sequence[UOp], arg: kernel_args.Kernel) -> SplitKernel:
    """Return a KERNEL with dense slots of its own."""
    nodes = toposort(stores)
    refs = sorted({n.arg.slot for n in nodes if n.op is ops.REF})
    scalars = sorted({n.arg.slot for n in nodes if n.op is ops.VAR})

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        node_arg = node.arg
        if node.op is ops.VAR:
            return node.replace(arg=kernel_args.Var(scalars.index(node_arg.slot), node_arg.low,
                                                node_arg.high, node_arg.name))
        if node.op is ops.REF:
            return node.replace(src=src, arg=node_arg.replace(slot=refs.index(node_arg.slot)))
        return None

    # canonical drops dead ranges
    extracted = build.kernel(rebuild(stores, visit), arg.name, arg.order, arg.stores_disjoint,
                             arg.index_fits_int32)
    return SplitKernel(canonicalize(extracted), tuple(refs), tuple(scalars))
