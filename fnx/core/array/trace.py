"""From a Python function to a closed FUNCTION.

    f(x) = x * w        with w an array of the scope around f

    ->  FUNCTION(MUL(PARAM 0, PARAM 1))  and the captures [w]

A FUNCTION is closed: everything foreign that f captured (leaves of traces around it, memory of
concrete arrays) becomes an operand after the explicit ones, in the order of first use. So a
capture can be differentiated, two functions that capture different arrays of one shape are one
body with different operands, and no PARAM of one scope can be taken for that of another.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from fnx.core import build, ops
from fnx.core.array import scope, tree
from fnx.core.array.array import Array, asarray
from fnx.core.dtypes import DType
from fnx.core.errors import SpecError
from fnx.core.ops import Shape
from fnx.core.uop import UOp, current_site, substitute, toposort


class Aval(NamedTuple):
    """What is known of a traced argument or result: dtype, shape, weak type."""

    dtype: DType
    shape: Shape
    weak: bool = False


class Traced(NamedTuple):
    """A traced function: see the module's docstring. ``captures`` come after the arguments."""

    function: UOp
    captures: list[UOp]
    out_tree: tree.TreeDef
    out_avals: list[Aval]


def trace(f: Callable[..., Any], avals: Sequence[Aval], in_tree: tree.TreeDef,
          values: Sequence[UOp] | None = None, name: str = "") -> Traced:
    """Run ``f`` once on leaves and close what it returns.

    Args:
        f: called with the arguments of ``in_tree``.
        avals: of the leaves of ``in_tree``.
        in_tree: the structure of ``(args, kwargs)``.
        values: of the leaves, where they are known.
        name: of the FUNCTION, for people.
    """
    with tracing(name or "a transform") as opened:
        known = values if values is not None else [None] * len(avals)
        leaves = [opened.leaf(a.dtype, a.shape, v) for a, v in zip(avals, known)]
        args, kwargs = tree.unflatten(in_tree, [Array(x, a.weak) for x, a in zip(leaves, avals)])
        outs, out_tree = tree.flatten(f(*args, **kwargs))
        arrays = [asarray(x) for x in outs]
        nodes = [x._node for x in arrays]
        function, captures = close(nodes, leaves, name)
    return Traced(function, captures, out_tree,
                  [Aval(n.dtype, n.shape, x.weak) for n, x in zip(nodes, arrays)])


@contextmanager
def tracing(name: str) -> Iterator[scope.Scope]:
    """An open scope in which user code runs: each of its public calls has its own line."""
    site, current_site.site = current_site.site, None
    try:
        with no_collection(), scope.Scope(name) as opened:
            yield opened
    finally:
        current_site.site = site


class _Pauses:
    """How many threads want the garbage collector off, and whether it was on before."""

    lock = threading.RLock()
    count = 0
    was_on = False


@contextmanager
def no_collection() -> Iterator[None]:
    """Pause the cyclic garbage collector: making nodes costs half as much without it."""
    with _Pauses.lock:
        if _Pauses.count == 0:
            _Pauses.was_on = gc.isenabled()
            gc.disable()
        _Pauses.count += 1
    try:
        yield
    finally:
        with _Pauses.lock:
            _Pauses.count -= 1
            if _Pauses.count == 0 and _Pauses.was_on:
                gc.enable()


def close(outs: Sequence[UOp], leaves: Sequence[UOp], name: str = "", numbers: int = 0
          ) -> tuple[UOp, list[UOp]]:
    """The FUNCTION of ``outs`` over ``leaves``, and what else it reads.

    Args:
        outs: results of the trace, in terms of its leaves.
        leaves: the explicit parameters, in order; one that is not read keeps its slot.
        numbers: if the graph has no more than so many float constants (0, 1, -1, infinities
            and NaN apart), they are captured too, so that other numbers are the same FUNCTION.

    Returns:
        The FUNCTION, with the captures as its last parameters; and the captures.

    Raises:
        LeakedTracerError: a foreign leaf belongs to a trace that is closed.
    """
    params = {leaf: build.param(i, leaf.dtype, leaf.shape) for i, leaf in enumerate(leaves)}
    captures: list[UOp] = []
    constants: list[UOp] = []
    for node in toposort(outs):
        if numbers and build.is_number(node):
            constants.append(node)
        elif node.op is ops.KERNEL:
            numbers = 0  # a hand-written kernel keeps the constants inside it
        if node.op is ops.PARAM:
            raise SpecError(f"{node} of another scope in the trace of {name or 'a function'}")
        if node in params or node.op not in _FOREIGN:
            continue
        if node.op is ops.LEAF:
            scope.check_open(node)
        params[node] = build.param(len(params), node.dtype, node.shape)
        captures.append(node)
    if constants and len(constants) <= numbers:
        for node in constants:
            params[node] = build.param(len(params), node.dtype, ())
        captures += constants
    return build.function(substitute(outs, params), len(params), name), captures


def inline(fn: UOp, args: Sequence[UOp]) -> list[UOp]:
    """The results of a FUNCTION as nodes over ``args``, without a CALL."""
    return substitute(fn.src, {node: args[node.arg.slot] for node in toposort(fn.src)
                               if node.op is ops.PARAM})


_FOREIGN = frozenset({ops.LEAF, ops.BUFFER})
