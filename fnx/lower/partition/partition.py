"""Partition: a FUNCTION on whole arrays -> one on the blocks of a process, with collectives.

    before  sum(x * w, axis 0)                   x: f32[8], cut by an axis "a" of 2 processes
    after   all_reduce[a](sum(x * w, axis 0))    x: f32[4]

All processes get the same program. A walk computes the block of each node from those of its
operands: the cuts of the result are those of the operand that would be the largest to move, and the
others are resharded (reshard.py). A sum over an axis that is cut is pending: it stays a partial sum
through what is linear, as long as one node reads it. What has no rule is computed by all processes
on whole arrays.

>>> from fnx.core.ir import dtypes
>>> from fnx.core.levels.show import pretty
>>> x = build.param(0, dtypes.float32, (8,))
>>> local, parts = partition(build.function([build.reduce(x, ops.ADD, [0])], 1, "total"),
...                          ProcessGrid(("a",), (2,)), [(("a",),)])
>>> parts, build.params(local)[0].shape
([()], (4,))
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

from fnx.core.ir import build, ops
from fnx.core.ir.axis_partitions import (
    CORE_AXES,
    AxisMap,
    Names,
    Partitions,
    axis_maps,
    fit,
    reshaped,
)
from fnx.core.ir.op_args import ProcessGrid
from fnx.core.ir.op_bodies import OpBodies
from fnx.core.ir.ops import Shape
from fnx.core.ir.uop import UOp, copy_locs, current_loc, toposort
from fnx.core.support.errors import ShapeError
from fnx.lower.partition import indexed
from fnx.lower.partition.reshard import REDUCIBLE, Block, Resharder, weight, whole
from fnx.lower.partition.windows import Windows

Constraint = Callable[[UOp], Partitions | None]  # of the FUNCTION of a CALL


def partition(function: UOp, grid: ProcessGrid, params: Sequence[Partitions],
              wanted: Sequence[Partitions | None] = (),
              constraint: Constraint = lambda function: None) -> tuple[UOp, list[Partitions]]:
    """Return the program of each process of a grid, and the cuts of its results.

    Args:
        function: on whole arrays.
        grid: the processes; its axes are those of a mesh that span processes.
        params: for each axis of each parameter the axes of the grid that cut it.
        wanted: the cuts of results; None: those that follow.
        constraint: the cuts that a CALL of a FUNCTION, which is the identity, stands for.

    Raises:
        ShapeError: parameters that are not cut into equal blocks.
    """
    walk = _Walk(grid, constraint)
    blocks = []
    for i, param in build.params(function).items():
        parts = (*params[i], *[()] * (len(param.shape) - len(params[i])))
        if fit(parts, param.shape, walk.sizes) != parts:
            raise ShapeError(f"expected an array of equal blocks, got {param.shape} cut by {parts}",
                             hint="pad it, or shard it over fewer axes of the mesh")
        blocks.append((i, Block(walk.param(i, param, parts), parts)))
    loc, current_loc.loc = current_loc.loc, None
    try:
        outs = walk.frame(function, dict(blocks), wanted).outs
        targets = [out.parts if parts is None else parts for out, parts in
                   zip(outs, (*wanted, *[None] * len(outs)))]
        nodes = walk.summed([walk.reshard(out, parts, parts == out.parts)
                             for out, parts in zip(outs, targets)])
    finally:
        current_loc.loc = loc
    return build.function(nodes, function.arg.n_params, function.arg.name), targets


class _Walk:
    """The blocks of the nodes of FUNCTIONs over one grid."""

    def __init__(self, grid: ProcessGrid, constraint: Constraint) -> None:
        self.sizes = dict(zip(grid.names, grid.sizes))
        self.reshard = Resharder(grid)
        self._constraint = constraint

    def param(self, slot: int, like: UOp, parts: Partitions) -> UOp:
        """Return a parameter of the local program."""
        return build.param(slot, like.dtype, self.reshard.local_shape(like.shape, parts))

    def summed(self, blocks: Sequence[Block]) -> list[UOp]:
        """Return the nodes of blocks without partial sums; sums over the same processes are one
        collective."""
        out = [block.node for block in blocks]
        for names in dict.fromkeys([block.pending for block in blocks if block.pending]):
            nodes = list(dict.fromkeys([b.node for b in blocks if b.pending == names]))
            total = dict(zip(nodes, self.reshard.exchange("all_reduce", names, nodes,
                                                          monoid=ops.ADD)))
            out = [total[b.node] if b.pending == names else x for x, b in zip(out, blocks)]
        return out

    def frame(self, function: UOp, params: Mapping[int, Block],
              wanted: Sequence[Partitions | None] = ()) -> _Frame:
        """Return the walk over a FUNCTION whose parameters are these blocks."""
        frame = _Frame(self, function, params, wanted)
        for node in frame.order:
            frame.visit(node)
        return frame

    def body(self, function: UOp, params: Sequence[Block]) -> _Frame:
        """Return the walk over a body, whose parameters may be cut otherwise than ours."""
        walk = _Walk(self.reshard.grid, self._constraint)
        return walk.frame(function, {
            i: x.replace(node=build.param(i, x.node.dtype, x.node.shape))
            for i, x in enumerate(params)})

    def constraint(self, node: UOp) -> Partitions | None:
        """Return the cuts that a CALL stands for."""
        parts = self._constraint(node.src[0]) if node.op is ops.CALL else None
        return None if parts is None else fit(parts, node.arg.outs[0][0], self.sizes)

    def called(self, node: UOp, operands: Sequence[Block]) -> list[Block]:
        """Return the blocks of the results of an op with bodies."""
        bodies = OpBodies(node)
        if node.op in (ops.CALL, ops.CUSTOM):
            if not bodies.steps:
                return self.replicated(node, operands)
            if (target := self.constraint(node)) is not None:
                return [self.reshard(x, target) for x in operands[:len(node.arg.outs)]]
            return self.frame(bodies.steps[0], dict(enumerate(operands))).outs
        consts, carries, rest = map(list, bodies.split(
            [self.reshard(x, x.parts) for x in operands[len(bodies.selector):]]))
        selector = [self.reshard.gathered(x).node for x in operands[:len(bodies.selector)]]
        is_scan = node.op is ops.SCAN
        if is_scan:
            rest = [self.reshard(x, ((), *x.parts[1:])) for x in rest]
        rows = [Block(build.param(0, x.node.dtype, x.node.shape[1:]), x.parts[1:]) for x in rest] \
            if is_scan else rest
        for last in (False, False, True):  # cuts of carries grow twice at most
            runs = [self.body(step, [*consts, *carries, *rows]) for step in bodies.steps]
            parts = [x.parts for x in runs[0].outs]
            grown = [x.parts if last else self._grown(x.parts, then)
                     for x, then in zip(carries, parts)]
            if grown == [x.parts for x in carries]:
                break
            carries = [self.reshard(x, p) for x, p in zip(carries, grown)]
        if is_scan:
            carries, runs = self._sums_over_steps(bodies, runs[0], consts, carries, rows)
        outs = [*carries, *[Block(x.node, x.parts) for x in runs[0].outs[len(carries):]]]
        tests = [self.body(test, [*consts, *carries]).closed() for test in bodies.conditions]
        called = bodies.rebuild([*tests, *[run.closed(outs) for run in runs]],
                                [[x.node for x in group] for group in (consts, carries, rest)],
                                selector=selector)
        return [Block(x, ((), *out.parts) if is_scan and i >= len(carries) else out.parts,
                      out.pending)
                for i, (x, out) in enumerate(zip(build.results(copy_locs(called, node)), outs))]

    def _sums_over_steps(self, bodies: OpBodies, run: _Frame, consts: list[Block],
                         carries: list[Block], rows: list[Block]
                         ) -> tuple[list[Block], list[_Frame]]:
        """Let carries that begin at zero, and to which steps add partial sums, be partial sums."""
        step, n = bodies.steps[0], bodies.n_consts
        pending = [run.added_sums(out, n + i) if indexed.is_zero(bodies.operands[n + i]) else ()
                   for i, out in enumerate(step.src[:len(carries)])]
        if any(pending):
            sums = [x.replace(pending=names) for x, names in zip(carries, pending)]
            again = self.body(step, [*consts, *sums, *rows])
            if all(set(out.pending) == set(x.pending) and out.parts == x.parts
                   for x, out in zip(sums, again.outs) if x.pending):
                return sums, [again]
        return carries, [run]

    def _grown(self, now: Partitions, then: Partitions) -> Partitions:
        """Return the cuts of a carry that is whole where its step cuts it."""
        used = _names(now)
        return tuple([b if not a and used.isdisjoint(b) else a for a, b in zip(now, then)])

    def replicated(self, node: UOp, operands: Sequence[Block]) -> list[Block]:
        """Return the results of an op that all processes compute on whole arrays."""
        nodes = iter([self.reshard.gathered(x).node for x in operands])
        new = node.with_operands(tuple([x if x.op in _SCOPES else next(nodes) for x in node.src]))
        return [whole(x) for x in (build.results(new) if node.op in ops.MULTI_RESULT else [new])]


_SCOPES = frozenset({ops.FUNCTION, ops.KERNEL})


class _Frame:
    """The walk over one FUNCTION."""

    def __init__(self, walk: _Walk, function: UOp, params: Mapping[int, Block],
                 wanted: Sequence[Partitions | None]) -> None:
        self.walk, self.reshard, self.params = walk, walk.reshard, params
        self.function = function
        self.order = [n for n in toposort(function.src, stop=lambda n: n.op in _SCOPES)
                      if n.op not in _SCOPES]
        self.readers = Counter([s for n in self.order for s in n.src])
        self.readers.update(function.src)
        self.of: dict[UOp, Block] = {}
        self._windows = Windows(walk.reshard)
        self._several: dict[UOp, list[Block]] = {}
        self._summed: dict[UOp, Names] = {}  # what is no longer a partial sum
        self._wishes = self._cuts_of_readers(zip(function.src, wanted))

    def _cuts_of_readers(self, results: Iterable[tuple[UOp, Partitions | None]]
                         ) -> dict[UOp, Partitions]:
        """Return the cuts of nodes from those that constraints and results shall have."""
        out = {x: parts for x, parts in results if parts is not None}
        for node in reversed(self.order):
            if (target := self.walk.constraint(node)) is not None:
                out.update(dict.fromkeys(node.src[1:], target))
            wish = out.get(node, ())
            if not any(wish) or node.op in _SCOPES or node.op is ops.GETTUPLE:
                continue
            if node.op is ops.RESHAPE:
                x, = node.src
                out.setdefault(x, reshaped(node.shape, x.shape, wish, self.walk.sizes)[1])
                continue
            for x, axes in zip(node.src, axis_maps(node)):
                out.setdefault(x, tuple([() if j is None else wish[j] for j in axes]))
        return out

    @property
    def outs(self) -> list[Block]:
        """The blocks of the results."""
        return [self.of[x] for x in self.function.src]

    def closed(self, like: Sequence[Block] = ()) -> UOp:
        """Return the local FUNCTION, with results that are cut, and partial sums, as these are, or
        whole."""
        outs = self.outs
        nodes = [self.reshard(x, y.parts, bool(y.pending)).node for x, y in zip(outs, like)] \
            if like else [self.reshard.gathered(x).node for x in outs]
        return build.function(nodes, self.function.arg.n_params, self.function.arg.name)

    def added_sums(self, out: UOp, slot: int) -> Names:
        """Return the names of the partial sum that a result adds to a parameter."""
        is_added = out.op is ops.ADD and slot in [x.arg.slot for x in out.src if x.op is ops.PARAM]
        return next((self._summed[x] for x in out.src if x in self._summed), ()) if is_added else ()

    def visit(self, node: UOp) -> None:
        """Compute the block of a node from those of its operands."""
        if node.op is ops.PARAM:
            self.of[node] = self.params[node.arg.slot]
            return
        if node.op is ops.GETTUPLE:
            self.of[node] = self._several[node.src[0]][node.arg]
            return
        self.reshard.reader = node
        operands = [x for x in node.src if x.op not in _SCOPES]
        if not (keeps_sums := self._keeps_sums(node)):
            for x in operands:
                if self.of[x].pending:
                    self._summed[x] = self.of[x].pending
                if node.op.kind != "elementwise" or self.readers[x] > 1:  # else as it is cut
                    self.of[x] = self.reshard(self.of[x], self.of[x].parts)
        blocks = [self.of[x] for x in operands]
        if node.op in ops.HIGHER_ORDER:
            self._several[node] = self.walk.called(node, blocks)
        elif node.op in ops.MULTI_RESULT:
            self._several[node] = self._batched(node, blocks) if node.op in CORE_AXES else \
                self.walk.replicated(node, blocks)
        else:
            block = self._computed(node, blocks, keeps_sums)
            copy_locs(block.node, node)
            self.of[node] = block
            self._windows.record(node, self.of)

    def _keeps_sums(self, node: UOp) -> bool:
        """Return whether partial sums of operands are partial sums of the result."""
        summed = [x in self.of and bool(self.of[x].pending) for x in node.src]
        if not any(summed):
            return True
        if any(self.readers[x] > 1 for x, is_sum in zip(node.src, summed) if is_sum):
            return False
        if node.op in (ops.CALL, ops.CUSTOM):
            return True
        if node.op in (ops.ADD, ops.SUB):
            return len({frozenset(self.of[x].pending) for x in node.src}) == 1
        if node.op in (ops.MUL, ops.DIV):
            return not all(summed) and (summed[0] or node.op is ops.MUL)
        return node.op in _LINEAR or node.op is ops.REDUCE and node.arg.monoid is ops.ADD

    def _computed(self, node: UOp, blocks: list[Block], keeps_sums: bool) -> Block:
        if not blocks:
            return whole(node)
        if node.op is ops.RESHAPE:
            return self._reshape(node, blocks[0])
        if node.op is ops.REDUCE:
            return self._reduce(node, self._windows.operand_of_reduce(node, blocks[0]))
        if node.op is ops.BARRIER:
            return blocks[0].replace(node=node.with_operands(tuple([b.node for b in blocks])))
        moved_rows = indexed.block_of(node, self.of, self.reshard) or \
            self._windows.block_of(node, self.of)
        if moved_rows is not None:
            return moved_rows
        maps = axis_maps(node)
        free = range(len(node.shape)) if node.op is ops.EXPAND else {j for m in maps for j in m}
        wish = tuple([part if j in free else () for j, part in
                      enumerate(self._wishes.get(node, ()))])
        parts = self._chosen(node.shape, blocks, maps, wish)
        moved = self._aligned(blocks, maps, parts, keeps_sums)
        arg = _LOCAL_ARGS[node.op](node, self.reshard.local_shape(node.shape, parts)) \
            if node.op in _LOCAL_ARGS else node.arg
        new = node.replace(src=tuple([b.node for b in moved]), arg=arg)
        out = Block(new, parts, next((b.pending for b in moved if b.pending), ()))
        is_view = node.op in (ops.PERMUTE, ops.EXPAND)
        return self.reshard.viewed(out, node, moved[0]) if is_view else out

    def _chosen(self, shape: Shape, blocks: Sequence[Block], maps: Sequence[AxisMap],
                wish: Partitions = ()) -> Partitions:
        """Return the cuts of a result: those of the operand that is the largest to move, then what
        those of the others and its readers add."""
        out: list[Names] = [()] * len(shape)
        used: set[Any] = set()
        for block, axes in sorted(zip(blocks, maps), key=lambda pair: -weight(pair[0])):
            for part, j in zip(block.parts, axes):
                if j is not None and not out[j] and used.isdisjoint(part):
                    out[j] = part
                    used.update(part)
        used.update([name for block in blocks for part in (*block.parts, block.pending)
                     for name in part])
        out = [part or target if used.isdisjoint(target) else part
               for part, target in zip(out, (*wish, *[()] * len(out)))]
        return fit(tuple(out), shape, self.walk.sizes)

    def _aligned(self, blocks: Sequence[Block], maps: Sequence[AxisMap], parts: Partitions,
                 keeps_sums: bool = False) -> list[Block]:
        """Return operands with the cuts of the result."""
        return [self.reshard(block, tuple([() if j is None else parts[j] for j in axes]),
                             keeps_sums)
                for block, axes in zip(blocks, maps)]

    def _reshape(self, node: UOp, block: Block) -> Block:
        x, sizes = node.src[0], self.walk.sizes
        before, after = reshaped(x.shape, node.shape, block.parts, sizes)
        if before != block.parts and node in self._wishes:
            target, source = reshaped(node.shape, x.shape, self._wishes[node], sizes)
            if _names(block.parts) <= _names(source):
                before, after = source, target
        block = self.reshard(block, before, True)
        out = Block(build.reshape(block.node, self.reshard.local_shape(node.shape, after)), after,
                    block.pending)
        is_view = [n for n in x.shape if n != 1] == [n for n in node.shape if n != 1]
        return self.reshard.viewed(out, node, block) if is_view else out

    def _reduce(self, node: UOp, block: Block) -> Block:
        monoid, axes = node.arg.monoid, node.arg.axes
        if block.node.op is ops.ARG_PAIR or monoid not in REDUCIBLE or \
                node.dtype.is_complex and monoid is not ops.ADD:
            block = self.reshard(block, tuple([() if i in axes else part
                                               for i, part in enumerate(block.parts)]))
        names = tuple([name for i in axes for name in block.parts[i]])
        new = node.with_operands((block.node,))
        parts = tuple([part for i, part in enumerate(block.parts) if i not in axes])
        if names and monoid is not ops.ADD:
            new, = self.reshard.exchange("all_reduce", names, [new], monoid=monoid)
            names = ()
        return Block(new, parts, (*block.pending, *names))

    def _batched(self, node: UOp, blocks: Sequence[Block]) -> list[Block]:
        """Return the results of a SORT or LINALG, whose last axes are whole."""
        n = min([len(b.parts) for b in blocks])
        cores = CORE_AXES[node.op]
        if any(len(b.parts) != n for b in blocks) or n < cores:
            return self.walk.replicated(node, blocks)
        maps = [(*range(n - cores), *[None] * cores)] * len(blocks)
        parts = self._chosen(node.src[0].shape, blocks, maps)
        nodes = [b.node for b in self._aligned(blocks, maps, parts)]
        arg = node.arg.replace(ins=tuple([(x.shape, x.dtype) for x in nodes]))
        cuts = [(*parts[:n - cores], *[()] * (len(shape) - n + cores)) for shape, _ in
                node.arg.outs]
        if node.op is ops.LINALG:
            arg = arg.replace(outs=tuple([(self.reshard.local_shape(shape, cut), dtype) for
                                          (shape, dtype), cut in zip(node.arg.outs, cuts)]))
        new = copy_locs(UOp(node.op, node.dtype, tuple(nodes), arg), node)
        return [Block(x, cut) for x, cut in zip(build.results(new), cuts)]


def _names(parts: Partitions) -> set[Hashable]:
    return {name for part in parts for name in part}


_LINEAR = frozenset({ops.NEG, ops.RESHAPE, ops.PERMUTE, ops.SHRINK, ops.FLIP, ops.STOP_GRADIENT})
_LOCAL_ARGS: dict[ops.Op, Callable[[UOp, Shape], Any]] = {
    ops.EXPAND: lambda node, shape: shape,
    ops.SHRINK: lambda node, shape: tuple([(0, n) if n != hi - lo else (lo, hi)
                                           for n, (lo, hi) in zip(shape, node.arg)]),
}
