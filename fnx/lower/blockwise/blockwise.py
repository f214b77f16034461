"""Attention regions: compute products that are only summed tile by tile, without writing them.

    before  s = q @ k.T;  p = exp(s - max(s));  o = (p / sum(p)) @ v     s, p of (h, n, n)
    after   GET(CALL(KERNEL, q, k, v)) of a loop over blocks of keys      o of (h, n, d)

As in FlashAttention. The gradients of q, k and v are computed likewise: each kernel recomputes
tiles of the scores from q, k, the row maxima and the sums. region.py finds these products, and
blocks.py builds the kernels. For each region it is reported what becomes of it, and why.

>>> x = build.param(0, dtypes.float32, (1024, 8))
>>> pair = [build.expand(build.reshape(x, shape), (1024, 1024, 8))
...         for shape in ((1024, 1, 8), (1, 1024, 8))]
>>> scores = build.reduce(build.mul(*pair), ops.ADD, [2])
>>> sums = build.function([build.reduce(build.exp(scores), ops.ADD, [1])], 1)
>>> call = blockwise(sums, Target("cpu")).src[0].src[0]
>>> call.op, call.src[0].arg.name
(CALL, 'blocks_exp_where')
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fnx.core import build, dtypes, op_args, ops
from fnx.core.errors import SpecError
from fnx.core.target import Target
from fnx.core.uop import UOp, inherit, substitute, toposort
from fnx.lower.blockwise import products
from fnx.lower.blockwise.blocks import ReduceKernel, RegionKernel
from fnx.lower.blockwise.exchanged import Exchanged, exchanged
from fnx.lower.blockwise.frame import Frame
from fnx.lower.blockwise.region import Facts, Region, RegionReduce, regions
from fnx.lower.loops.cells import Unfit
from fnx.lower.program.conditions import INEQUALITIES

MEMORY = 1 << 31   # bytes of products above which not writing them is worth
SAVED = 2.0        # this many times the time of writing them
WHOLE = 1 << 18    # smallest matrix, in elements, that pays if no block is skipped

Price = Callable[[UOp], float]  # the predicted time of the kernels of a FUNCTION
TellProduct = Callable[[UOp, str], None]


def blockwise(fn: UOp, target: Target, price: Price | None = None,
              tell: TellProduct | None = None, again: bool = True) -> UOp:
    """Replace regions that can be tiled, and for which it pays, by calls of kernels.

    Args:
        fn: the FUNCTION; bodies inside stay as they are.
        target: the machine.
        price: predicts the time of a region and of its kernels; None: take all that can be tiled.
        tell: called for each region with what becomes of it, and why.
        again: whether values recomputed in another kernel have the same bits.
    """
    facts = Facts(fn)
    found: list[RegionKernel | Exchanged] = []
    for together, region in regions(facts, products.LEAST, again):
        why = region if isinstance(region, str) else ""
        if isinstance(region, Region):
            try:
                blocks = _worth(facts, region, target, price)
                why = f"computed by blocks, in {len(blocks)} kernels"
                found += blocks
            except Unfit as e:
                why = str(e)
        if tell is not None:
            tell(together[0], why)
    if not found:
        return fn
    made = [blocks.made() for blocks in found]
    calls = _calls(made)
    results = substitute(fn.src, calls)
    read = set(toposort(results))
    unread = {node for node, get in calls.items() if get not in read}
    if unread:
        made = [blocks.made(unread) for blocks in found]
        results = substitute(fn.src, _calls([m for m in made if m.folds]))
    return fn.over(tuple(results))


def _worth(facts: Facts, region: Region, target: Target, price: Price | None
           ) -> list[RegionKernel | Exchanged]:
    """Return the kernels of a region.

    Raises:
        Unfit: there are none, or writing its products is faster.
    """
    if not _is_masked(region):
        _check_size(facts, region)
    blocks = _kernels(facts, region, target)
    if price is not None:
        _check_rows(region, blocks)
    made = _in_order(facts, region, blocks)
    if not all(m.skips for m in made):
        _check_size(facts, region)
    if price is not None:
        _check_price(facts, region, made, price)
    return blocks


def _kernels(facts: Facts, region: Region, target: Target
             ) -> list[RegionKernel | Exchanged]:
    """Return the kernels of a region, in an order in which they can run."""
    depends = _dependences(facts, region.folds)
    groups: list[RegionKernel | Exchanged] = []
    at: dict[UOp, int] = {}

    def place(fold: RegionReduce) -> None:
        if fold.node in at:
            return
        group: RegionKernel | Exchanged | None = None
        for known in region.folds:
            if group is None and known.lanes and not fold.lanes \
                    and fold.node not in depends[known.node] and depends[known.node] <= at.keys():
                frame = Frame(region, fold, facts.families(fold.product))
                group = exchanged(frame, fold, known)
                if group is not None:
                    place(known)
        last = max([at[n] for n in depends[fold.node]], default=-1)
        if group is None:
            for i in range(max(last, 0), len(groups)):
                if groups[i].takes(fold, i == last):
                    at[fold.node] = i
                    return
            frame = Frame(region, fold, facts.families(fold.product))
            group = RegionKernel(frame, target, depends)
            if not group.takes(fold, False):
                raise Unfit("a fold of another kind")
        groups.append(group)
        at[fold.node] = len(groups) - 1

    for fold in _ordered(region.folds, depends):
        place(fold)
    return _joined(groups, depends)


def _in_order(facts: Facts, region: Region, groups: Sequence[RegionKernel | Exchanged]
              ) -> list[ReduceKernel]:
    """Return the kernels, checking that each only needs results of earlier ones."""
    depends = _dependences(facts, region.folds)
    at = {f.node: i for i, group in enumerate(groups) for f in group.folds}
    made = [group.made() for group in groups]
    for i, one in enumerate(made):
        for node in one.operands:
            if any(at[n] >= i for n in (node, *depends.get(node, ())) if n in at):
                raise Unfit("a fold waits for what is folded beside it")
    return made


def _joined(groups: Sequence[RegionKernel | Exchanged], depends: dict[UOp, frozenset[UOp]]
            ) -> list[RegionKernel | Exchanged]:
    """Merge final kernels if the rows of one are the blocks of the other."""
    out = list(groups)
    needed = frozenset[UOp]().union(*[depends[f.node] for group in groups for f in group.folds])
    last = [g for g in groups if isinstance(g, RegionKernel)
            and needed.isdisjoint([f.node for f in g.folds])]
    for other in last:
        if any(g is not other and g in out and g.takes_across(other) for g in last):
            out.remove(other)
    return sorted(out, key=last.__contains__)


def _ordered(folds: Sequence[RegionReduce], depends: dict[UOp, frozenset[UOp]]
             ) -> list[RegionReduce]:
    """Sort reductions topologically, each as late as possible: next to others of the same kind."""
    levels: dict[UOp, int] = {}
    for fold in reversed(folds):
        levels[fold.node] = min([levels[f.node] - 1 for f in folds
                                 if f.node in levels and fold.node in depends[f.node]], default=0)
    return sorted(folds, key=lambda f: levels[f.node])


def _dependences(facts: Facts, folds: Sequence[RegionReduce]) -> dict[UOp, frozenset[UOp]]:
    """Return for each node the reductions that it is computed from."""
    own = {fold.node for fold in folds}
    out: dict[UOp, frozenset[UOp]] = {}
    for node in facts.nodes:
        src = () if node.op.closed else node.src
        below = frozenset[UOp]().union(*[out[s] for s in src])
        below |= {s for s in src if s in own}
        out[node] = below
    return out


def _nbytes(region: Region) -> int:
    return sum([math.prod(p.shape) * p.dtype.itemsize for p in region.products])


def _check_size(facts: Facts, region: Region) -> None:
    """Reject a region that is too small to pay if no block is skipped."""
    small = all(facts.matrix(p) < WHOLE for p in region.products)
    if small and _nbytes(region) < MEMORY:
        raise Unfit(f"fewer than {WHOLE} elements, of which none are left out")


def _is_masked(region: Region) -> bool:
    """Whether each reduction may skip blocks: it has a mask that compares integers."""
    walk = region.walk
    return all(any(n.op in INEQUALITIES and n.src[0].dtype.is_integer
                   for n, _ in walk.all(fold.node.src[0], fold.inner)) for fold in region.folds)


def _check_rows(region: Region, blocks: Sequence[RegionKernel | Exchanged]) -> None:
    """Reject tiles of one row, which read a block for each product; no time prediction needed."""
    one = any(isinstance(b, RegionKernel) and b.shares_nothing for b in blocks)
    if one and _nbytes(region) < MEMORY:
        raise Unfit("a sum has so many lanes that a tile is one row")


def _check_price(facts: Facts, region: Region, made: Sequence[ReduceKernel], price: Price) -> None:
    """Reject kernels that are slower than those that write the products."""
    by_blocks, written = map(price, _alone(facts, region, made))
    if by_blocks > written * (SAVED if _nbytes(region) >= MEMORY else 1.0):
        raise Unfit(f"by blocks it is predicted to take {by_blocks / written:.2f} times as long "
                    "as where its products are written")


def _alone(facts: Facts, region: Region, made: Sequence[ReduceKernel]) -> tuple[UOp, UOp]:
    """Return FUNCTIONs of the region's inputs that compute it by its kernels, and as it is."""
    nodes, own = set(facts.nodes), {n for f in region.folds for n in (f.node, f.result)}
    read = {n for m in made for n in m.operands}

    def is_read(node: UOp) -> bool:
        return node in nodes and node not in own and (
            node.op is ops.PARAM or node in read or region.walk.is_memory(node))

    folds = [fold.result for fold in region.folds]
    calls = substitute(folds, _calls(made))
    known = list(filter(is_read, toposort([*calls, *folds], stop=is_read)))
    params = {n: build.param(i, n.dtype, n.shape) for i, n in enumerate(known)}
    by_blocks, written = [build.function(substitute(results, params), len(params))
                          for results in (calls, folds)]
    return by_blocks, written


def _calls(found: Sequence[ReduceKernel]) -> dict[UOp, UOp]:
    """Map the reductions to results of kernel calls."""
    owner = {fold.result: made for made in found for fold in made.folds}
    done: dict[UOp, UOp] = {}
    stack = list(found)[::-1]
    begun: set[int] = set()
    while stack:
        made = stack[-1]
        missing = [owner[n] for n in toposort(made.operands, stop=owner.__contains__)
                   if n in owner and n not in done]
        if missing:
            if id(made) in begun:
                raise SpecError("blockwise: kernels that wait for one another")
            begun.add(id(made))
            stack += missing
            continue
        stack.pop()
        outs = tuple([(fold.result.shape, fold.result.dtype) for fold in made.folds])
        call = UOp(ops.CALL, dtypes.void, (made.kernel, *substitute(made.operands, done)),
                   op_args.Call(made.kernel.arg.name, outs, made.schedule))
        inherit(call, *[fold.node for fold in made.folds])
        done.update(zip([fold.result for fold in made.folds], build.results(call)))
    return done
