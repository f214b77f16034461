"""Bodies of loops and branches: FUNCTIONs traced once for each signature.

    cell(c, x) = c * w + x    ->  FUNCTION(ADD(MUL(PARAM 1, PARAM 0), PARAM 2)),  captures [w]

Captures come before the arguments, so they are the consts of a SCAN or a WHILE and the first
operands of a COND. Traces are cached for the lifetime of the function: the same function on the
same types is not traced again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import ref

from fnx.core.array import tree
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array
from fnx.core.array.aval import Aval
from fnx.core.array.convert import non_array_hint
from fnx.core.ir import build
from fnx.core.ir.cache import memoized
from fnx.core.ir.derivations import derived_forms
from fnx.core.ir.dtypes import conversion_hint, promote
from fnx.core.ir.uop import UOp, rebuild
from fnx.core.scope import scope
from fnx.core.support.config import config
from fnx.core.support.errors import (
    ArgumentError,
    DTypeError,
    FnxError,
    PytreeError,
    ShapeError,
    choose_location,
    format_location,
)
from fnx.core.support.line_visits import recording
from fnx.core.support.process import lazy_import
from fnx.core.support.record import Record
from fnx.core.tracing.trace import close, function_name, precomputed_nodes, preserving_locs, trace
from fnx.transforms.dispatch.signature import ArgFlattener, CallKey
from fnx.transforms.dispatch.trace_cache import TraceCache

python_loops = lazy_import("fnx.transforms.control_flow.python_loops")


def disabled_jit_loops() -> Any:
    """Return the module of Python loops under ``config.disable_jit``, else None."""
    if config.disable_jit and not scope.is_open():
        return python_loops
    return None


class Body(Record):
    """A traced function: a FUNCTION (captures, arguments) -> results.

    With ``effects`` a token precedes the arguments and another the results, so that the token is
    the first carry of a loop.
    """

    name: str
    function: UOp
    captures: list[UOp]
    out_tree: tree.TreeDef
    outs: tuple[Aval, ...]
    effects: bool

    @property
    def returned(self) -> tuple[UOp, ...]:
        """The results of the function, without the token."""
        return self.function.src[self.effects:]

    def carry(self, first: Sequence[UOp]) -> list[UOp]:
        """Return the initial carry of a loop over this body, with a token if it has effects."""
        return [scope.current_token(), *first] if self.effects else list(first)

    def results(self, outs: Sequence[UOp]) -> Sequence[UOp]:
        """Strip the token from the results of a loop; it orders subsequent effects."""
        if self.effects:
            scope.set_token(outs[0])
        return outs[self.effects:]


def trace_body(f: Callable[..., Any], avals: Sequence[Aval], in_tree: tree.TreeDef, caller: str,
               n_rotated: int = 0) -> Body:
    """Trace ``f`` on arguments of these types, or return its cached trace.

    Args:
        f: the user's function.
        avals: the types of its arguments' leaves.
        in_tree: the structure of ``(args, kwargs)``.
        caller: the name of the loop, for messages.
        n_rotated: the number of leading leaves that become the last parameters of the FUNCTION.
    """
    if not callable(f):
        raise ArgumentError(f"expected a function, got {type(f).__name__}",
                            hint="pass the function itself, not what it returns")
    key = CallKey.now(in_tree, tuple(avals), extra=(caller, n_rotated))

    def make() -> tuple[Body, list[UOp]]:
        body = _trace(f, avals, in_tree, caller, n_rotated)
        return body, body.captures

    return _traces_of(f).find(key, make).value


def _traces_of(f: Callable[..., Any]) -> TraceCache[Body]:
    try:
        return _weak_traces_of(f)
    except TypeError:  # it does not support weak references
        return TraceCache(lambda: f)


@memoized
def _weak_traces_of(f: Callable[..., Any]) -> TraceCache[Body]:
    return TraceCache(ref(f))


def _trace(f: Callable[..., Any], avals: Sequence[Aval], in_tree: tree.TreeDef, caller: str,
           n_rotated: int) -> Body:
    name = function_name(f)
    try:
        traced = trace(f, avals, in_tree, transform=caller, name=name, loop=caller not in _BRANCHES)
    except TypeError as error:
        if not isinstance(error, FnxError):
            ArgFlattener(f, f"{caller}: {name}").check((None,) * len(in_tree.subtrees[0].subtrees),
                                                       {})
        raise
    in_token, out_token = traced.tokens[:1], traced.tokens[1:]
    leaves = [*in_token, *traced.leaves[n_rotated:], *traced.leaves[:n_rotated]]
    outs = [*out_token, *[x._node for x in traced.outs]]
    since = scope.loop_start() if caller in _BRANCHES and recording.recorder is None \
        else traced.start_number
    function, captures = preserving_locs(close, outs, leaves, name, front=True,
                                         whole=precomputed_nodes(outs, since))
    return Body(name, function, captures, traced.out_tree, tuple([x._aval for x in traced.outs]),
                bool(in_token))


_BRANCHES = ("cond", "switch")  # values that only a branch reads are computed inside it

# ---- several bodies over the same operands -------------------------------------------------------

def merge_captures(bodies: Sequence[Body]) -> tuple[list[UOp], list[UOp]]:
    """Merge the captures of bodies.

    Returns:
        The distinct captures, and the bodies as FUNCTIONs (all captures, arguments) -> results. If
        one of them has effects, all take a token.
    """
    captures = list(dict.fromkeys([c for body in bodies for c in body.captures]))
    index = {c: i for i, c in enumerate(captures)}
    has_token = any(b.effects for b in bodies)
    return captures, [remap_params(b.function, [index[c] for c in b.captures],
                                   len(captures) + (has_token and not b.effects)) for b in bodies]


def remap_params(fn: UOp, first_slots: Sequence[int], first: int) -> UOp:
    """Move the first parameters of ``fn`` to slots ``first_slots``, the others to ``first`` on.

    >>> from fnx.core.ir import dtypes
    >>> p, q = (build.param(i, dtypes.float32, ()) for i in (0, 1))
    >>> moved = remap_params(build.function([build.sub(p, q)], 2), [2], 3)
    >>> moved.arg.n_params, [s.arg.slot for s in moved.src[0].src]
    (4, [2, 3])
    """
    n = len(first_slots)
    if list(first_slots) == list(range(first)):
        return fn

    def make() -> UOp:
        slots = [*first_slots, *range(first, first + fn.arg.n_params - n)]
        remap = {p: build.param(slots[i], p.dtype, p.shape) for i, p in build.params(fn).items()}
        recorder = recording.recorder
        visit = None if recorder is None else recorder.closing_again(fn, slots)
        function = build.function(preserving_locs(rebuild, fn.src, visit, remap),
                                  len(slots) - n + first, fn.arg.name)
        if recorder is not None:
            recorder.close(function)
        return function

    moved: UOp = derived_forms(fn).get_or_make((remap_params, tuple(first_slots), first), make)
    return moved


# ---- arguments -----------------------------------------------------------------------------------


def flatten_arrays(argument: Any, what: str) -> tuple[list[Array], tree.TreeDef]:
    """Flatten an argument and convert its leaves to Arrays; errors name the path of a leaf."""
    leaves, structure = tree.flatten(argument)
    for i, x in enumerate(leaves):
        if type(x) is not Array:
            try:
                leaves[i] = asarray(x)
            except FnxError as e:
                where = leaf_path(structure, i, what)
                raise DTypeError(f"expected arrays or numbers, got {type(x).__name__} at {where}",
                                 hint=non_array_hint(x, where, "close over values that are not "
                                                     "arrays", e)) from e
    return leaves, structure


def args_tree(*trees: tree.TreeDef) -> tree.TreeDef:
    """Return the structure of ``(args, kwargs)`` with these positional arguments.

    >>> args_tree(tree.structure([0]), tree.structure(0))
    PyTreeDef((([*], *), {}))
    """
    empty = tree.structure(((), {}))
    args = empty.subtrees[0]
    return tree.TreeDef(empty.pytree_type, empty.data, (
        tree.TreeDef(args.pytree_type, args.data, trees), empty.subtrees[1]))


def leaf_path(structure: tree.TreeDef, i: int, what: str) -> str:
    """Return the path of leaf i in Python syntax: ``carry['w'][0]``."""
    return f"{what}{tree.keystr(tree.paths(structure)[i])}"


# ---- carries -------------------------------------------------------------------------------------


def infer_carry(carry: Sequence[Array], make: Callable[[list[Aval]], tuple[Body, Sequence[Aval]]]
                ) -> tuple[Body, list[UOp]]:
    """Infer the types of weakly typed carries; return the body for them, and the cast carry.

    A weak element takes the type that one step promotes it to, and the body is traced again, until
    nothing changes.

    Args:
        carry: the initial carry.
        make: traces the body for carries of these types; also returns the types of the next
            carry. It raises if their number differs.
    """
    avals = [x._aval for x in carry]
    while True:
        body, next_avals = make(avals)
        promoted = [_promote(a, b) for a, b in zip(avals, next_avals)]
        if promoted == avals:
            return body, [build.cast(x._node, a.dtype) for x, a in zip(carry, avals)]
        avals = promoted


def _promote(before: Aval, after: Aval) -> Aval:
    if not before.weak or before.dtype is after.dtype:
        return before
    return Aval(before.shape, promote(before.dtype, True, after.dtype, after.weak)[0])


def check_carry(what: str, body: Body, structure: tree.TreeDef, before: Sequence[UOp],
                after: Sequence[UOp]) -> None:
    """Raise if a body changes the type of a carry; report path, both types and the line."""
    for i, (a, b) in enumerate(zip(before, after)):
        if a.shape == b.shape and a.dtype is b.dtype:
            continue
        kind = ShapeError if a.shape != b.shape else DTypeError
        raise kind(f"expected {leaf_path(structure, i, what)} of {body.name} to keep its type "
                   f"{a.dtype}{list(a.shape)}, got {result_type(b)} from one step",
                   hint=conversion_hint(
                       a.dtype, b.dtype,
                       "a step must return a carry of the type that it takes: give the initial "
                       + (f"value this type and shape, or convert the result with "
                          f".astype({a.dtype})" if kind is DTypeError else
                          "value the shape that the step returns")))


def result_type(node: UOp) -> str:
    """Format the type of a result and the line that computed it."""
    text = f"{node.dtype}{list(node.shape)}"
    loc = None if node.op.kind == "source" else choose_location(node.locs)
    return f"{text} (computed at {format_location(loc)})" if loc else text


def check_structure(what: str, body: Body, expected: tree.TreeDef, got: tree.TreeDef) -> None:
    """Raise if a body returns a pytree of another structure."""
    if got != expected:
        raise PytreeError(f"expected {body.name} to return a {what} of the structure that it was "
                          f"given: {tree.first_difference(expected, got)}",
                          hint="return the same containers with the same keys in each step")
