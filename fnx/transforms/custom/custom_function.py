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

from fnx.core.array import tree
from fnx.core.array.array import Array
from fnx.core.array.aval import Aval
from fnx.core.array.equality import StaticValue
from fnx.core.ir import build, build_calls, op_args, ops
from fnx.core.ir.uop import UOp, substitute, toposort
from fnx.core.scope import scope
from fnx.core.scope.callbacks import Handle
from fnx.core.support.errors import ArgumentError, RuleError, TracedValueError
from fnx.core.support.record import Record
from fnx.core.tracing.host_callbacks import with_reused_handles
from fnx.core.tracing.trace import TracedFunction, close, preserving_locs, trace
from fnx.transforms.dispatch.signature import ArgFlattener, CallKey, parameters_of
from fnx.transforms.dispatch.trace_cache import TraceCache
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
    perturbed: tuple[bool, ...]       # leaves that an enclosing trace may differentiate
    nondiff: tuple[tuple[int, Any], ...]  # (position, value) of the other arguments
    values: tuple[UOp, ...] = ()    # of the leaves, if traced for these values only

    @property
    def primals(self) -> tree.TreeDef:
        """The structure of the tuple of arguments."""
        return self.in_tree.subtrees[0]

    def fill(self, differentiated: Sequence[Any]) -> list[Any]:
        """Return all arguments, given the differentiated ones."""
        out = list(differentiated)
        for i, value in self.nondiff:
            out.insert(i, value)
        return out

    @property
    def static(self) -> list[Any]:
        """The arguments that are not differentiated, which rules take first."""
        return [value for _, value in self.nondiff]


class TracedCustom(Record):
    """A CUSTOM without its arguments."""

    functions: tuple[UOp, ...]
    arg: op_args.Custom
    captures: tuple[UOp, ...]
    out_tree: tree.TreeDef
    outs: tuple[Aval, ...]
    stops: bool = False  # stop_gradient of its captures

    def call(self, args: Sequence[Array]) -> Any:
        """Apply it to arguments, and return the results in the structure of the function."""
        captures = [build.stop_gradient(x) if self.stops and x.dtype.is_inexact else x
                    for x in self.captures]
        token_args = [scope.current_token()] if self.arg.effects else []
        nodes = build_calls.custom(self.functions, self.arg,
                                   [*captures, *token_args, *[x._node for x in args]])
        if token_args:
            scope.set_token(nodes[0])
            nodes = nodes[1:]
        return self.out_tree.unflatten([Array(n, a.weak) for n, a in zip(nodes, self.outs)])


class TracedRule(Record):
    """A traced rule: its name in ``op_args.Custom``, and the trace."""

    name: str
    traced: TracedFunction
    ct_indices: tuple[int, ...] = ()


class VmapRuleProtocol(Protocol):
    """A vmap rule, as ``ops.Custom`` holds it."""

    captures: tuple[UOp, ...]
    effects: bool
    handles: dict[Any, list[Any]]

    def tried(self) -> list[TracedFunction]:
        """Trace the rule for some batches."""

    def function(self, size: int, batched: Sequence[bool]) -> tuple[UOp, list[bool]]:
        """Return the batched FUNCTION, and which of its results differ between batch elements."""


class _EnclosingRule:
    """A function whose rules are being traced."""

    def __init__(self, owner: CustomFunction[..., Any], key: CallKey, custom: TracedCustom) -> None:
        self.owner, self.key, self.custom, self.was_called = owner, key, custom, False

    def recompute_form(self, level: int) -> TracedCustom:
        """Return the CUSTOM for a call of the function inside its own rule."""
        self.was_called = True
        custom = self.custom
        arg = op_args.Custom(custom.arg.name, custom.arg.outs, (), custom.arg.n_captures,
                             recursion_depth=level, effects=custom.arg.effects)
        return TracedCustom(custom.functions[:1], arg, custom.captures, custom.out_tree,
                            custom.outs)


class _EnclosingRules(threading.local):
    def __init__(self) -> None:
        self.open: list[_EnclosingRule] = []


_enclosing = _EnclosingRules()


