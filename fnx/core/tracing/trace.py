"""Trace a Python function to a closed FUNCTION.

    f(x) = x * w        with w an array of the scope around f

    ->  FUNCTION(MUL(PARAM 0, PARAM 1))  and the captures [w]

A FUNCTION is closed: everything that f captured (leaves of enclosing traces, memory of concrete
arrays) becomes an operand after the explicit ones, in order of first use. So a capture can be
differentiated, two functions that capture different arrays of one shape share one body, and a
PARAM of one scope cannot be confused with that of another.
"""

from __future__ import annotations

import functools
import gc
import itertools
import math
import re
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from threading import get_ident
from typing import Any, ParamSpec, TypeVar

from fnx.core.array import eager_cache, tree
from fnx.core.array.api_boundary import asarray
from fnx.core.array.arguments import keyword_name, positional_name
from fnx.core.array.array import Array
from fnx.core.array.aval import Aval
from fnx.core.ir import build, build_calls, op_args, ops
from fnx.core.ir.uop import UOp, current_loc, rebuild, toposort
from fnx.core.scope import scope
from fnx.core.scope.callbacks import Handle
from fnx.core.support.config import config
from fnx.core.support.errors import (
    ArgumentError,
    FnxError,
    SpecError,
    TracedValueError,
    UnknownNameError,
)
from fnx.core.support.line_visits import recording
from fnx.core.support.process import at_fork, lazy_import
from fnx.core.support.record import Record
from fnx.core.tracing import state

inner_arrays = lazy_import("fnx.core.ir.inner_arrays")
leaks = lazy_import("fnx.core.tracing.leaks")

MAX_LISTED = 5  # arguments in a message
Q = ParamSpec("Q")
R = TypeVar("R")


def unflatten_arrays(structure: tree.TreeDef, nodes: Iterable[UOp], avals: Iterable[Aval]) -> Any:
    """Return the pytree of the Arrays of some nodes, whose types are weak as the avals say."""
    return structure.unflatten([Array(n, a.weak) for n, a in zip(nodes, avals)])


class ClosedFunction(Record):
    """A FUNCTION, the captures that follow its arguments, and the tree and avals of its results.

    With ``effects``, its last parameter and its last result are tokens.
    """

    function: UOp
    captures: list[UOp]
    out_tree: tree.TreeDef
    outs: tuple[Aval, ...]
    effects: bool = False

    def operands(self) -> list[UOp]:
        """Return the operands of a call after the arguments."""
        return [*self.captures, scope.current_token()] if self.effects else self.captures

    def advance_token(self, results: Sequence[UOp]) -> None:
        """Order subsequent effects after those of a call with these results."""
        if self.effects:
            scope.set_token(results[len(self.outs)])

    def call(self, args: Sequence[Array], policy: Any = None) -> Any:
        """Build a CALL; return its results in the tree that the function returned."""
        nodes = build_calls.call(self.function, [x._node for x in args] + self.operands(),
                                 policy=policy)
        self.advance_token(nodes)
        return unflatten_arrays(self.out_tree, nodes, self.outs)

    def inline(self, args: Sequence[Array]) -> Any:
        """As ``call``, with the graph of the function in the place of a CALL."""
        nodes = inline_function(self.function, [x._node for x in args] + self.operands())
        self.advance_token(nodes)
        return unflatten_arrays(self.out_tree, nodes, self.outs)


