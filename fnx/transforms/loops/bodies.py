"""The bodies of loops and branches: traced once a signature, as FUNCTIONs of known layout.

    cell(c, x) = c * w + x    ->  FUNCTION(ADD(MUL(PARAM 1, PARAM 0), PARAM 2)),  captures [w]

Captures come before the arguments, so they are the consts of a SCAN or a WHILE and the first
operands of a COND. A function is remembered for as long as it lives: the same function on the
same types is not run again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import ref

from fnx.core import build
from fnx.core.array import scope, tree
from fnx.core.array.array import Array
from fnx.core.array.aval import Aval
from fnx.core.array.public import asarray
from fnx.core.array.trace import close, made_before, name_of, rewriting, trace
from fnx.core.cache import CacheOf
from fnx.core.config import config
from fnx.core.dtypes import promote
from fnx.core.errors import (
    ArgumentError,
    DTypeError,
    FnxError,
    PytreeError,
    ShapeError,
    nearest,
    show_site,
)
from fnx.core.process import load
from fnx.core.record import Record
from fnx.core.uop import UOp, substitute
from fnx.core.weak import WeakMemo
from fnx.transforms.replay.signature import Arguments, context
from fnx.transforms.replay.traces import Traces

MAX_LAYOUTS = 16  # of one body, beside other bodies


def in_python() -> Any:
    """The module of loops in Python where ``config.disable_jit`` asks for them, else None."""
    if config.disable_jit and not scope.is_open():
        return load("fnx.transforms.loops.plain")
    return None


class Body(Record):
    """A traced function: a FUNCTION (captures, arguments) -> results.

    With ``effects`` a token is before the arguments, and another before the results: so it is the
    first carry of a loop.
    """

    name: str
    function: UOp
    captures: list[UOp]
    out_tree: tree.TreeDef
    outs: tuple[Aval, ...]
    effects: bool

    @property
    def made(self) -> tuple[UOp, ...]:
        """What the function returned."""
        return self.function.src[self.effects:]

    def carry(self, first: Sequence[UOp]) -> list[UOp]:
        """The first carry of a loop of it."""
        return [scope.token(), *first] if self.effects else list(first)

    def results(self, outs: Sequence[UOp]) -> Sequence[UOp]:
        """Those of a loop without the token, which what comes next will follow."""
        if self.effects:
            scope.follow(outs[0])
        return outs[self.effects:]


_traces: WeakMemo[Callable[..., Any], Traces[Body]] = WeakMemo()


def trace_body(f: Callable[..., Any], avals: Sequence[Aval], in_tree: tree.TreeDef, by: str,
               turn: int = 0) -> Body:
    """``f`` on arguments of these types, found or traced.

    Args:
        f: the user's function.
        avals: the types of its arguments' leaves.
        in_tree: the structure of ``(args, kwargs)``.
        by: the loop, for people.
        turn: so many leaves in front become the last parameters of the FUNCTION.
    """
    if not callable(f):
        raise ArgumentError(f"expected a function, got {type(f).__name__}",
                            hint="pass the function itself, not what it returns")
    key = in_tree, tuple(avals), (), *context(), by, turn

    def make() -> tuple[Body, list[UOp]]:
        body = _traced(f, avals, in_tree, by, turn)
        return body, body.captures

    return _traces_of(f).find(key, make).value


def _traces_of(f: Callable[..., Any]) -> Traces[Body]:
    found = _traces.get(f)
    if found is None:
        try:
            found = _traces[f] = Traces(ref(f))
        except TypeError:  # it can't be referred to weakly
            found = Traces(lambda: f)
    return found


def _traced(f: Callable[..., Any], avals: Sequence[Aval], in_tree: tree.TreeDef, by: str,
            turn: int) -> Body:
    name = name_of(f)
    try:
        traced = trace(f, avals, in_tree, by=by, name=name, loop=by not in _BRANCHES)
    except TypeError as error:
        if not isinstance(error, FnxError):
            Arguments(f, f"{by}: {name}").check((None,) * len(in_tree.subtrees[0].subtrees), {})
        raise
    before, behind = traced.tokens[:1], traced.tokens[1:]
    leaves = [*before, *traced.leaves[turn:], *traced.leaves[:turn]]
    outs = [*behind, *[x._node for x in traced.outs]]
    since = scope.loop_since() if by in _BRANCHES else traced.since
    function, captures = rewriting(close, outs, leaves, name, front=True,
                                   whole=made_before(outs, since))
    return Body(name, function, captures, traced.out_tree, tuple([x._aval for x in traced.outs]),
                bool(before))


_BRANCHES = ("cond", "switch")  # what they alone read is computed where they are taken

# ---- several bodies over the same operands -------------------------------------------------------

_layouts: CacheOf[UOp, tuple[tuple[int, ...], int], UOp] = CacheOf("bodies over more operands",
                                                                   MAX_LAYOUTS)


def aligned(bodies: Sequence[Body]) -> tuple[list[UOp], list[UOp]]:
    """All captures once, and the bodies as FUNCTIONs (all captures, arguments) -> results.

    Where one has effects, all take a token.
    """
    captures = list(dict.fromkeys([c for body in bodies for c in body.captures]))
    place = {c: i for i, c in enumerate(captures)}
    token = any(b.effects for b in bodies)
    return captures, [relaid(b.function, [place[c] for c in b.captures],
                             len(captures) + (token and not b.effects)) for b in bodies]


def relaid(fn: UOp, places: Sequence[int], first: int) -> UOp:
    """``fn`` with its first parameters in other slots, and the others from slot ``first`` on.

    >>> from fnx.core import dtypes
    >>> p, q = (build.param(i, dtypes.float32, ()) for i in (0, 1))
    >>> moved = relaid(build.function([build.sub(p, q)], 2), [2], 3)
    >>> moved.arg.n_params, [s.arg.slot for s in moved.src[0].src]
    (4, [2, 3])
    """
    n = len(places)
    if list(places) == list(range(first)):
        return fn

    def make() -> UOp:
        slots = [*places, *range(first, first + fn.arg.n_params - n)]
        moved = {p: build.param(slots[i], p.dtype, p.shape) for i, p in build.params(fn).items()}
        outs = rewriting(substitute, fn.src, moved)
        return build.function(outs, len(slots) - n + first, fn.arg.name)

    return _layouts.of(fn).find((tuple(places), first), make)


# ---- arguments -----------------------------------------------------------------------------------


def arrays(given: Any, what: str) -> tuple[list[Array], tree.TreeDef]:
    """The leaves of an argument as Arrays; an error names the path."""
    leaves, structure = tree.flatten(given)
    for i, x in enumerate(leaves):
        if type(x) is not Array:
            try:
                leaves[i] = asarray(x)
            except FnxError as e:
                raise DTypeError(f"expected arrays or numbers, got {type(x).__name__} at "
                                 f"{path(structure, i, what)}", hint="what is no array can be "
                                 "closed over by the function") from e
    return leaves, structure


def arguments(*trees: tree.TreeDef) -> tree.TreeDef:
    """The structure of ``(args, kwargs)`` with these arguments.

    >>> arguments(tree.structure([0]), tree.structure(0))
    PyTreeDef((([*], *), {}))
    """
    empty = tree.structure(((), {}))
    args = empty.subtrees[0]
    return tree.TreeDef(empty.container, empty.data, (
        tree.TreeDef(args.container, args.data, trees), empty.subtrees[1]))


def path(structure: tree.TreeDef, i: int, what: str) -> str:
    """Where leaf i is found, as one writes it: ``carry['w'][0]``."""
    return f"{what}{tree.keystr(tree.paths(structure)[i])}"


# ---- carries -------------------------------------------------------------------------------------


def traced_carry(carry: Sequence[Array], make: Callable[[list[Aval]], tuple[Body, Sequence[Aval]]]
                 ) -> tuple[Body, list[UOp]]:
    """The body for a carry whose Python scalars have found their types, and that carry.

    A weak element takes the type that one step promotes it to; then the body is traced for that
    type, until nothing changes.

    Args:
        carry: before the first step.
        make: traces the body for carries of these types; also what it returns for them. It
            raises where there are not so many.
    """
    avals = [x._aval for x in carry]
    while True:
        body, found = make(avals)
        wider = [_promoted(a, b) for a, b in zip(avals, found)]
        if wider == avals:
            return body, [build.cast(x._node, a.dtype) for x, a in zip(carry, avals)]
        avals = wider


def _promoted(before: Aval, after: Aval) -> Aval:
    if not before.weak or before.dtype is after.dtype:
        return before
    return Aval(before.shape, promote(before.dtype, True, after.dtype, after.weak)[0])


def check_carry(what: str, body: Body, structure: tree.TreeDef, before: Sequence[UOp],
                after: Sequence[UOp]) -> None:
    """Raise where a body returns a carry of other types: path, both types, and the line."""
    for i, (a, b) in enumerate(zip(before, after)):
        if a.shape == b.shape and a.dtype is b.dtype:
            continue
        kind = ShapeError if a.shape != b.shape else DTypeError
        raise kind(f"expected {path(structure, i, what)} of {body.name} to keep its type "
                   f"{a.dtype}{list(a.shape)}, got {result_type(b)} from one step",
                   hint="each step has to take what the one before returned: give the first "
                   "value this type and shape, or convert the result with "
                   f".astype({a.dtype})" if kind is DTypeError else
                   "each step has to take what the one before returned: give the first value the "
                   "shape that the step returns")


def result_type(node: UOp) -> str:
    """The type of a result, and the line that computed it."""
    text = f"{node.dtype}{list(node.shape)}"
    site = None if node.op.kind == "source" else nearest(node.sites)
    return f"{text} (computed at {show_site(site)})" if site else text


def check_structure(what: str, body: Body, want: tree.TreeDef, got: tree.TreeDef) -> None:
    """Raise where a body returns a carry of another structure."""
    if got != want:
        raise PytreeError(f"expected {body.name} to return a {what} of the structure that it was "
                          f"given: {tree.difference(want, got)}",
                          hint="return the same containers with the same keys in each step")
