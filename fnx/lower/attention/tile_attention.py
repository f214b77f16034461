"""Attention regions: compute products that are only summed tile by tile, without writing them.

    before  s = q @ k.T;  p = exp(s - max(s));  o = (p / sum(p)) @ v     s, p of (h, n, n)
    after   GETTUPLE(CALL(KERNEL, q, k, v)) of a loop over blocks of keys  o of (h, n, d)

As in FlashAttention. The gradients of q, k and v are computed likewise: each kernel recomputes
tiles of the scores from q, k, the row maxima and the sums. region.py finds these products, and
region_kernel.py builds the kernels. For each region it is reported what becomes of it, and why.

>>> x = build.param(0, dtypes.float32, (1024, 8))
>>> pair = [build.expand(build.reshape(x, shape), (1024, 1024, 8))
...         for shape in ((1024, 1, 8), (1, 1024, 8))]
>>> scores = build.reduce(build.mul(*pair), ops.ADD, [2])
>>> sums = build.function([build.reduce(build.exp(scores), ops.ADD, [1])], 1)
>>> call = tile_attention(sums, Target("cpu")).src[0].src[0]
>>> call.op, call.src[0].arg.name
(CALL, 'blocks_exp_where')
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from fnx.core.ir import build, build_calls, dtypes, op_args, ops
from fnx.core.ir.uop import UOp, copy_locs, substitute, toposort
from fnx.core.support.errors import SpecError
from fnx.core.support.target import Target
from fnx.lower.analysis import workload
from fnx.lower.analysis.conditions import INEQUALITIES
from fnx.lower.analysis.tuning import WORTHWHILE_RATIO
from fnx.lower.attention.reassociate_sums import ReassociatedSum, reassociate_sum
from fnx.lower.attention.region import AttentionRegion, RegionAnalysis, RegionReduce, find_regions
from fnx.lower.attention.region_kernel import ReduceKernel, RegionKernel
from fnx.lower.attention.tile_frame import TileFrame
from fnx.lower.loops.scalarize import NotFusable

LARGE_BYTES = 1 << 31   # bytes of products above which not writing them is worth
LARGE_SLOWDOWN = 2.0        # this many times the time of writing them
MIN_UNMASKED = 1 << 18    # smallest matrix, in elements, that pays if no block is skipped

PredictTime = Callable[[UOp], float]  # the predicted time of the kernels of a FUNCTION
ReportProduct = Callable[[UOp, str], None]


def tile_attention(fn: UOp, target: Target, predict_time: PredictTime | None = None,
                   report: ReportProduct | None = None, again: bool = True) -> UOp:
    """Replace regions that can be tiled, and for which it pays, by calls of kernels.

    Args:
        fn: the FUNCTION; bodies inside stay as they are.
        target: the machine.
        predict_time: predicts the time of a region and of its kernels; None: take all that can be
            tiled.
        report: called for each region with what becomes of it, and why.
        again: whether values recomputed in another kernel have the same bits.
    """
    facts = RegionAnalysis(fn)
    kernels: list[RegionKernel | ReassociatedSum] = []
    for products_in, region in find_regions(facts, workload.MIN_MATRIX, again):
        reason = region if isinstance(region, str) else ""
        if isinstance(region, AttentionRegion):
            try:
                blocks = _profitable_kernels(facts, region, target, predict_time)
                reason = f"computed by blocks, in {len(blocks)} kernels"
                kernels += blocks
            except NotFusable as e:
                reason = str(e)
        if report is not None:
            report(products_in[0], reason)
    if not kernels:
        return fn
    built = [blocks.build() for blocks in kernels]
    calls = _call_results(built)
    results = substitute(fn.src, calls)
    live = set(toposort(results))
    unused = {node for node, get in calls.items() if get not in live}
    if unused:
        built = [blocks.build(unused) for blocks in kernels]
        results = substitute(fn.src, _call_results([m for m in built if m.reductions]))
    return fn.with_operands(tuple(results))


def _profitable_kernels(facts: RegionAnalysis, region: AttentionRegion, target: Target,
                        predict_time: PredictTime | None
                        ) -> list[RegionKernel | ReassociatedSum]:
    """Return the kernels of a region.

    Raises:
        Unfit: there are none, or writing its products is faster.
    """
    if not _is_masked(region):
        _check_size(facts, region)
    blocks = _kernels(facts, region, target)
    if predict_time is not None:
        _check_rows(region, blocks)
    built = _build_in_order(facts, region, blocks)
    if not all(m.ends_early for m in built):
        _check_size(facts, region)
    if predict_time is not None:
        _check_price(facts, region, built, predict_time)
    return blocks


def _kernels(facts: RegionAnalysis, region: AttentionRegion, target: Target
             ) -> list[RegionKernel | ReassociatedSum]:
    """Return the kernels of a region, in an order in which they can run."""
    dependencies = _dependencies(facts, region.reductions)
    groups: list[RegionKernel | ReassociatedSum] = []
    group_of: dict[UOp, int] = {}

    def assign_group(reduction: RegionReduce) -> None:
        if reduction.node in group_of:
            return
        group: RegionKernel | ReassociatedSum | None = None
        for producer in region.reductions:
            if group is None and producer.lanes and not reduction.lanes \
                    and reduction.node not in dependencies[producer.node] and \
                            dependencies[producer.node] <= group_of.keys():
                frame = TileFrame(region, reduction, facts.families(reduction.product))
                group = reassociate_sum(frame, reduction, producer)
                if group is not None:
                    assign_group(producer)
        last_dependency = max([group_of[n] for n in dependencies[reduction.node]], default=-1)
        if group is None:
            for i in range(max(last_dependency, 0), len(groups)):
                if groups[i].add_reduction(reduction, i == last_dependency):
                    group_of[reduction.node] = i
                    return
            frame = TileFrame(region, reduction, facts.families(reduction.product))
            group = RegionKernel(frame, target, dependencies)
            if not group.add_reduction(reduction, False):
                raise NotFusable("a fold of another kind")
        groups.append(group)
        group_of[reduction.node] = len(groups) - 1

    for reduction in _schedule_late(region.reductions, dependencies):
        assign_group(reduction)
    return _merge_kernels(groups, dependencies)


def _build_in_order(facts: RegionAnalysis, region: AttentionRegion,
                    groups: Sequence[RegionKernel | ReassociatedSum]
                    ) -> list[ReduceKernel]:
    """Return the kernels, checking that each only needs results of earlier ones."""
    dependencies = _dependencies(facts, region.reductions)
    group_of = {f.node: i for i, group in enumerate(groups) for f in group.reductions}
    built = [group.build() for group in groups]
    for i, kernel in enumerate(built):
        for node in kernel.operands:
            if any(group_of[n] >= i for n in (node, *dependencies.get(node, ())) if n in group_of):
                raise NotFusable("a fold waits for what is folded beside it")
    return built


def _merge_kernels(groups: Sequence[RegionKernel | ReassociatedSum],
                   dependencies: dict[UOp, frozenset[UOp]]
                   ) -> list[RegionKernel | ReassociatedSum]:
    """Merge final kernels if the rows of one are the blocks of the other."""
    out = list(groups)
    needed = frozenset[UOp]().union(*[dependencies[f.node] for group in groups
                                      for f in group.reductions])
    sinks = [g for g in groups if isinstance(g, RegionKernel)
             and needed.isdisjoint([f.node for f in g.reductions])]
    for other in sinks:
        if any(g is not other and g in out and g.merge_rows(other) for g in sinks):
            out.remove(other)
    return sorted(out, key=sinks.__contains__)


def _schedule_late(reductions: Sequence[RegionReduce], dependencies: dict[UOp, frozenset[UOp]]
                   ) -> list[RegionReduce]:
    """Sort reductions topologically, each as late as possible: next to others of the same kind."""
    levels: dict[UOp, int] = {}
    for fold in reversed(reductions):
        levels[fold.node] = min([levels[f.node] - 1 for f in reductions
                                 if f.node in levels and fold.node in dependencies[f.node]],
                                default=0)
    return sorted(reductions, key=lambda f: levels[f.node])


def _dependencies(facts: RegionAnalysis,
                  reductions: Sequence[RegionReduce]) -> dict[UOp, frozenset[UOp]]:
    """Return for each node the reductions that it is computed from."""
    reduction_nodes = {fold.node for fold in reductions}
    dependencies: dict[UOp, frozenset[UOp]] = {}
    for node in facts.nodes:
        src = () if node.op.is_isolated else node.src
        below = frozenset[UOp]().union(*[dependencies[s] for s in src])
        below |= {s for s in src if s in reduction_nodes}
        dependencies[node] = below
    return dependencies


def _nbytes(region: AttentionRegion) -> int:
    return sum([math.prod(p.shape) * p.dtype.itemsize for p in region.products])


def _check_size(facts: RegionAnalysis, region: AttentionRegion) -> None:
    """Reject a region that is too small to pay if no block is skipped."""
    small = all(facts.matrix_size(p) < MIN_UNMASKED for p in region.products)
    if small and _nbytes(region) < LARGE_BYTES:
        raise NotFusable(f"fewer than {MIN_UNMASKED:,} elements, none of them masked")


def _is_masked(region: AttentionRegion) -> bool:
    """Whether each reduction may skip blocks: it has a mask that compares integers."""
    walk = region.walk
    return all(any(n.op in INEQUALITIES and n.src[0].dtype.is_integer
                   for n, _ in walk.all(fold.node.src[0], fold.inner))
               for fold in region.reductions)


def _check_rows(region: AttentionRegion, blocks: Sequence[RegionKernel | ReassociatedSum]) -> None:
    """Reject tiles of one row, which read a block for each product; no time prediction needed."""
    has_single_rows = any(isinstance(b, RegionKernel) and b.has_single_row_tile for b in blocks)
    if has_single_rows and _nbytes(region) < LARGE_BYTES:
        raise NotFusable("a sum has so many lanes that a tile is one row")


def _check_price(facts: RegionAnalysis, region: AttentionRegion, built: Sequence[ReduceKernel],
                 predict_time: PredictTime) -> None:
    """Reject kernels that are not predicted to be faster than those that write the products, by
    more than predictions err where it is about little memory."""
    tiled_time, written_time = map(predict_time, _isolate(facts, region, built))
    limit = LARGE_SLOWDOWN if _nbytes(region) >= LARGE_BYTES else WORTHWHILE_RATIO
    if tiled_time > written_time * limit:
        raise NotFusable(f"by blocks it is predicted to take {tiled_time / written_time:.2f} "
                         "times as long "
                         "as where its products are written")


def _isolate(facts: RegionAnalysis, region: AttentionRegion,
             built: Sequence[ReduceKernel]) -> tuple[UOp, UOp]:
    """Return FUNCTIONs of the region's inputs that compute it by its kernels, and as it is."""
    nodes = set(facts.nodes)
    region_nodes = {n for f in region.reductions for n in (f.node, f.result)}
    operand_nodes = dict.fromkeys([n for m in built for n in m.operands])

    def is_read(node: UOp) -> bool:
        return node in nodes and node not in region_nodes and (
            node.op is ops.PARAM or node in operand_nodes or region.walk.is_memory(node))

    folds = [fold.result for fold in region.reductions]
    inputs = list(filter(is_read, toposort([*folds, *operand_nodes], stop=is_read)))
    params = dict(zip(inputs, build_calls.params_like(inputs)))
    tiled_fn, written_fn = [build.function(substitute(folds, known), len(params))
                            for known in (_call_results(built, params), params)]
    return tiled_fn, written_fn