class TracedFunction(Record):
    """The results of a function as a graph over the ``leaves`` that it ran on.

    ``aux`` is the auxiliary output and may hold other objects than arrays. ``tokens`` are those
    before its first and after its last effect, if it has any. Nodes with a number below
    ``start_number`` existed before.
    """

    name: str
    leaves: list[UOp]
    outs: list[Array]
    out_tree: tree.TreeDef
    aux: list[Any]
    aux_tree: tree.TreeDef | None
    start_number: int
    tokens: tuple[UOp, ...] = ()

    @property
    def nodes(self) -> list[UOp]:
        """The nodes of the results, then of the arrays in aux, then the last token."""
        return [*[x._node for x in (*self.outs, *self.aux) if type(x) is Array],
                *self.tokens[1:]]

    def close(self, every_value: bool = False) -> ClosedFunction:
        """Close it to a FUNCTION. The traces of its captures must be open.

        With ``every_value`` it captures each value from outside as it is, also small ones.
        """
        precomputed = precomputed_nodes(self.nodes, self.start_number, every_value) \
            if scope.is_open() else frozenset[UOp]()
        function, captures = preserving_locs(close, self.nodes, self.leaves, self.name,
                                             last=self.tokens[:1], whole=precomputed)
        return ClosedFunction(function, captures, self.out_tree,
                              tuple([x._aval for x in self.outs]), bool(self.tokens))

    def substitution(self, values: Iterable[UOp]) -> dict[UOp, UOp]:
        """Return the substitution for its leaves in a call with ``values``."""
        substitution = dict(zip(self.leaves, values))
        if self.tokens:
            substitution[self.tokens[0]] = scope.current_token()
        return substitution

    def substitute_results(self, nodes: Iterable[UOp]) -> tuple[Any, Any]:
        """Return (result, aux) with ``nodes`` in place of its own, and record its effects."""
        node_iter = iter(nodes)
        out = self.out_tree.unflatten([Array(next(node_iter), x.weak) for x in self.outs])
        aux = self.aux_tree and self.aux_tree.unflatten(
            [Array(next(node_iter), x.weak) if type(x) is Array else x for x in self.aux])
        if self.tokens:
            scope.set_token(next(node_iter))
        return out, aux


def trace(f: Callable[..., Any], inputs: Sequence[Any], in_tree: tree.TreeDef,
          values: Iterable[UOp | None] = itertools.repeat(None), *, transform: str, name: str,
          has_aux: bool = False, axis: op_args.Axis | None = None,
          loop: bool = False) -> TracedFunction:
    """Run ``f`` once on leaves.

    Args:
        f: called with the arguments of ``in_tree``.
        inputs: the leaves of ``in_tree``: an Aval becomes a LEAF, anything else is passed on.
        in_tree: the structure of ``(args, kwargs)``.
        values: the values of the LEAFs, in order, if known.
        transform: the name of the transform, for messages.
        name: the name of the FUNCTION, for messages.
        has_aux: ``f`` returns (result, aux).
        axis: the named axis that is open inside ``f``.
        loop: ``f`` is the body of a loop.
    """
    traced = with_gc_disabled(_run_on_leaves, f, inputs, in_tree, iter(values), name, has_aux,
                              scope.Scope(f"{transform} of {name}", axis, loop))
    if config.jax_check_tracer_leaks:
        leaks.check_leaks(traced)
    return traced


def _run_on_leaves(f: Callable[..., Any], inputs: Sequence[Any], in_tree: tree.TreeDef,
                   values: Iterator[UOp | None], name: str, has_aux: bool, opened_scope: scope.Scope
                   ) -> TracedFunction:
    with opened_scope:
        args, kwargs = in_tree.unflatten(
            [Array(opened_scope.leaf(x.dtype, x.shape, next(values)), x.weak) if type(x) is Aval
             else x
             for x in inputs])
        try:
            out = f(*args, **kwargs)
        except AttributeError as error:
            if type(error.obj) is Array and type(error) is AttributeError:
                raise _missing_attribute(error).with_traceback(error.__traceback__) from None
            raise
        except TracedValueError as error:
            _add_arguments(error, f, in_tree, inputs, opened_scope.leaves)
            raise
        except TypeError as error:
            if re.match(_CALLED_ATTRIBUTE, str(error)):
                error.add_note(_CALLED_ATTRIBUTE_NOTE)
            raise
        out, aux = _split_aux(out, name) if has_aux else (out, None)
        flat, out_tree = tree.flatten(out)
        outs = [_as_result(x, out_tree, i, name) for i, x in enumerate(flat)]
        state.show_to_watchers(outs)
    tokens = () if opened_scope.first_token is None or opened_scope.token is None \
        else (opened_scope.first_token, opened_scope.token)
    inputs, aux_tree = tree.flatten(aux) if has_aux else ([], None)
    return TracedFunction(name, opened_scope.leaves, outs, out_tree, inputs, aux_tree,
                          opened_scope.start_number, tokens)


