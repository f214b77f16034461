"""Loops with carried values, and conditionals, in user-written kernels.

    total = k.loop(n, lambda i, s: s + x[i], 0.0)      it = LOOP(i, 0, CARRY + x[i]); GETTUPLE(it) 0
    y = k.when(c, lambda: k.exp(x[j]), 0.0)            LOOP(t < 1, (c, 0), (CARRY 0, exp(x[j]
                                                         where CARRY 0)), stop = not CARRY 0)

A conditional is a loop that runs once or not at all. Its loads and the outer values that it reads
are carried into it, so that none of its work is computed ahead of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fnx.core.ir import build, build_kernel_loops, dtypes, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.uop import UOp, substitute, toposort
from fnx.core.support.errors import DTypeError, KernelError
from fnx.transforms.kernel_lang import carried_values
from fnx.transforms.kernel_lang.trace_state import KernelBody, KernelTrace, current
from fnx.transforms.kernel_lang.values import (
    Value,
    as_condition,
    as_node,
    fits,
    kind_of,
    make_range,
    number_kind,
)


def loop(n: Any, step: Callable[..., Any], first: Sequence[Any],
         until: Callable[..., Any] | None, name: str) -> Any:
    """Run ``step`` n times on carried values; return their final values."""
    if callable(n) or not callable(step):
        raise KernelError(f"loop: expected (n, step, *first), got {type(n).__name__} as n and "
                          f"{type(step).__name__} as step",
                          hint="write k.loop(n, lambda i, value: ..., first): iterations are "
                          "counted from 0")
    if not first:
        raise KernelError("loop: expected first values, got none",
                          hint="use k.range for iterations without carried values")
    tracing = current()
    kinds = [kind_of(x) for x in first]
    body = _TracedLoop(tracing, n, step, first, until, name)
    types = [t for t, _ in kinds]
    values = body.trace_body(types)
    init_types = [t if got is None or not weak else got
                  for (t, weak), got in zip(kinds, body.types)]
    if init_types != types:
        body.rollback()
        values = body.trace_body(init_types)
    body.check(init_types)
    out = body.close(values)
    return out[0] if len(first) == 1 else tuple(out)


class _TracedLoop:
    """A loop being traced; the body is retraced if an initial value needs another dtype."""

    def __init__(self, tracing: KernelTrace, n: Any, step: Callable[..., Any], first: Sequence[Any],
                 until: Callable[..., Any] | None, name: str) -> None:
        self.tracing, self.step, self.first, self.until = tracing, step, first, until
        self.t = make_range(n, name).node
        self.id, tracing.loops = tracing.loops, tracing.loops + 1
        self.snapshot = tracing.saved()
        self.types: list[DType | None] = []

    def rollback(self) -> None:
        self.tracing.restore(self.snapshot)

    def trace_body(self, types: Sequence[DType]) -> list[Any]:
        """Trace the body with carried values of these dtypes; set ``types`` to those returned."""
        tracing = self.tracing
        self.inits = [as_node(x, t) for x, t in zip(self.first, types)]
        self.carries = [build_kernel_loops.carry(self.id, i, x.dtype, (self.t, *_sorted(x.ranges)))
                        for i, x in enumerate(self.inits)]
        weak = [kind_of(x)[1] and t is kind_of(x)[0] for x, t in zip(self.first, types)]
        args = [Value(self.t), *[Value(c, w) for c, w in zip(self.carries, weak)]]
        self.stop: UOp | None = None
        scope = KernelBody()
        tracing.scopes.append(scope)
        try:
            if self.until is not None:
                self.stop = as_condition(self.until(*args))
                scope.condition = build.logical_not(self.stop)
                outer = tracing.guard()
                scope.guard = scope.condition if outer is None else \
                    build.and_(outer, scope.condition)
            returned = self.step(*args)
        finally:
            tracing.scopes.remove(scope)
        values = list(returned) if isinstance(returned, tuple | list) else [returned]
        if len(values) != len(self.first):
            raise KernelError(f"loop: expected {len(self.first)} next values, got "
                                 f"{len(values)}",
                                 hint="return one value from the step for each carried value")
        self.types = [None if w and kind_of(v)[1] and fits(v, c.dtype) else kind_of(v)[0]
                      for v, w, c in zip(values, weak, self.carries)]
        self.scope = scope
        return values

    def check(self, types: Sequence[DType]) -> None:
        """Reject a next value whose dtype differs from the initial one."""
        for i, (t, got) in enumerate(zip(types, self.types)):
            if got is not None and got is not t:
                raise DTypeError(f"loop: expected next value {i} to be {t} as the first one, got "
                                 f"{got}", hint=f"convert one of them: k.cast(value, {t.name!r})")

    def close(self, values: Sequence[Any]) -> list[Value]:
        """Build the LOOP, append its STOREs, and return its final values."""
        nexts = [as_node(v, c.dtype) for v, c in zip(values, self.carries)]
        node = build_kernel_loops.loop(self.id, self.t, self.inits, nexts, self.stop)
        self.tracing.ended.add(self.t)
        for store in self.scope.stores:
            self.tracing.put_in_loop(store, carried_values.move_into_loop(store, node))
        return [Value(get) for get in build.results(node)]


def when(condition: Any, then: Callable[[], Any], otherwise: Sequence[Any]) -> Any:
    """Compute ``then`` only where a condition holds; elsewhere return ``otherwise``."""
    tracing = current()
    c = as_condition(condition)
    outer = tracing.guard()
    c = c if outer is None else build.and_(outer, c)
    t = build.range_(1, len(tracing.ranges))
    tracing.ranges.append(t)
    id, tracing.loops = tracing.loops, tracing.loops + 1
    before = set(tracing.values)
    guard = build_kernel_loops.carry(id, 0, dtypes.bool_, (t, *_sorted(c.ranges)))
    scope = KernelBody(as_condition(condition), guard, forces_guard=True)
    tracing.scopes.append(scope)
    try:
        returned = then()
    finally:
        tracing.scopes.remove(scope)
    values = [] if returned is None else list(returned) if isinstance(returned, tuple | list) \
        else [returned]
    if len(values) != len(otherwise):
        raise KernelError(f"when: expected {len(values)} values where it does not hold, as "
                             f"many as `then` returns; got {len(otherwise)}",
                          hint="k.when(condition, then, otherwise, ...)")
    return _build_conditional(tracing, scope, (t, id, before), (c, guard), values, otherwise)


def _build_conditional(tracing: KernelTrace, scope: KernelBody, loop: tuple[UOp, int, set[UOp]],
                       condition: tuple[UOp, UOp], values: Sequence[Any],
                       otherwise: Sequence[Any]) -> Any:
    t, id, outer = loop
    types = [_common_dtype(a, b) for a, b in zip(values, otherwise)]
    nexts = [as_node(v, to) for v, to in zip(values, types)]
    inits = [condition[0], *[as_node(v, to) for v, to in zip(otherwise, types)]]
    captured = _captured_values([*nexts, *[s for store in scope.stores for s in store.src]], outer)
    carries = {n: build_kernel_loops.carry(id, len(inits) + i, n.dtype, (t, *_sorted(n.ranges)))
               for i, n in enumerate(captured)}
    nexts = [condition[1], *substitute(nexts, carries), *carries.values()]
    node = build_kernel_loops.loop(id, t, [*inits, *carries], nexts,
                                   build.logical_not(condition[1]))
    tracing.ended.add(t)
    for store, moved in zip(scope.stores, substitute(scope.stores, carries)):
        tracing.put_in_loop(store, carried_values.move_into_loop(moved, node))
    out = [Value(get) for get in build.results(node)[1:len(inits)]]
    return None if not out else out[0] if len(out) == 1 else tuple(out)


def _common_dtype(a: Any, b: Any) -> DType:
    to, _ = dtypes.promote(*number_kind(a), *number_kind(b))
    return to


def _captured_values(roots: Sequence[UOp], outer: set[UOp]) -> list[UOp]:
    """Return the outer values that a body reads; indices are recomputed inside instead."""
    return [n for n in toposort(roots, stop=outer.__contains__)
            if n in outer and n.op is not ops.CONST and n.dtype is not dtypes.index]


def _sorted(ranges: frozenset[UOp]) -> list[UOp]:
    return sorted(ranges, key=lambda r: r.arg.id)
