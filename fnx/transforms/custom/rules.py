"""Trace a function and its custom rules together, to the FUNCTIONs of a CUSTOM.

    f(x) = g(x, w), rule(x, t) = h(x, t, v)     w, v arrays of an enclosing scope
    ->  FUNCTION(w, v, x), FUNCTION(w, v, x, t), on the operands (w, v, x)

The captures of any of them are operands of the node, and all of them take all captures first.
A rule may call the function it belongs to: while the rule is traced, that call becomes a CUSTOM
without rules, whose ``again`` says at which level of enclosing rules its own rules are.

All of them are traced without values, once per signature. If one needs a value that an eager
transform has (Python's ``if``, a boolean mask as index), they are traced for these values only.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ParamSpec, Protocol, TypeVar

from fnx.core import build, build_calls, op_args, ops
from fnx.core.array import scope, tree
from fnx.core.array.array import Array
from fnx.core.array.aval import Aval
from fnx.core.array.effects import traced_again
from fnx.core.array.equality import Static
from fnx.core.array.trace import Traced, close, rewriting, trace
from fnx.core.errors import ArgumentError, RuleError, TracedValueError
from fnx.core.host import Handle
from fnx.core.record import Record
from fnx.core.uop import UOp, substitute, toposort
from fnx.transforms.replay.signature import Arguments, parameters_of
from fnx.transforms.replay.traces import Traces
from fnx.transforms.transformed import Transformed

P = ParamSpec("P")
R = TypeVar("R")
MAX_ROUNDS = 8  # of tracing rules, until they have no further captures
MAX_OTHER_VALUES = 4  # nesting depth of rules that call their function on other values, and so the
                      # order of derivatives, up to which the rules apply


class Signature(Record):
    """The leaves of the differentiated arguments, and the values of the other arguments."""

    in_tree: tree.TreeDef           # of ((arguments), {})
    avals: tuple[Aval, ...]
    touched: tuple[bool, ...]       # leaves that an enclosing trace may differentiate
    fixed: tuple[tuple[int, Any], ...]  # (position, value) of the other arguments
    values: tuple[UOp, ...] = ()    # of the leaves, if traced for these values only

    @property
    def primals(self) -> tree.TreeDef:
        """The structure of the tuple of arguments."""
        return self.in_tree.subtrees[0]

    def filled(self, given: Sequence[Any]) -> list[Any]:
        """Return all arguments, given the differentiated ones."""
        out = list(given)
        for i, value in self.fixed:
            out.insert(i, value)
        return out

    @property
    def static(self) -> list[Any]:
        """The arguments that are not differentiated, which rules take first."""
        return [value for _, value in self.fixed]


class Made(Record):
    """A CUSTOM without its arguments."""

    functions: tuple[UOp, ...]
    arg: op_args.Custom
    captures: tuple[UOp, ...]
    out_tree: tree.TreeDef
    outs: tuple[Aval, ...]
    stops: bool = False  # stop_gradient of its captures

    def call(self, args: Sequence[Array]) -> Any:
        """Apply it to arguments, and return the results in the structure of the function."""
        captures = [build.stop_gradient(x) if self.stops and x.dtype.is_float else x
                    for x in self.captures]
        before = [scope.token()] if self.arg.effects else []
        nodes = build_calls.custom(self.functions, self.arg,
                                   [*captures, *before, *[x._node for x in args]])
        if before:
            scope.follow(nodes[0])
            nodes = nodes[1:]
        return self.out_tree.unflatten([Array(n, a.weak) for n, a in zip(nodes, self.outs)])


class TracedRule(Record):
    """A traced rule: its name in ``op_args.Custom``, and the trace."""

    name: str
    traced: Traced
    pulled: tuple[int, ...] = ()


class LanesRule(Protocol):
    """A vmap rule, as ``ops.Custom`` holds it."""

    captures: tuple[UOp, ...]
    effects: bool
    handles: dict[Any, list[Any]]

    def tried(self) -> list[Traced]:
        """Trace the rule for some batches."""

    def function(self, size: int, batched: Sequence[bool]) -> tuple[UOp, list[bool]]:
        """Return the batched FUNCTION, and which of its results differ between batch elements."""


class _OpenRule:
    """A function whose rules are being traced."""

    def __init__(self, owner: CustomFunction[..., Any], key: Any, made: Made) -> None:
        self.owner, self.key, self.made, self.met = owner, key, made, False

    def again(self, level: int) -> Made:
        """Return the CUSTOM for a call of the function inside its own rule."""
        self.met = True
        arg = op_args.Custom(self.made.arg.name, self.made.arg.outs, (), self.made.arg.n_captures,
                             again=level, effects=self.made.arg.effects)
        return Made(self.made.functions[:1], arg, self.made.captures, self.made.out_tree,
                    self.made.outs)


class _OpenRules(threading.local):
    def __init__(self) -> None:
        self.open: list[_OpenRule] = []


_tracing = _OpenRules()


class CustomFunction(Transformed[P, R]):
    """A function with custom rules; subclasses trace them in ``rules``."""

    def __init__(self, fun: Callable[..., Any], nondiff_argnums: Sequence[int] = (),
                 nondiff_argnames: Sequence[str] = ()) -> None:
        super().__init__(fun, nondiff_argnums=nondiff_argnums, nondiff_argnames=nondiff_argnames)
        self.__name__ = self.__qualname__ = self._name
        self.__doc__ = getattr(fun, "__doc__", None)
        self._fixed = _positions(fun, self.kind, self._name, nondiff_argnums, nondiff_argnames)
        self._arguments = Arguments(fun, self._name)
        self._given: tuple[Callable[..., Any], ...] = ()
        self._traces: Traces[Made] = Traces(lambda: fun)

    def __getattr__(self, name: str) -> Any:
        """Forward to the function: so one with rules of another kind can be given them through
        this one."""
        f = self.__dict__.get("_f")
        if name.startswith("__") or not hasattr(f, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(f, name)

    def __reduce__(self) -> Any:
        how = super().__reduce__()
        return how if isinstance(how, str) else (*how, self._given)

    def __setstate__(self, given: tuple[Callable[..., Any], ...]) -> None:
        self._with(*given)

    @property
    def __also__(self) -> tuple[Callable[..., Any], ...]:
        """The rules: what they capture counts as captured by the function."""
        return self._given

    def _with(self, *given: Callable[..., Any]) -> None:
        """Set the rules."""
        self._given = given
        whole = functools.partial(_together, self._f, *given)
        vars(whole)["__name__"] = self._name
        self._traces = Traces(lambda: whole)

    # ---- hooks of the subclasses

    def rules(self, signature: Signature, made: Made) -> list[TracedRule]:
        """Trace the rules for a signature; ``made`` is the function without them."""
        raise NotImplementedError

    def lanes(self, signature: Signature, made: Made) -> Any:
        """Return the vmap rule, as ``Custom`` holds it; None: batch the function itself."""
        return None

    missing: str = ""  # hint on how to define the rules, if they are missing
    stops_captures = False  # whether to stop_gradient its captures
    linear = 0  # number of last arguments in which it is jointly linear
    only_derivatives = False  # whether its rules are derivative rules only
    looks_at_zeros = False  # whether rules get symbolic zeros for inactive arguments

    # ---- calls

    def apply(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given, fixed = self._split(_positional(self._f, self._name, args, kwargs))
        if not self._given:
            raise RuleError(f"expected rules for {self._name}, which {self.kind} has made, got "
                            "none", hint=self.missing)
        arrays, found = self._arguments.key(given, {})
        if not scope.is_open() or self.only_derivatives and all(
                not x._dtype.is_float for x in arrays):
            return self._plain(arrays, Signature(found[0], found[1], (), fixed))
        touched = tuple([_is_touched(x) for x in arrays]) if self.looks_at_zeros else ()
        signature = Signature(found[0], found[1], touched, fixed)
        key = (*found, touched, tuple([(i, _hashable(value)) for i, value in fixed]))
        for level, opened in enumerate(reversed(_tracing.open)):
            if opened.owner is self and opened.key == key:
                return opened.again(level).call(arrays)

        def make() -> tuple[Made, list[UOp]]:
            made = self._trace(signature, key)
            return made, list(made.captures)

        around = tuple([(opened.owner, opened.key) for opened in _tracing.open])
        try:
            made = self._traces.find((*key, around), make).value
        except TracedValueError as error:
            return self._of_values(arrays, signature, key, error)
        return made.call(arrays)

    def _of_values(self, arrays: Sequence[Array], signature: Signature, key: Any,
                   error: TracedValueError) -> Any:
        """Do a call that needs values, as ``if x > 0`` does: trace it for these values only, if
        known."""
        try:
            key = (*key, tuple([x._numpy().tobytes() for x in arrays]))
        except TracedValueError:
            raise error from None
        mine = [level for level, opened in enumerate(reversed(_tracing.open))
                if opened.owner is self]
        for level in mine:
            opened = _tracing.open[-1 - level]
            if opened.key == key:
                return opened.again(level).call(arrays)
        if len(mine) >= MAX_OTHER_VALUES:
            return self._plain(arrays, signature)
        values = tuple([x._node for x in arrays])
        return self._trace(signature.replace(values=values), key).call(arrays)

    def _split(self, args: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[tuple[int, Any], ...]]:
        """Split the arguments into those that are differentiated, and the others with their
        positions."""
        for i in self._fixed:
            if i >= len(args):
                raise ArgumentError(f"{self._name}: expected an argument {i}, which is in "
                                    f"nondiff_argnums, got {len(args)} arguments")
        return (tuple([x for i, x in enumerate(args) if i not in self._fixed]),
                tuple([(i, args[i]) for i in self._fixed]))

    def _run(self, signature: Signature, values: Sequence[UOp | None]) -> Traced:
        def f(*given: Any) -> Any:
            return self._f(*signature.filled(given))
        return trace(f, signature.avals, signature.in_tree, values, by=self.kind,
                     name=self._name)

    def _plain(self, arrays: Sequence[Array], signature: Signature) -> Any:
        """Do a call without rules: outside of all traces, no derivative can be requested."""
        values = [x._node for x in arrays]
        traced = self._run(signature, values)
        nodes = rewriting(substitute, traced.nodes, traced.at(values))
        return traced.filled(nodes)[0]

    def _traced_rules(self, signature: Signature, made: Made, opened: _OpenRule
                      ) -> tuple[Sequence[TracedRule], Any, list[Traced]]:
        """Trace the rules, with calls of the function in them resolved to ``opened``."""
        around = _tracing.open
        depth = len(around)
        try:
            around.append(opened)
            rules, lanes = self.rules(signature, made), self.lanes(signature, made)
            return rules, lanes, [] if lanes is None else lanes.tried()
        finally:
            del around[depth:]

    def _trace(self, signature: Signature, key: Any) -> Made:
        """Trace the function and its rules, closed over the same captures."""
        traced = self._run(signature, signature.values or [None] * len(signature.avals))
        captures: list[UOp] = []
        effects = bool(traced.tokens)
        handles: dict[Any, list[Any]] = {}
        for _ in range(MAX_ROUNDS):
            fn, _, captures = closed(traced, captures, effects)
            arg = op_args.Custom(self._name, tuple([(o.shape, o.dtype) for o in fn.src]), (),
                                 len(captures), effects=effects)
            made = Made((fn,), arg, tuple(captures), traced.out_tree,
                        tuple([x._aval for x in traced.outs]))
            opened = _OpenRule(self, key, made)
            rules, lanes, tried = traced_again(
                handles, functools.partial(self._traced_rules, signature, made, opened))
            rules = [r.replace(traced=with_known(r.traced, captures)) for r in rules]
            others = [r.traced for r in rules]
            if not effects and any(other.tokens for other in (*others, *tried)):
                effects = True
                continue
            for other in others:
                captures = closed(other, captures, effects)[2]
            for other in tried:  # each may create the same arrays anew
                captures = closed(with_known(other, captures), captures, effects)[2]
            if len(captures) == len(made.captures) or not opened.met:
                break  # else calls of the function inside its rules need them
        else:
            raise RuleError(f"expected the rules of {self._name} to close over the same arrays "
                            f"each time that they are traced, got others {MAX_ROUNDS} times",
                            hint="make random numbers and the like outside of them")
        functions = [closed(traced, captures, effects)[0],
                     *[closed(r.traced, captures, effects)[0] for r in rules]]
        pulled = next((r.pulled for r in rules if r.name == "bwd"), ())
        if effects and any(r.name == "bwd" for r in rules):
            pulled = (-1, *[i if i < 0 else i + 1 for i in pulled])
        if lanes is not None:
            lanes.captures, lanes.effects, lanes.handles = tuple(captures), effects, handles
        arg = op_args.Custom(self._name, arg.outs, tuple([r.name for r in rules]), len(captures),
                             pulled, lanes=lanes, effects=effects, linear=self.linear)
        return Made(tuple(functions), arg, tuple(captures), made.out_tree, made.outs,
                    self.stops_captures)


def traced_rule(f: Callable[..., Any], given: Sequence[Sequence[Any]], by: str, name: str,
                values: Iterable[UOp | None] = ()) -> Traced:
    """Trace a rule on leaves for lists of Avals; it takes these lists and returns a list of arrays.

    ``values`` are the values of the first leaves, if known.
    """
    flat = [x for part in given for x in part]
    in_tree = tree.structure((tuple([[0] * len(part) for part in given]), {}))
    known = itertools.chain(values, itertools.repeat(None))
    return trace(f, flat, in_tree, known, by=by, name=name)


def closed(traced: Traced, captures: Sequence[UOp], effects: bool
            ) -> tuple[UOp, list[UOp], list[UOp]]:
    """Close a trace to a FUNCTION of given captures, its further captures, and its leaves.

    With ``effects`` it also takes a token after the captures and returns one first, even if it
    has no effects. Returns the FUNCTION, the further captures, and all captures.
    """
    first, last = traced.tokens or (_NO_EFFECT, _NO_EFFECT)
    own = [first, *traced.leaves] if effects else traced.leaves
    outs = [last, *traced.nodes[:len(traced.outs)]] if effects else traced.nodes
    leaves = [*captures, *own]
    fn, more = rewriting(close, outs, leaves, traced.name)
    if more:
        leaves = [*captures, *more, *own]
        fn = rewriting(close, outs, leaves, traced.name)[0]
    return fn, more, [*captures, *more]


def with_known(traced: Traced, captures: Sequence[UOp]) -> Traced:
    """Replace arrays that the trace creates anew each time by captures of equal content."""
    known: dict[Any, UOp] = {}
    kinds = {(c.dtype, c.shape) for c in captures if _is_data(c)}
    fresh = [n for n in toposort(traced.nodes) if _is_data(n) and (n.dtype, n.shape) in kinds]
    if not set(fresh).difference(captures):
        return traced
    for c in filter(_is_data, captures):
        known.setdefault(_content(c), c)
    same = {n: known[key] for n in fresh if n not in captures and (key := _content(n)) in known}
    nodes = iter(rewriting(substitute, traced.nodes, same))
    outs = [Array(next(nodes), x.weak) for x in traced.outs]
    aux = [Array(next(nodes), x.weak) if type(x) is Array else x for x in traced.aux]
    return traced.replace(outs=outs, aux=aux, tokens=(*traced.tokens[:1], *nodes))


def _is_data(node: UOp) -> bool:
    return node.op is ops.BUFFER and type(node.arg.handle) is not Handle


def _content(node: UOp) -> Any:
    return node.dtype, node.shape, node.arg.handle.view(node.dtype.np, node.shape).tobytes()


_NO_EFFECT = UOp(ops.LEAF, build_calls.TOKEN[1], (), op_args.Leaf(-1, build_calls.TOKEN[0]))


# ---- arguments ----------------------------------------------------------------------------------


def _together(*functions: Callable[..., Any]) -> None:
    """A stand-in from whose arguments Captures finds what all of them read."""


def _positional(f: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
                ) -> tuple[Any, ...]:
    """Return all arguments by position, also keyword arguments and defaults."""
    parameters = parameters_of(f)
    if not kwargs and (len(args) == len(parameters) or any(
            p.kind is p.VAR_POSITIONAL for p in parameters)):
        return args
    plain = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    names = [p.name for p in plain]
    unknown = [k for k in kwargs if k not in names[len(args):]]
    if unknown or len(args) > len(plain):
        what = f"{unknown[0]!r} by name" if unknown else f"{len(args)} by position"
        raise ArgumentError(f"{name}: expected arguments for {', '.join(names) or 'nothing'}, "
                            f"got {what}",
                            hint="rules take arguments by position: give each a parameter that "
                                 "has one")
    out = list(args)
    for p in plain[len(args):]:
        if p.name not in kwargs and p.default is p.empty:
            raise ArgumentError(f"{name}: expected an argument {p.name}, got none")
        out.append(kwargs.get(p.name, p.default))
    return tuple(out)


def _positions(f: Callable[..., Any], kind: str, name: str, numbers: Sequence[int],
               names: Sequence[str]) -> tuple[int, ...]:
    """Return the positions of the arguments that are not differentiated, in order."""
    plain = [p.name for p in parameters_of(f)
             if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    wrong = [n for n in names if n not in plain]
    if wrong:
        raise ArgumentError(f"{kind} of {name}: expected nondiff_argnames among "
                            f"{', '.join(plain)}, got {wrong[0]!r}")
    if any(type(i) is not int for i in numbers):
        raise ArgumentError(f"{kind} of {name}: expected whole numbers as nondiff_argnums, got "
                            f"{tuple(numbers)!r}")
    out = {i if i >= 0 else i + len(plain) for i in numbers} | {plain.index(n) for n in names}
    many = any(p.kind is p.VAR_POSITIONAL for p in parameters_of(f))
    if any(i < 0 or i >= len(plain) and not many for i in out):
        raise ArgumentError(f"{kind} of {name}: expected nondiff_argnums below {len(plain)}, got "
                            f"{tuple(numbers)!r}", hint=f"the parameters are {', '.join(plain)}")
    return tuple(sorted(out))


class _Once:
    """The cache key of an unhashable value: equal to no other."""


def _hashable(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        return _Once()
    return Static(value)


def _is_touched(x: Array) -> bool:
    """Whether a float depends on an open trace."""
    return x._dtype.is_float and scope.reads_leaf(x._node)