class CustomFunction(Transformed[P, R]):
    """A function with custom rules; subclasses trace them in ``rules``."""

    def __init__(self, fun: Callable[..., Any], nondiff_argnums: Sequence[int] = (),
                 nondiff_argnames: Sequence[str] = ()) -> None:
        super().__init__(fun, nondiff_argnums=nondiff_argnums, nondiff_argnames=nondiff_argnames)
        self.__name__ = self.__qualname__ = self._name
        self.__doc__ = getattr(fun, "__doc__", None)
        self._nondiff = _nondiff_args(fun, self.kind, self._name, nondiff_argnums, nondiff_argnames)
        self._arguments = ArgFlattener(fun, self._name)
        self._user_rules: tuple[Callable[..., Any], ...] = ()
        self._traces: TraceCache[TracedCustom] = TraceCache(lambda: fun)

    def __getattr__(self, name: str) -> Any:
        """Forward to the function: so one with rules of another kind can be given them through
        this one."""
        f = self.__dict__.get("_f")
        if name.startswith("__") or not hasattr(f, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(f, name)

    def __reduce__(self) -> Any:
        how = super().__reduce__()
        return how if isinstance(how, str) else (*how, self._user_rules)

    def __setstate__(self, rules: tuple[Callable[..., Any], ...]) -> None:
        self._set_rules(*rules)

    @property
    def __also__(self) -> tuple[Callable[..., Any], ...]:
        """The rules: what they capture counts as captured by the function."""
        return self._user_rules

    def _set_rules(self, *rules: Callable[..., Any]) -> None:
        """Set the rules."""
        self._user_rules = rules
        all_captures = functools.partial(_all_captures, self._f, *rules)
        vars(all_captures)["__name__"] = self._name
        self._traces = TraceCache(lambda: all_captures)

    # ---- hooks of the subclasses

    def rules(self, signature: Signature, custom: TracedCustom) -> list[TracedRule]:
        """Trace the rules for a signature; ``custom`` is the function without them."""
        raise NotImplementedError

    def vmap_rule(self, signature: Signature, custom: TracedCustom) -> Any:
        """Return the vmap rule, as ``Custom`` holds it; None: batch the function itself."""
        return None

    missing: str = ""  # hint on how to define the rules, if they are missing
    stop_captures = False  # whether to stop_gradient its captures
    linear = 0  # number of last arguments in which it is jointly linear
    derivatives_only = False  # whether its rules are derivative rules only
    symbolic_zeros = False  # whether rules get symbolic zeros for inactive arguments

    # ---- calls

    def apply(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        diff_args, fixed = self._split(_to_positional(self._f, self._name, args, kwargs))
        if not self._user_rules:
            raise RuleError(f"expected rules for {self._name}, made with {self.kind}, got "
                            "none", hint=self.missing)
        arrays, key = self._arguments.key(diff_args, {})
        if not scope.is_open() or self.derivatives_only and all(
                not x._dtype.is_inexact for x in arrays):
            return self._call_plain(arrays, Signature(key.in_tree, key.avals, (), fixed))
        touched = tuple([_is_perturbed(x) for x in arrays]) if self.symbolic_zeros else ()
        signature = Signature(key.in_tree, key.avals, touched, fixed)
        key = key._replace(extra=(touched, tuple([(i, _hashable_key(v)) for i, v in fixed])))
        for level, opened in enumerate(reversed(_enclosing.open)):
            if opened.owner is self and opened.key == key:
                return opened.recompute_form(level).call(arrays)

        def make() -> tuple[TracedCustom, list[UOp]]:
            custom = self._trace(signature, key)
            return custom, list(custom.captures)

        enclosing = tuple([(opened.owner, opened.key) for opened in _enclosing.open])
        try:
            custom = self._traces.find(key._replace(extra=(*key.extra, enclosing)), make).value
        except TracedValueError as error:
            return self._call_with_values(arrays, signature, key, error)
        return custom.call(arrays)

    def _call_with_values(self, arrays: Sequence[Array], signature: Signature, key: CallKey,
                          error: TracedValueError) -> Any:
        """Do a call that needs values, as ``if x > 0`` does: trace it for these values only, if
        known."""
        try:
            values = tuple([x._numpy().tobytes() for x in arrays])
        except TracedValueError:
            raise error from None
        key = key._replace(extra=(*key.extra, values))
        own_levels = [level for level, opened in enumerate(reversed(_enclosing.open))
                      if opened.owner is self]
        for level in own_levels:
            opened = _enclosing.open[-1 - level]
            if opened.key == key:
                return opened.recompute_form(level).call(arrays)
        if len(own_levels) >= MAX_OTHER_VALUES:
            return self._call_plain(arrays, signature)
        nodes = tuple([x._node for x in arrays])
        return self._trace(signature.replace(values=nodes), key).call(arrays)

    def _split(self, args: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[tuple[int, Any], ...]]:
        """Split the arguments into those that are differentiated, and the others with their
        positions."""
        for i in self._nondiff:
            if i >= len(args):
                raise ArgumentError(f"{self._name}: expected an argument {i}, which is in "
                                    f"nondiff_argnums, got {len(args)} arguments")
        return (tuple([x for i, x in enumerate(args) if i not in self._nondiff]),
                tuple([(i, args[i]) for i in self._nondiff]))

    def _run(self, signature: Signature, values: Sequence[UOp | None]) -> TracedFunction:
        def f(*args: Any) -> Any:
            return self._f(*signature.fill(args))
        return trace(f, signature.avals, signature.in_tree, values, transform=self.kind,
                     name=self._name)

    def _call_plain(self, arrays: Sequence[Array], signature: Signature) -> Any:
        """Do a call without rules: outside of all traces, no derivative can be requested."""
        values = [x._node for x in arrays]
        traced = self._run(signature, values)
        nodes = preserving_locs(substitute, traced.nodes, traced.substitution(values))
        return traced.substitute_results(nodes)[0]

    def _trace_rules(self, signature: Signature, custom: TracedCustom, opened: _EnclosingRule
                     ) -> tuple[Sequence[TracedRule], Any, list[TracedFunction]]:
        """Trace the rules, with calls of the function in them resolved to ``opened``."""
        open_rules = _enclosing.open
        depth = len(open_rules)
        try:
            open_rules.append(opened)
            rules, vmap = self.rules(signature, custom), self.vmap_rule(signature, custom)
            return rules, vmap, [] if vmap is None else vmap.tried()
        finally:
            del open_rules[depth:]

    def _trace(self, signature: Signature, key: CallKey) -> TracedCustom:
        """Trace the function and its rules, closed over the same captures."""
        traced = self._run(signature, signature.values or [None] * len(signature.avals))
        captures: list[UOp] = []
        effects = bool(traced.tokens)
        handles: dict[Any, list[Any]] = {}
        for _ in range(MAX_ROUNDS):
            fn, _, captures = close_over(traced, captures, effects)
            arg = op_args.Custom(self._name, tuple([(o.shape, o.dtype) for o in fn.src]), (),
                                 len(captures), effects=effects)
            custom = TracedCustom((fn,), arg, tuple(captures), traced.out_tree,
                                  tuple([x._aval for x in traced.outs]))
            opened = _EnclosingRule(self, key, custom)
            rules, vmap, tried = with_reused_handles(
                handles, functools.partial(self._trace_rules, signature, custom, opened))
            rules = [r.replace(traced=dedup_arrays(r.traced, captures)) for r in rules]
            others = [r.traced for r in rules]
            if not effects and any(other.tokens for other in (*others, *tried)):
                effects = True
                continue
            for other in others:
                captures = close_over(other, captures, effects)[2]
            for other in tried:  # each may create the same arrays anew
                captures = close_over(dedup_arrays(other, captures), captures, effects)[2]
            if len(captures) == len(custom.captures) or not opened.was_called:
                break  # else calls of the function inside its rules need them
        else:
            raise RuleError(f"expected the rules of {self._name} to close over the same arrays "
                            f"each time that they are traced, got others {MAX_ROUNDS} times",
                            hint="create random numbers and other new arrays outside the rules")
        functions = [close_over(traced, captures, effects)[0],
                     *[close_over(r.traced, captures, effects)[0] for r in rules]]
        ct_indices = next((r.ct_indices for r in rules if r.name == "bwd"), ())
        if effects and any(r.name == "bwd" for r in rules):
            ct_indices = (-1, *[i if i < 0 else i + 1 for i in ct_indices])
        if vmap is not None:
            vmap.captures, vmap.effects, vmap.handles = tuple(captures), effects, handles
        arg = op_args.Custom(self._name, arg.outs, tuple([r.name for r in rules]), len(captures),
                             ct_indices, vmap_rule=vmap, effects=effects, n_linear=self.linear)
        return TracedCustom(tuple(functions), arg, tuple(captures), custom.out_tree, custom.outs,
                            self.stop_captures)


def traced_rule(f: Callable[..., Any], leaf_groups: Sequence[Sequence[Any]], by: str, name: str,
                values: Iterable[UOp | None] = ()) -> TracedFunction:
    """Trace a rule on leaves for lists of Avals; it takes these lists and returns a list of arrays.

    ``values`` are the values of the first leaves, if known.
    """
    flat = [x for part in leaf_groups for x in part]
    in_tree = tree.structure((tuple([[0] * len(part) for part in leaf_groups]), {}))
    known = itertools.chain(values, itertools.repeat(None))
    return trace(f, flat, in_tree, known, transform=by, name=name)


def close_over(traced: TracedFunction, captures: Sequence[UOp], effects: bool
                ) -> tuple[UOp, list[UOp], list[UOp]]:
    """Close a trace to a FUNCTION of given captures, its further captures, and its leaves.

    With ``effects`` it also takes a token after the captures and returns one first, even if it
    has no effects. Returns the FUNCTION, the further captures, and all captures.
    """
    token_in, token_out = traced.tokens or (_NO_EFFECT, _NO_EFFECT)
    params = [token_in, *traced.leaves] if effects else traced.leaves
    outs = [token_out, *traced.nodes[:len(traced.outs)]] if effects else traced.nodes
    leaves = [*captures, *params]
    fn, new_captures = preserving_locs(close, outs, leaves, traced.name)
    if new_captures:
        leaves = [*captures, *new_captures, *params]
        fn = preserving_locs(close, outs, leaves, traced.name)[0]
    return fn, new_captures, [*captures, *new_captures]


def dedup_arrays(traced: TracedFunction, captures: Sequence[UOp]) -> TracedFunction:
    """Replace arrays that the trace creates anew each time by captures of equal content."""
    known: dict[Any, UOp] = {}
    kinds = {(c.dtype, c.shape) for c in captures if _is_data(c)}
    fresh = [n for n in toposort(traced.nodes) if _is_data(n) and (n.dtype, n.shape) in kinds]
    if not set(fresh).difference(captures):
        return traced
    for c in filter(_is_data, captures):
        known.setdefault(_content(c), c)
    same = {n: known[key] for n in fresh if n not in captures and (key := _content(n)) in known}
    nodes = iter(preserving_locs(substitute, traced.nodes, same))
    outs = [Array(next(nodes), x.weak) for x in traced.outs]
    aux = [Array(next(nodes), x.weak) if type(x) is Array else x for x in traced.aux]
    return traced.replace(outs=outs, aux=aux, tokens=(*traced.tokens[:1], *nodes))


def _is_data(node: UOp) -> bool:
    return node.op is ops.BUFFER and type(node.arg.handle) is not Handle


def _content(node: UOp) -> Any:
    return node.dtype, node.shape, node.arg.handle.view(node.dtype.np, node.shape).tobytes()


_NO_EFFECT = UOp(ops.LEAF, build_calls.TOKEN[1], (), op_args.Leaf(-1, build_calls.TOKEN[0]))


# ---- arguments ----------------------------------------------------------------------------------


def _all_captures(*functions: Callable[..., Any]) -> None:
    """A stand-in from whose arguments Captures finds what all of them read."""


def _to_positional(f: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
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
                            hint="rules take arguments by position: give the function positional "
                                 "parameters")
    out = list(args)
    for p in plain[len(args):]:
        if p.name not in kwargs and p.default is p.empty:
            raise ArgumentError(f"{name}: expected an argument {p.name}, got none")
        out.append(kwargs.get(p.name, p.default))
    return tuple(out)


def _nondiff_args(f: Callable[..., Any], kind: str, name: str, numbers: Sequence[int],
                  names: Sequence[str]) -> tuple[int, ...]:
    """Return the positions of the arguments that are not differentiated, in order."""
    plain = [p.name for p in parameters_of(f)
             if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    wrong = [n for n in names if n not in plain]
    if wrong:
        raise ArgumentError(f"{kind} of {name}: expected nondiff_argnames among "
                            f"{', '.join(plain)}, got {wrong[0]!r}")
    if any(type(i) is not int for i in numbers):
        raise ArgumentError(f"{kind} of {name}: expected integers as nondiff_argnums, got "
                            f"{tuple(numbers)!r}")
    out = {i if i >= 0 else i + len(plain) for i in numbers} | {plain.index(n) for n in names}
    has_varargs = any(p.kind is p.VAR_POSITIONAL for p in parameters_of(f))
    if any(i < 0 or i >= len(plain) and not has_varargs for i in out):
        raise ArgumentError(f"{kind} of {name}: expected nondiff_argnums below {len(plain)}, got "
                            f"{tuple(numbers)!r}", hint=f"the parameters are {', '.join(plain)}")
    return tuple(sorted(out))


class _UnhashableKey:
    """The cache key of an unhashable value: equal to no other."""


def _hashable_key(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        return _UnhashableKey()
    return StaticValue(value)


def _is_perturbed(x: Array) -> bool:
    """Whether a float depends on an open trace."""
    return x._dtype.is_inexact and scope.depends_on_leaf(x._node)
