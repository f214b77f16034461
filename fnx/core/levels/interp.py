"""The NumPy interpreter: defines the meaning of every node, and is the oracle of every test.

Tensor level, here: ``evaluate`` visits a graph once, operands first. Each op's value is its
``meaning`` from the op table; only scopes (CALL, GETTUPLE) and sources are interpreted here.
Kernel level, in ``interp_kernel.py``: ``run_kernel``.

A contraction is EXPAND, MUL, REDUCE, and its product can be far larger than its operands. So an
elementwise node above 16 MB that only REDUCEs read is *virtual*: it is never materialized. The
REDUCE computes it in slices. These are along axes that remain, if there are any (then each result
is the same reduction as without slices), else along reduced axes, whose partial results are
combined in order. EXPAND costs nothing: it is a NumPy view with stride 0.

>>> from fnx.core.ir import build, dtypes
>>> x = build.param(0, dtypes.float32, (3,))
>>> evaluate([build.add(x, x)], {x: np.arange(3, dtype=np.float32)})
[array([0., 2., 4.], dtype=float32)]
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fnx.core.ir import build, linalg, ops
from fnx.core.ir.accessors import consumers
from fnx.core.ir.cache import memoized
from fnx.core.ir.dtypes import NDArray
from fnx.core.ir.numpy_semantics import combine, fft_step, reduce_array, sort_operands
from fnx.core.ir.op import max_value
from fnx.core.ir.op_bodies import OpBodies
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels.interp_kernel import LIMIT, Watch, eval_node, run_kernel
from fnx.core.scope import callbacks, communicator
from fnx.core.support.errors import ArgumentError, FnxError, OutOfMemoryError, SpecError

__all__ = ["apply", "evaluate", "run_kernel"]



def evaluate(roots: Iterable[UOp], env: Mapping[UOp, NDArray]) -> list[NDArray]:
    """Evaluate tensor-level nodes.

    Args:
        roots: nodes to compute.
        env: values of PARAM, LEAF and BUFFER nodes (or of any node, which is then not
            computed). A missing BUFFER is read through its handle.

    Raises:
        ArgumentError: a PARAM or LEAF has no value.
    """
    with np.errstate(all="ignore"):
        return _Run(_Plan(list(roots), env), env).values()


def apply(fn: UOp, args: Sequence[NDArray]) -> list[NDArray]:
    """Return the results of a closed FUNCTION for values of its PARAMs.

    >>> from fnx.core.ir import build, dtypes
    >>> x = build.param(0, dtypes.int32, ())
    >>> apply(build.function([build.neg(x)], 1), [np.int32(3)])
    [array(-3, dtype=int32)]
    """
    if len(args) != fn.arg.n_params:
        raise ArgumentError(f"expected {fn.arg.n_params} operands, got {len(args)}")
    plan = _plan_of(fn)
    env = {node: np.asarray(args[node.arg.slot]) for node in plan.params}
    with np.errstate(all="ignore"):
        return _Run(plan, env).values()


def apply_kernel(call: UOp, args: Sequence[NDArray], watch: Watch | None = None) -> list[NDArray]:
    """Return the results of a CALL of a user-written KERNEL; ``watch`` sees each value."""
    outs = [np.full(shape, ops.const_value(build.const(
                np.nan if t.is_float else max_value(t), t)), t.np)
            for shape, t in call.arg.outs]
    rows = [np.asarray(a, order="C") for a in args]  # copies views such as a flip
    run_kernel(call.src[0], [*rows, *outs], (), watch)
    return outs


class _Plan:
    """An evaluation plan; the body of a loop has one plan for all steps.

    Attributes:
        roots: the results.
        reads: node -> the nodes whose values it needs, in the order of evaluation.
        reader_counts: the number of readers of each node.
        virtual: nodes that are never materialized.
        params: the PARAMs among the nodes.
        constants: the values of constants.
    """

    def __init__(self, roots: list[UOp], inputs: Container[UOp]) -> None:
        self.roots = roots
        order = toposort(roots, stop=lambda n: n in inputs or n.op is ops.KERNEL)
        self.virtual = self._virtual_nodes(order, inputs)
        self.reads = {n: self._reads(n, inputs) for n in order if n not in self.virtual}
        self.reader_counts = dict.fromkeys(self.reads, 0)
        for reads in (*self.reads.values(), roots):
            for s in reads:
                self.reader_counts[s] += 1
        self.params = [n for n in self.reads if n.op is ops.PARAM]
        self.constants: dict[UOp, Any] = {}
        for n in self.reads:
            if n not in inputs and n.op in _CONSTANT and all(s in self.constants for s in n.src):
                self.constants[n] = _check_value(n, np.asarray(eval_node(n, self.constants)))

    def _virtual_nodes(self, order: list[UOp], inputs: Container[UOp]) -> set[UOp]:
        """Return the elementwise nodes above LIMIT that only REDUCEs read, directly or not."""
        big = [n for n in order if n.op in ops.ELEMENTWISE and n not in inputs
               and math.prod(n.shape) * n.dtype.itemsize > LIMIT]
        if not big:
            return set()
        readers = consumers(order)
        virtual: set[UOp] = set()
        roots = set(self.roots)
        for n in reversed(big):
            if n not in roots and all(r.op is ops.REDUCE or r in virtual for r in readers[n]):
                virtual.add(n)
        return virtual

    def _reads(self, node: UOp, inputs: Container[UOp]) -> tuple[UOp, ...]:
        """Return the nodes whose values ``node`` needs: its operands, seen through virtual ones."""
        if node in inputs or node.op in (ops.FUNCTION, ops.KERNEL):
            return ()
        if node.op is not ops.REDUCE or node.src[0] not in self.virtual:
            return node.src
        below = toposort(node.src, stop=lambda n: n not in self.virtual)
        return tuple(n for n in below if n not in self.virtual)


_CONSTANT = frozenset({ops.CONST, ops.EXPAND})


@memoized
def _plan_of(fn: UOp) -> _Plan:
    return _Plan(list(fn.src), ())


def _exceeds_numpy(node: UOp) -> bool:
    """Return whether an array is too large for NumPy, even one with stride 0, or an empty one."""
    return math.prod([n or 1 for n in node.shape]) * max(1, node.dtype.itemsize) > sys.maxsize


def _memory_error(node: UOp) -> OutOfMemoryError:
    return OutOfMemoryError(
        f"interp: expected memory for {node.op.name.lower()} {node.dtype}{list(node.shape)}, the "
        "system has no more", loc=node.loc, hint="every value is an array of its own here; on "
        "the cpu most of them are never written")


class _Run:
    """One evaluation: a value is dropped as soon as its last reader has been computed."""

    def __init__(self, plan: _Plan, env: Mapping[UOp, NDArray]) -> None:
        self.plan, self.env, self.virtual = plan, env, plan.virtual
        self.values_of = plan.constants.copy()

    def values(self) -> list[NDArray]:
        remaining = self.plan.reader_counts.copy()
        for node, reads in self.plan.reads.items():
            if node not in self.values_of:
                try:
                    self.values_of[node] = self._compute(node)
                except (MemoryError, ValueError) as e:
                    if not isinstance(e, FnxError) and (
                            isinstance(e, MemoryError) or _exceeds_numpy(node)):
                        raise _memory_error(node) from e
                    raise
            for s in reads:
                remaining[s] -= 1
                if not remaining[s]:
                    del self.values_of[s]
        return [self.values_of[r] for r in self.plan.roots]

    def _compute(self, node: UOp) -> Any:
        if node in self.env:
            return _check_value(node, np.asarray(self.env[node]))
        if node.op in ops.MULTI_RESULT:
            return _MULTI_RESULT_RULES[node.op](self, node)
        if node.op in _EVAL_RULES:
            return _EVAL_RULES[node.op](node, self.values_of)
        if node.op is ops.REDUCE and node.src[0] in self.virtual:
            full = tuple(slice(0, n) for n in node.src[0].shape)
            return _check_value(node, self._reduce(node, full))
        result = np.asarray(eval_node(node, self.values_of))
        return result if node.op is ops.ARG_PAIR else _check_value(node, result)  # records

    def _call(self, node: UOp) -> list[NDArray]:
        body, args = node.src[0], [self.values_of[s] for s in node.src[1:]]
        if body.op is ops.FUNCTION:
            return apply(body, args)
        return apply_kernel(node, args)

    def _scan(self, node: UOp) -> list[NDArray]:
        arg, body = node.arg, node.src[0]
        args = [self.values_of[s] for s in node.src[1:]]
        x_start = arg.n_consts + arg.n_carries
        consts, carries, xs = args[:arg.n_consts], args[arg.n_consts:x_start], args[x_start:]
        ys = [np.empty(shape, dtype.np) for shape, dtype in arg.outs[arg.n_carries:]]
        steps = range(arg.length)
        for t in reversed(steps) if arg.reverse else steps:
            outs = apply(body, [*consts, *carries, *[x[t] for x in xs]])
            carries = outs[:arg.n_carries]
            for y, out in zip(ys, outs[arg.n_carries:]):
                y[t] = out
        return [*carries, *ys]

    def _while(self, node: UOp) -> list[NDArray]:
        condition, body, *_ = node.src
        args = [self.values_of[s] for s in node.src[2:]]
        consts, carries = args[:node.arg.n_consts], args[node.arg.n_consts:]
        while apply(condition, [*consts, *carries])[0]:
            carries = apply(body, [*consts, *carries])
        return carries

    def _apply_step(self, node: UOp) -> list[NDArray]:
        op, which = OpBodies(node), 0
        if op.selector:
            which = min(max(int(self.values_of[op.selector[0]]), 0), len(op.steps) - 1)
        return apply(op.steps[which], [self.values_of[s] for s in op.operands])

    def _host(self, node: UOp) -> list[NDArray]:
        return callbacks.run_callback(node.arg, [self.values_of[s] for s in node.src])

    def _sort(self, node: UOp) -> list[NDArray]:
        return sort_operands(node.arg, [self.values_of[s] for s in node.src])

    def _fft_step(self, node: UOp) -> list[NDArray]:
        return fft_step(node.arg, self.values_of[node.src[0]])

    def _linalg(self, node: UOp) -> list[NDArray]:
        return linalg.apply_routine(node.arg, [self.values_of[s] for s in node.src])

    def _collective(self, node: UOp) -> list[NDArray]:
        return communicator.run(node.arg, [self.values_of[s] for s in node.src])

    def _reduce(self, node: UOp, region: tuple[slice, ...]) -> NDArray:
        """Compute a REDUCE over ``region`` of its virtual operand, halved while it is too large."""
        x = node.src[0]
        extents = [s.stop - s.start for s in region]
        if math.prod(extents) * x.dtype.itemsize <= LIMIT:
            monoid = node.arg.monoid
            return reduce_array(monoid.ufunc, self._slice(x, region), node.arg.axes,
                                monoid.identity(node.dtype))
        kept_axes = [a for a in range(len(region)) if a not in node.arg.axes and extents[a] > 1]
        split_axis = kept_axes[0] if kept_axes else max(range(len(region)), key=extents.__getitem__)
        middle = (region[split_axis].start + region[split_axis].stop) // 2
        low, high = (self._reduce(node, (*region[:split_axis], s, *region[split_axis + 1:]))
                     for s in (slice(region[split_axis].start, middle),
                               slice(middle, region[split_axis].stop)))
        if kept_axes:
            return np.concatenate([low, high],
                                  sum(a not in node.arg.axes for a in range(split_axis)))
        return combine(node, low, high)

    def _slice(self, root: UOp, region: tuple[slice, ...]) -> NDArray:
        values: dict[UOp, NDArray] = {}
        for n in toposort([root], stop=lambda n: n not in self.virtual):
            if n in self.virtual:
                values[n] = np.asarray(eval_node(n, values))
            else:
                values[n] = self.values_of[n][region]
        return values[root]


def _check_value(node: UOp, value: NDArray) -> NDArray:
    if value.shape != node.shape or value.dtype != node.dtype.np:
        raise SpecError(f"{node}: expected {node.dtype}{list(node.shape)}, got "
                        f"{value.dtype}{list(value.shape)}",
                        loc=node.loc)
    return value


def _missing_value(node: UOp, value: Mapping[UOp, Any]) -> NDArray:
    raise ArgumentError(f"expected a value for {node}, got none")


def _buffer(node: UOp, value: Mapping[UOp, Any]) -> NDArray:
    view = node.arg.handle.view(node.dtype.np, node.shape)
    return _check_value(node, np.asarray(view))


_EVAL_RULES: dict[ops.Op, Callable[[UOp, Mapping[UOp, Any]], Any]] = {
    ops.PARAM: _missing_value, ops.LEAF: _missing_value, ops.BUFFER: _buffer,
    # need the values of the whole batch
    ops.ALL_GATHER: _missing_value, ops.AXIS_INDEX: _missing_value,
    ops.PVARY_LIKE: _missing_value, ops.PSUM_LIKE: _missing_value,
    ops.FUNCTION: lambda node, value: node,
    ops.KERNEL: lambda node, value: node,
    ops.GETTUPLE: lambda node, value: value[node.src[0]][node.arg],
}
_MULTI_RESULT_RULES: dict[ops.Op, Callable[[_Run, UOp], list[NDArray]]] = {
    ops.CALL: _Run._call, ops.SCAN: _Run._scan, ops.WHILE: _Run._while, ops.COND: _Run._apply_step,
    ops.SORT: _Run._sort, ops.FFT_STEP: _Run._fft_step, ops.LINALG: _Run._linalg,
    ops.CALLBACK: _Run._host, ops.COLLECTIVE: _Run._collective,
    ops.CUSTOM: _Run._apply_step}