# x.shape(), x.size(0), x.ndim(), x.dtype(), x.T()
_CALLED_ATTRIBUTE = r"'(tuple|int|numpy\.dtypes\.\w+|Array)' object is not callable"
_CALLED_ATTRIBUTE_NOTE = "  Fix: shape, size, ndim, dtype and T of an array are no methods: " \
    "write x.shape, not x.shape()"


def _add_arguments(error: TracedValueError, f: Callable[..., Any], in_tree: tree.TreeDef,
                   inputs: Sequence[Any], leaves: Sequence[UOp]) -> None:
    """Add to a message the arguments of a traced function on which the requested value depends."""
    node, error.requested = error.requested, None
    reached = set() if node is None else {*toposort([node])}
    traced = [i for i, x in enumerate(inputs) if type(x) is Aval]
    paths = tree.paths(in_tree)
    read = [paths[i] for i, leaf in zip(traced, leaves) if leaf in reached]
    names = [argument_name(f, path) for path in read]
    if not names:
        error.requested = node  # of an outer trace
        return
    shown = ", ".join(names[:MAX_LISTED]) + ", ..." * (len(names) > MAX_LISTED)
    error.message += f"; it depends on the argument{'s' * (len(names) > 1)} {shown}"
    error.args, error.function = (error.message,), f
    of_scalars = all(not inputs[i].shape for i, leaf in zip(traced, leaves) if leaf in reached)
    names = [str(path[1].key) if path[0].idx == 1 and len(path) == 2 else name
             for path, name in zip(read, names)]
    if error.static and all(map(str.isidentifier, names)):
        ending = f"; or make {' and '.join(names)} static: static_argnames=" \
            f"{(names[0] if len(names) == 1 else tuple(names))!r}" if of_scalars else ""
        error.hint = error.hint.replace(f"; or {error.static}", ending)


def argument_name(f: Callable[..., Any], path: Sequence[Any],
                  positions: Sequence[int] | None = None) -> str:
    """Return the name of a leaf of (args, kwargs) of a function by its path.

    ``positions``: those of the positional arguments in the tree; by default all from the first on.

    >>> [argument_name(lambda x, y: 0, p) for p in tree.paths(tree.structure(((1, {"a": 2}), {})))]
    ['x', "y['a']"]
    """
    half, first, *rest = path
    if half.idx == 1:
        name = keyword_name(f, str(first.key))
    else:
        name = positional_name(f, first.idx if positions is None else positions[first.idx])
    return name + tree.keystr(tuple(rest))


def _missing_attribute(error: AttributeError) -> UnknownNameError:
    """Return a helpful error for a missing attribute of an array.

    Only in traces: a ``__getattr__`` on Array would slow down all attributes (a jitted call of a
    hundred arguments by a sixth).
    """
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    is_function = callable(getattr(sys.modules.get("fnx.numpy"), str(error.name), None))
    result = UnknownNameError("an Array", str(error.name), dir(error.obj),
                              f"write fnx.numpy.{error.name}(x)" if is_function else
                              "use the functions of fnx.numpy; dir(x) lists the methods of an "
                              "array")
    if traceback is not None:
        result.loc = traceback.tb_frame.f_code.co_filename, traceback.tb_lineno
    return result


def function_name(f: Callable[..., Any]) -> str:
    """Return the name of a function for messages; of a ``functools.partial``, that of its
    function."""
    while isinstance(f, functools.partial):
        f = f.func
    return str(getattr(f, "__name__", type(f).__name__))


def _split_aux(out: Any, name: str) -> tuple[Any, Any]:
    if not isinstance(out, tuple) or len(out) != 2:
        raise ArgumentError(f"has_aux=True: expected {name} to return (result, aux), got "
                            f"{type(out).__name__}", hint="return a tuple (result, aux)")
    return out


