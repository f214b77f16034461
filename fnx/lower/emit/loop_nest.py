"""The loop nest of a tiled KERNEL: its loops, and the statements in each.

Statements are STOREs, STAGE fills, LOOPs, and REDUCEs over ranges that become loops (a REDUCE
over only UNROLL and VEC ranges is a value). A statement's path lists its loops, outermost first:

    row softmax, order (row, c0, c1, c2)                  path
    mx = REDUCE(x[row, c0], MAX, c0)                      row | c0
    e  = STAGE(exp(x[row, c1] - mx), c1)                  row | c1
    s  = REDUCE(exp(x[row, c1] - mx), ADD, c1)            row | c1
    STORE(o[row, c2], e[c2] / s)                          row c2 |

The loops left of the bar are shared with the readers of the result. Those right of it are the
statement's own: its result is ready when they have ended. Statements whose next loop is equal share
it, unless a dependence forces separate loops:

    row: { c0: {mx}  c1: {e, s}  c2: {STORE} }

A reader of a LOOP by PER_ITERATION runs inside its loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fnx.core.ir import ops
from fnx.core.ir.accessors import LoopOrder, bound_ranges, buffer, indices
from fnx.core.ir.uop import UOp, toposort
from fnx.core.support.errors import KernelError
from fnx.core.support.range_kinds import LOOP_KINDS, PARALLEL_KINDS, RANGE_KINDS
from fnx.lower.analysis.split_index_sets import are_disjoint


class Statement:
    """A node that runs in the loops ``path``; those from ``path[outer_depth]`` on are its own.

    ``closed`` are all ranges that it reduces or fills over; ``depends`` are (statement, number of
    outer loops that may be shared with it).
    """

    __slots__ = ("closed", "depends", "node", "outer_depth", "path")

    def __init__(self, node: UOp, path: tuple[UOp, ...], outer_depth: int, closed: tuple[UOp, ...]
                 ) -> None:
        self.node, self.path, self.outer_depth, self.closed = node, path, outer_depth, closed
        self.depends: list[tuple[Statement, int]] = []

    def __repr__(self) -> str:
        names = [r.arg.name or str(r.arg.id) for r in self.path]
        outer, inner = names[:self.outer_depth], names[self.outer_depth:]
        return f"<{self.node.op} {' '.join(outer)} | {' '.join(inner)}>"


class LoopNest:
    """A loop over ``range`` (None: the whole kernel) with ``body`` in execution order.

    ``statements`` are all statements inside, including those of inner loops.
    """

    __slots__ = ("body", "depth", "range", "statements")

    def __init__(self, range: UOp | None, depth: int, statements: Sequence[Statement] = ()) -> None:
        self.range, self.depth, self.statements = range, depth, list(statements)
        self.body: list[LoopNest | Statement] = []


def is_statement(node: UOp) -> bool:
    """Return whether a node runs in loops of its own, rather than at its uses."""
    return node.op in (ops.STORE, ops.STAGE, ops.LOOP) or (
        node.op is ops.REDUCE and any(r.arg.kind in LOOP_KINDS for r in bound_ranges(node)))


def build_loop_nest(kernel: UOp) -> LoopNest:
    """Build the loop nest of a tiled KERNEL.

    Raises:
        KernelError: the kinds or the order of the ranges allow no loop nest.
    """
    nodes = toposort(kernel.src)
    _check_ranges(nodes, kernel)
    root = LoopNest(None, 0,
                    _statements(nodes, LoopOrder(kernel.arg.order), kernel.arg.stores_disjoint))
    _build_bodies(root)
    return root


def _check_ranges(nodes: list[UOp], kernel: UOp) -> None:
    ranges = [n for n in nodes if n.op is ops.RANGE]
    parallel = {r for r in ranges if r.arg.kind in PARALLEL_KINDS}
    for kind, count in Counter(r.arg.kind for r in parallel).items():
        if count > (RANGE_KINDS[kind].max_ranges or count):
            raise KernelError(f"expected at most {RANGE_KINDS[kind].max_ranges} {kind} range, got "
                              f"{count}", hint="merge them into one range, or make one of them SEQ")
    for store in kernel.src if parallel else ():
        if not parallel <= store.ranges:
            raise KernelError("expected every store inside the range that workers share",
                              hint="a store outside would be done once by each worker")


# ---- statements -------------------------------------------------------------------------------


def _statements(nodes: list[UOp], order: LoopOrder, disjoint: bool) -> list[Statement]:
    """Return all statements in dependence order.

    Readers determine the outer loops, so they are visited first. A node with two readers that
    share no loops runs twice.
    """
    statement_nodes = [n for n in nodes if is_statement(n)]
    reads, read_by_step = _reads(nodes, statement_nodes)
    outers: dict[UOp, dict[tuple[UOp, ...], Statement]] = {n: {} for n in statement_nodes}
    for node in reversed(statement_nodes):
        if node.op is ops.STORE:
            path = order.select_kinds(node.ranges, LOOP_KINDS)
            outers[node] = {path: Statement(node, path, len(path), ())}
        else:
            inner = order.select_kinds(bound_ranges(node), LOOP_KINDS)
            for outer in outers[node]:
                _check_own(node, inner, outer)
                outers[node][outer] = Statement(node, outer + inner, len(outer), bound_ranges(node))
        for s in list(outers[node].values()):
            for read in reads[node]:
                outers[read].setdefault(_shared_loops(s.path, read), s)
            for read in read_by_step[node]:
                outers[read].setdefault(_loops_around(s.path, read), s)
    out = [s for n in statement_nodes for s in outers[n].values()]
    for s in out:
        for read in reads[s.node]:
            outer = _shared_loops(s.path, read)
            s.depends.append((outers[read][outer], len(outer)))
        for read in read_by_step[s.node]:
            outer = _loops_around(s.path, read)
            s.depends.append((outers[read][outer], len(outer) + 1))
    _order_stores(out, disjoint)
    return out


_Reads = dict[UOp, list[UOp]]


def _reads(nodes: list[UOp], statement_nodes: list[UOp]) -> tuple[_Reads, _Reads]:
    """Return the statements that each statement reads directly, and the LOOPs it reads by
    PER_ITERATION."""
    number = {n: i for i, n in enumerate(statement_nodes)}
    count = len(statement_nodes)
    visible: dict[UOp, int] = {}  # bit sets: statements read, and from bit ``count`` on, LOOPs read
    reads: _Reads = {}
    read_by_step: _Reads = {}
    for n in nodes:
        bits = 0
        for s in n.src:
            bits |= visible[s]
        if n.op is ops.PER_ITERATION:
            bits = visible[n.src[0]] | 1 << number[n.src[1]] + count
        if n in number:
            reads[n] = [statement_nodes[i] for i in range(count) if bits >> i & 1]
            read_by_step[n] = [statement_nodes[i] for i in range(count) if bits >> i + count & 1]
            bits = 1 << number[n]
        visible[n] = bits
    return reads, read_by_step


def _loops_around(path: tuple[UOp, ...], read: UOp) -> tuple[UOp, ...]:
    """Return the loops of a reader outside the LOOP loop that it runs in."""
    return path[:path.index(bound_ranges(read)[0])]


def _shared_loops(path: tuple[UOp, ...], read: UOp) -> tuple[UOp, ...]:
    """Return the loops of a reader that ``read`` shares: down to its innermost free range."""
    for i in range(len(path), 0, -1):
        if path[i - 1] in read.ranges:
            return path[:i]
    return ()


def _check_own(node: UOp, inner: tuple[UOp, ...], outer: tuple[UOp, ...]) -> None:
    if not set(inner).isdisjoint(outer):
        raise KernelError("expected the free ranges of a reduction or stage outside those it "
                          f"closes, got {node}", hint="change the order of the loops")
    if any(r.arg.kind in PARALLEL_KINDS for r in inner):
        raise KernelError("expected a range that workers share, and nothing folds or fills over",
                          hint="make it SEQ, or split it and reduce the parts in another kernel")


def _order_stores(statements: list[Statement], disjoint: bool) -> None:
    """Keep the order of stores to one buffer; they share loops that move both equally.

    Disjoint stores, such as the parts of a concatenation, may come in any order.
    """
    last: dict[int, list[Statement]] = {}
    for s in statements:
        if s.node.op is not ops.STORE:
            continue
        earlier = last.setdefault(buffer(s.node).arg.slot, [])
        for e in earlier:
            equal_indices = [i for i, j in zip(indices(s.node), indices(e.node)) if i is j]
            shared = 0
            for r, t in zip(s.path, e.path):
                if r is not t or not any(r in i.ranges for i in equal_indices):
                    break
                shared += 1
            may_swap = s.node.arg is None and e.node.arg is None and s.path != e.path
            if may_swap and disjoint:
                continue
            differ = (may_swap or not shared) and are_disjoint(indices(s.node), indices(e.node))
            if not differ or shared and not may_swap:
                s.depends.append((e, shared))
        earlier.append(s)


# ---- loops ------------------------------------------------------------------------------------


def _build_bodies(root: LoopNest) -> None:
    """Build the loop bodies, outermost first."""
    pending = [root]
    while pending:
        outer = pending.pop()
        depth = outer.depth
        last: dict[UOp, int] = {}  # position in the body of the last loop over a range
        position: dict[int, int] = {}
        clusters, predecessors = _clusters(outer.statements, depth)
        for number in _sort_clusters(clusters, predecessors, depth):
            members = clusters[number]
            r = _next_loop(members[0], depth)
            earliest = max((position[b] + 1 for b in predecessors[number]), default=0)
            if r is None:
                position[number] = len(outer.body)
                outer.body += members
                continue
            if last.get(r, -1) < earliest:
                last[r] = len(outer.body)
                outer.body.append(LoopNest(r, depth + 1))
            position[number] = last[r]
            inner = outer.body[last[r]]
            assert isinstance(inner, LoopNest)
            inner.statements += members
        rank = {s: i for i, s in enumerate(outer.statements)}
        for item in outer.body:
            if isinstance(item, LoopNest):
                item.statements.sort(key=rank.__getitem__)
                pending.append(item)


def _next_loop(s: Statement, depth: int) -> UOp | None:
    return s.path[depth] if len(s.path) > depth else None


def _clusters(statements: list[Statement],
              depth: int) -> tuple[dict[int, list[Statement]], dict[int, set[int]]]:
    """Group statements that must share the next loop, and find what each group must follow.

    Statements share a loop if one reads in an iteration what another computes in it.
    """
    number = {s: i for i, s in enumerate(statements)}
    cluster = list(range(len(statements)))

    def find(i: int) -> int:
        while cluster[i] != i:
            i = cluster[i]
        return i

    for s in statements:
        for read, shared in s.depends:
            if read in number and shared > depth:
                a, b = sorted((find(number[read]), find(number[s])))
                cluster[b] = a
    members: dict[int, list[Statement]] = {}
    predecessors: dict[int, set[int]] = {}
    for i, s in enumerate(statements):
        members.setdefault(find(i), []).append(s)
        predecessors.setdefault(find(i), set()).update(
            find(number[read]) for read, shared in s.depends
            if read in number and shared <= depth)
    return members, predecessors


def _sort_clusters(clusters: dict[int, list[Statement]], predecessors: dict[int, set[int]],
                   depth: int) -> list[int]:
    """Sort clusters topologically; prefer one that shares the previous loop."""
    out: list[int] = []
    waiting = list(clusters)
    previous_loop: UOp | None = None
    while waiting:
        ready = [c for c in waiting if predecessors[c].issubset(out)]
        if not ready:
            raise KernelError("expected an order of loops in which every value is computed "
                              "before it is read", hint="change the order of the loops")
        sharing = [c for c in ready if previous_loop is not None
                   and _next_loop(clusters[c][0], depth) is previous_loop]
        chosen = (sharing or ready)[0]
        previous_loop = _next_loop(clusters[chosen][0], depth)
        waiting.remove(chosen)
        out.append(chosen)
    return out
