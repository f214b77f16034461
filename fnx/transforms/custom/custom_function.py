"""Trace a function and its custom rules together, to the FUNCTIONs of a CUSTOM.

    f(x) = g(x, w), rule(x, t) = h(x, t, v)     w, v arrays of an enclosing scope
    ->  FUNCTION(w, v, x), FUNCTION(w, v, x, t), on the operands (w, v, x)

The captures of any of them are operands of the node, and all of them take all captures first.
A rule may call the function it belongs to: while the rule is traced, that call becomes a CUSTOM
without rules, whose ``again`` says at which level of enclosing rules its own rules are.

All of them are traced without values, once per signature. If one needs a value that an eager
transform has (Python's ``if``, a boolean mask as index), they are traced for these values only.
Where no derivative is taken, the rules are not traced (lazy_rules.py).
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

from fnx.core.array import tree
from fnx.core.array.array import Array
from fnx.core.array.equality import StaticValue
from fnx.core.ir import op_args
from fnx.core.ir.uop import UOp, substitute
from fnx.core.scope import scope
from fnx.core.support.errors import ArgumentError, FnxError, RuleError, TracedValueError
from fnx.core.tracing.host_callbacks import with_reused_handles
from fnx.core.tracing.state import Lift, State, StateUsedError
from fnx.core.tracing.trace import TracedFunction, preserving_locs, trace
from fnx.transforms.custom.lazy_rules import lazy_rules
from fnx.transforms.custom.traced_custom import (
    Signature,
    TracedCustom,
    TracedRule,
    close_over,
    dedup_arrays,
)
from fnx.transforms.dispatch import rule_demand
from fnx.transforms.dispatch.signature import ArgFlattener, CallKey, parameters_of
from fnx.transforms.dispatch.trace_cache import TraceCache, code_key
from fnx.transforms.transformed import Transformed, run_call

P = ParamSpec("P")
R = TypeVar("R")
MAX_ROUNDS = 8  # of tracing rules, until they have no further captures
MAX_OTHER_VALUES = 4  # nesting depth of rules that call their function on other values, and so the
                      # order of derivatives, up to which the rules apply


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
        self._lifted: tuple[Sequence[State], CustomFunction[Any, Any]] | None = None
        self._traces: TraceCache[TracedCustom] = TraceCache(lambda: fun, checks_rules=False)

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
    def user_rules(self) -> tuple[Callable[..., Any], ...]:
        """The functions that are its rules."""
        return self._user_rules

    @property
    def __also__(self) -> tuple[Callable[..., Any], ...]:
        """The rules: what they capture counts as captured by the function."""
        return self._user_rules

    def _set_rules(self, *rules: Callable[..., Any]) -> None:
        """Set the rules."""
        self._user_rules = rules
        all_captures = functools.partial(_all_captures, self._f, *rules)
        vars(all_captures)["__name__"] = self._name
        self._traces = TraceCache(lambda: all_captures, checks_rules=False)

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
    rule_names: tuple[str, ...] = ()  # those of derivative rules
    symbolic_zeros = False  # whether rules get symbolic zeros for inactive arguments

    # ---- references from outside

    def lifted_form(self, lifted: Lift) -> CustomFunction[Any, Any]:
        """Return the function with the values of states as first argument and second result, with
        its rules on values, too."""
        raise StateUsedError(lifted.states[-1])

    def with_aux(self, lifted: Lift) -> Callable[..., tuple[Any, Any]]:
        if self._lifted is None or self._lifted[0] != lifted.states:
            self._lifted = lifted.states, self.lifted_form(lifted)
        f = self._lifted[1]  # the same one for a call inside its rules

        def call(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
            positional = self._to_positional(args, kwargs)
            out: tuple[Any, Any] = run_call(f, (lifted.values, *positional), {})
            return out
        return call

    # ---- calls

    def apply(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not scope.is_open() and any(isinstance(x, State) for x in tree.leaves((args, kwargs))):
            return self._f(*args, **kwargs)  # outside of all traces nothing takes a derivative
        diff_args, fixed = self._split(self._to_positional(args, kwargs))
        if not self._user_rules:
            raise RuleError(f"expected rules for {self._name}, made with {self.kind}, got "
                            "none", hint=self.missing)
        arrays, key = self._arguments.key(diff_args, {})
        if not scope.is_traced([x._node for x in arrays]) or self.derivatives_only and all(
                not x._dtype.is_inexact for x in arrays):
            return self._call_plain(arrays, Signature(key.in_tree, key.avals, (), fixed))
        signature = Signature(key.in_tree, key.avals, (), fixed)
        key = key._replace(extra=tuple([(i, _hashable_key(v)) for i, v in fixed]))
        for level, opened in enumerate(reversed(_enclosing.open)):
            if opened.owner is self and opened.key == key:
                return opened.recompute_form(level).call(arrays)

        order = rule_demand.derivative_order()
        is_lazy = self.derivatives_only and (order <= 0 or self.symbolic_zeros)

        def make() -> tuple[TracedCustom, list[UOp]]:
            custom = self._trace_lazily(signature, self.symbolic_zeros) if is_lazy else \
                self._trace(signature, key)
            return custom, list(custom.captures)

        # a call of an enclosing function takes the captures that its rules are known to have so far
        enclosing = tuple([(opened.owner, opened.key, len(opened.custom.captures))
                           for opened in _enclosing.open])
        try:
            extra = (*key.extra, enclosing, "lazy" if is_lazy else order)
            custom = self._traces.find(key._replace(extra=extra), make).value
        except TracedValueError as error:
            return self._call_with_values(arrays, signature, key, error)
        except FnxError:
            raise
        except Exception:  # a rule may forbid derivatives; there may be none of this call
            if is_lazy or not self.derivatives_only:
                raise
            custom = self._trace_lazily(signature, is_always_lazy=True)
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
        signature = signature.replace(values=nodes, perturbed=tuple(map(_is_perturbed, arrays)))
        return self._trace(signature, key).call(arrays)

    def _to_positional(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        return _to_positional(self._f, f"{self.kind} of {self._name}", args, kwargs)

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

    def _trace_lazily(self, signature: Signature, is_always_lazy: bool) -> TracedCustom:
        """Trace the function, and its rules when a derivative is taken."""
        traced = self._run(signature, [None] * len(signature.avals))
        effects = bool(traced.tokens)
        custom = self._without_rules(traced, [], effects)
        return custom.replace(arg=custom.arg.replace(rule_maker=lazy_rules(
            self, signature, custom, is_always_lazy)))

    def _without_rules(self, traced: TracedFunction, captures: Sequence[UOp], effects: bool
                       ) -> TracedCustom:
        """Close the function over ``captures`` and those that it adds."""
        fn, _, captures = close_over(traced, captures, effects)
        arg = op_args.Custom(self._name, tuple([(o.shape, o.dtype) for o in fn.src]), (),
                             len(captures), effects=effects)
        return TracedCustom((fn,), arg, tuple(captures), traced.out_tree,
                            tuple([x._aval for x in traced.outs]))

    def code_keys(self) -> tuple[Any, ...] | None:
        """Return keys of the code of the function and its rules; None if it is not known by
        these."""
        codes = [code_key(f) for f in (self._f, *self._user_rules)]
        return None if None in codes else (*codes, self._nondiff, self.symbolic_zeros)

    def rules_on_demand(self, signature: Signature, custom: TracedCustom) -> list[TracedRule]:
        """Trace the rules of a call that was made elsewhere."""
        enclosing, _enclosing.open = _enclosing.open, []
        try:
            return self.rules(signature, custom)
        finally:
            _enclosing.open = enclosing

    def _trace(self, signature: Signature, key: CallKey) -> TracedCustom:
        """Trace the function and its rules, closed over the same captures."""
        traced = self._run(signature, signature.values or [None] * len(signature.avals))
        captures: list[UOp] = []
        effects = bool(traced.tokens)
        handles: dict[Any, list[Any]] = {}
        for _ in range(MAX_ROUNDS):
            custom = self._without_rules(traced, captures, effects)
            captures = list(custom.captures)
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
        arg = op_args.Custom(self._name, custom.arg.outs, tuple([r.name for r in rules]),
                             len(captures), ct_indices, vmap_rule=vmap, effects=effects,
                             n_linear=self.linear)
        return TracedCustom(tuple(functions), arg, tuple(captures), custom.out_tree, custom.outs,
                            self.stop_captures)


# ---- arguments ----------------------------------------------------------------------------------


def _all_captures(*functions: Callable[..., Any]) -> None:
    """A stand-in from whose arguments Captures finds what all of them read."""


def _to_positional(f: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
                   ) -> tuple[Any, ...]:
    """Return all arguments by position, also keyword arguments and defaults; ``name``: in errors.
    """
    parameters = parameters_of(f)
    if not kwargs and (len(args) == len(parameters) or any(
            p.kind is p.VAR_POSITIONAL for p in parameters)):
        return args
    plain = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    names = [p.name for p in plain]
    missing = [p.name for p in plain[len(args):] if p.name not in kwargs and p.default is p.empty]
    unknown = [k for k in kwargs if k not in names[len(args):]]
    if unknown or len(args) > len(plain):
        what = f"{unknown[0]!r} by name" if unknown else f"{len(args)} by position"
        if missing:
            what += f", and none for {missing[0]}"
        raise ArgumentError(f"{name}: expected arguments for {', '.join(names) or 'nothing'}, "
                            f"got {what}",
                            hint="rules take arguments by position: give the function positional "
                                 "parameters")
    if missing:
        raise ArgumentError(f"{name}: expected an argument {missing[0]}, got none")
    return (*args, *[kwargs.get(p.name, p.default) for p in plain[len(args):]])


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
    """Return a cache key of an argument; of lists and dicts, that of their structure and leaves."""
    if is_hashable(value):
        return StaticValue(value)
    leaves, structure = tree.flatten(value)
    if len(leaves) == 1 and leaves[0] is value:
        return _UnhashableKey()
    return structure, tuple([_hashable_key(leaf) for leaf in leaves])


def is_hashable(value: Any) -> bool:
    """Whether a value has a hash."""
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _is_perturbed(x: Array) -> bool:
    """Whether a float depends on an open trace."""
    return x._dtype.is_inexact and scope.depends_on_leaf(x._node)