def _call_results(kernels: Sequence[ReduceKernel], known: Mapping[UOp, UOp] | None = None
                  ) -> dict[UOp, UOp]:
    """Map the reductions to results of kernel calls. ``known``: replacements of other nodes."""
    owner = {fold.result: kernel for kernel in kernels for fold in kernel.reductions}
    result_of: dict[UOp, UOp] = dict(known or {})
    stack = list(kernels)[::-1]
    begun: set[int] = set()
    while stack:
        kernel = stack[-1]
        missing = [owner[n] for n in toposort(kernel.operands, stop=owner.__contains__)
                   if n in owner and n not in result_of]
        if missing:
            if id(kernel) in begun:
                raise SpecError("blockwise: kernels that wait for one another")
            begun.add(id(kernel))
            stack += missing
            continue
        stack.pop()
        outs = tuple([(fold.result.shape, fold.result.dtype) for fold in kernel.reductions])
        call = UOp(ops.CALL, dtypes.void, (kernel.kernel, *substitute(kernel.operands, result_of)),
                   op_args.Call(kernel.kernel.arg.name, outs, kernel.schedule))
        copy_locs(call, *[fold.node for fold in kernel.reductions])
        result_of.update(zip([fold.result for fold in kernel.reductions], build.results(call)))
    return result_of