def _as_result(x: Any, out_tree: tree.TreeDef, i: int, name: str) -> Array:
    try:
        return asarray(x)
    except FnxError as e:
        location = " ".join(["result", tree.keystr(tree.paths(out_tree)[i])]).strip()
        raise ArgumentError(f"{location} of {name}: {e.message}", hint="return arrays, "
                            "numbers or None in tuples, lists and dicts") from None


# ids of threads that have disabled the garbage collector
_gc_disabled_threads: dict[int, None] = {}


def with_gc_disabled(f: Callable[Q, R], *args: Q.args, **kwargs: Q.kwargs) -> R:
    """Call f with the cyclic garbage collector disabled, and close traces that it leaves open.

    Without the collector, creating nodes costs half as much.
    """
    thread, was_enabled = get_ident(), gc.isenabled()
    scopes, loc = scope.open_scopes(), current_loc.loc
    depth = len(scopes)
    try:
        if was_enabled:
            _gc_disabled_threads[thread] = None
            gc.disable()
        return f(*args, **kwargs)
    finally:  # Ctrl-C is raised after calls and on backward jumps only: not before ``enable``
        del scopes[depth:]
        current_loc.loc = loc
        if was_enabled:
            if thread in _gc_disabled_threads:
                del _gc_disabled_threads[thread]
            gc.enable()


def preserving_locs(f: Callable[Q, R], *args: Q.args, **kwargs: Q.kwargs) -> R:
    """Call f, which rewrites graphs: new nodes get the locations of those that they replace."""
    def without_site() -> R:
        current_loc.loc = None
        return f(*args, **kwargs)

    return with_gc_disabled(without_site)


def _enable_gc_in_child() -> None:
    """Enable the collector in a forked child, if another thread of the parent had disabled it."""
    if _gc_disabled_threads.keys() - {get_ident()}:
        gc.enable()
    _gc_disabled_threads.clear()


at_fork(in_child=_enable_gc_in_child)


def close(outs: Sequence[UOp], leaves: Sequence[UOp], name: str = "", numbers: int = 0,
          front: bool = False, last: Sequence[UOp] = (), whole: Container[UOp] = frozenset()
          ) -> tuple[UOp, list[UOp]]:
    """Return the FUNCTION of ``outs`` over ``leaves``, and its captures.

    Args:
        outs: results of the trace, as nodes over its leaves.
        leaves: the explicit parameters, in order; an unused one keeps its position.
        numbers: if the graph has at most this many float constants (not counting 0, 1, -1,
            infinities and NaN), they are captured, too, so that other numbers give the same
            FUNCTION.
        front: the captures come before the explicit parameters.
        last: leaves that become the last parameters, after the captures.
        whole: nodes of other traces that are captured themselves, instead of their sources.

    Returns:
        The FUNCTION, with the captures as its last (or first) parameters; and the captures.

    Raises:
        LeakedTracerError: a foreign leaf belongs to a trace that is closed.
    """
    explicit, eager = frozenset((*leaves, *last)), numbers > 0
    captures: list[UOp] = []
    constants: list[UOp] = []
    handles: list[UOp] = []
    if _any_inner_arrays:
        outs = inner_arrays.outs_with_operands(outs, whole)
    for node in toposort(outs, stop=whole.__contains__):
        if numbers and build.is_liftable_const(node):
            constants.append(node)
        elif node.op is ops.KERNEL:
            numbers = 0  # the constants inside a user-written kernel are not captured
        if node.op is ops.PARAM:
            raise SpecError(f"{node} of another scope in the trace of {name or 'a function'}")
        if node in whole:
            captures.append(node)
            continue
        if node in explicit or node.op not in _CAPTURABLE:
            continue
        if node.op is ops.LEAF:
            scope.check_leaf_open(node)
        elif type(node.arg.handle) is Handle:  # after all arrays, so as not to move these
            handles.append(node)
            continue
        captures.append(node)
    if constants and len(constants) <= numbers:
        captures += constants
    captures += handles
    order = [*captures, *leaves, *last] if front else [*leaves, *captures, *last]
    params = dict(zip(order, build_calls.params_like(order)))
    recorder = recording.recorder
    visit = None if recorder is None else recorder.closing(order)
    function = build.function(rebuild(outs, visit, params, not eager), len(params), name)
    if recorder is not None:
        recorder.close(function)
    return function, captures


_any_inner_arrays = False  # whether this process has made a FUNCTION with arrays inside


def with_arrays_inside(fn: UOp, first: int, arrays: Sequence[UOp]) -> UOp:
    """Return a FUNCTION whose parameters from ``first`` on are these arrays (inner_arrays.py)."""
    global _any_inner_arrays
    if not arrays:
        return fn
    _any_inner_arrays = True
    inside: UOp = inner_arrays.with_arrays_inside(fn, first, arrays)
    return inside


_REDUCTIONS = frozenset({ops.REDUCE, ops.GATHER, ops.SCATTER, ops.GETTUPLE})
_OPAQUE = frozenset({ops.STOP_GRADIENT, ops.BARRIER})  # values, also of constants
_LARGE_SIZE = 1024  # elements; recomputing fewer is as fast as reading them


def precomputed_nodes(outs: Sequence[UOp], since: int, every: bool = False) -> frozenset[UOp]:
    """Return nodes with a number below ``since`` that a trace should capture, not recompute.

    These are reductions, loops and large arrays; or ``every`` value. Movement ops on them remain
    in the trace, so that no expanded array is written to memory. While executed lines are recorded,
    every value is captured: its line runs once, before the trace.
    """
    every = every or recording.recorder is not None
    nodes = toposort(outs) if since else []
    foreign: set[UOp] = set()
    for n in nodes:
        if n.op in _CAPTURABLE or every and n.op in _OPAQUE or any(s in foreign for s in n.src):
            foreign.add(n)
    return frozenset([n for n in nodes if n.number < since and n in foreign
                      and not build_calls.is_token(n)
                      and (every and n.op not in _CAPTURABLE and n.op not in ops.MULTI_RESULT
                           or n.op in _REDUCTIONS or n.op in ops.ELEMENTWISE
                           and math.prod(n.shape) >= _LARGE_SIZE)])


def dispatch_traced(key_parts: Sequence[Any], traced: TracedFunction, memory: Sequence[Any]) -> Any:
    """Look up a call that traces a function in the eager cache; the traced graph is the key.

    Args:
        key_parts: what the call computes with the traced function; part of the key.
        traced: the function, traced outside all other traces.
        memory: the memory of its leaves.

    Returns:
        The result of a cached call, else an EagerCall.
    """
    if config.check or config.check_index:  # errors need the locations of this call
        return eager_cache.UNCACHEABLE
    fn, captures = with_gc_disabled(close, traced.nodes, traced.leaves, traced.name)
    if any(c.op is not ops.BUFFER or type(c.arg.handle) is Handle for c in captures):
        return eager_cache.UNCACHEABLE
    return eager_cache.dispatch_by_key((fn, traced.out_tree, *[x.weak for x in traced.outs],
                                        *key_parts),
                                       [*memory, *[c.arg.handle for c in captures]])


def inline_function(fn: UOp, args: Sequence[UOp]) -> list[UOp]:
    """Inline a FUNCTION: return its results as nodes over ``args``."""
    return inline_nodes(fn, fn.src, {node: args[i] for i, node in build.params(fn).items()})


def inline_nodes(fn: UOp, nodes: Sequence[UOp], known: Mapping[UOp, UOp]) -> list[UOp]:
    """Return nodes of a FUNCTION with ``known`` in the place of its PARAMs."""
    recorder = recording.recorder
    visit = None if recorder is None else recorder.inlining(fn, known)
    return rebuild(nodes, visit, known, composites=True)


_CAPTURABLE = frozenset({ops.LEAF, ops.BUFFER})
