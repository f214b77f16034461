"""Derivative rules of a call, traced when a derivative is taken.

    jit(f)(x)                  CUSTOM(FUNCTION of g, x), with arg.rule_maker
    its derivative is taken    the same with "jvp", or with "fwd" and "bwd"

So a call that is not differentiated costs no more than its function, and rules with symbolic zeros
are traced once, for the arguments that are differentiated and the results that have cotangents.

A rule may read what its function reads, and memory; of enclosing traces nothing else, as they may
be closed by then. It has no effects but those of its function. Both are errors that name the cure.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Sequence
from typing import Any, Protocol

from fnx.core.ir import accessors, op_args, ops
from fnx.core.ir.derivations import recent_forms
from fnx.core.ir.uop import UOp, rebuild, substitute, toposort
from fnx.core.scope import scope
from fnx.core.support.errors import RuleError
from fnx.core.tracing.trace import TracedFunction, function_name, with_arrays_inside
from fnx.transforms.custom.traced_custom import Signature, TracedCustom, TracedRule, close_over
from fnx.transforms.dispatch import rule_demand

Rules = tuple[tuple[UOp, ...], tuple[str, ...], tuple[int, ...]]  # functions, names, cotangents


class FunctionWithRules(Protocol):
    """A function with derivative rules (custom_function.py).

    Attributes:
        rule_names: the names of its rules.
        symbolic_zeros: whether rules get symbolic zeros.
    """

    rule_names: tuple[str, ...]
    symbolic_zeros: bool

    @property
    def user_rules(self) -> tuple[Any, ...]:
        """The functions that are its rules."""

    def code_keys(self) -> tuple[Any, ...] | None:
        """Return keys of the code of the function and its rules, if they are known by these."""

    def rules_on_demand(self, signature: Signature, custom: TracedCustom) -> list[TracedRule]:
        """Trace the rules of a call that was made elsewhere."""


class LazyRules:
    """The rules of a function for a signature.

    Args:
        function: the function.
        signature: the types of its arguments.
        custom: the traced function, without rules.
        is_always_lazy: whether a call under a derivative has these, too.
    """

    primitive = None
    is_linear = False

    def __init__(self, function: FunctionWithRules, signature: Signature,
                 custom: TracedCustom, is_always_lazy: bool) -> None:
        self._function, self._signature, self._custom = function, signature, custom
        self.is_always_lazy = is_always_lazy
        self._axes = scope.open_axes()
        self._forms: dict[Hashable, Rules] = {}

    def __repr__(self) -> str:
        return f"LazyRules({self._custom.arg.name})"

    @property
    def rule_names(self) -> tuple[str, ...]:
        """The names of the rules."""
        return self._function.rule_names

    @property
    def rule_labels(self) -> tuple[str, ...]:
        """The names of the user's functions that are the rules."""
        return tuple(map(function_name, self._function.user_rules))

    def with_jvp(self, node: UOp, active: Sequence[bool]) -> UOp:
        """Return the node with its rules, for tangents of these operands."""
        return self._with_rules(node, active, None)

    def with_vjp(self, node: UOp, active: Sequence[bool], outs: Sequence[bool]) -> UOp:
        """Return the node with its rules, for cotangents of these results."""
        floats = [has_ct for has_ct, (_, dtype) in zip(outs, node.arg.outs) if dtype.is_inexact]
        return self._with_rules(node, active, tuple([k for k, has_ct in enumerate(floats)
                                                     if has_ct]))

    def marked(self, node: UOp, linear: Sequence[bool]) -> UOp:
        """Return the node for operands of which these depend on tangents: a function with a jvp
        is its function there."""
        if self.rule_names != ("jvp",):
            return node
        return node.replace(op=ops.CALL, src=(node.src[0], *accessors.operands(node)),
                            arg=op_args.Call(node.arg.name, node.arg.outs))

    def _with_rules(self, node: UOp, active: Sequence[bool], cts: tuple[int, ...] | None) -> UOp:
        arg = node.arg
        flags = tuple(active[arg.n_captures + arg.effects:])
        key = (flags, cts) if self._function.symbolic_zeros else None
        if key not in self._forms:
            self._forms[key] = self._trace(flags, cts)
        rules, names, ct_indices = self._forms[key]
        return node.replace(src=(node.src[0], *rules, *accessors.operands(node)), arg=arg.replace(
            rules=names, cotangent_indices=ct_indices, rule_maker=None))

    def _trace(self, flags: tuple[bool, ...], cts: tuple[int, ...] | None) -> Rules:
        signature = self._signature.replace(perturbed=flags, cotangents=cts)
        with contextlib.ExitStack() as stack:
            stack.enter_context(scope.Scope(f"{rule_demand.ON_DEMAND} of {self._custom.arg.name}"))
            for axis in self._axes:
                if axis not in scope.open_axes():
                    stack.enter_context(scope.Scope(f"axis {axis.name}", axis))
            rules = self._function.rules_on_demand(signature, self._custom)
        ct_indices = next((r.ct_indices for r in rules if r.name.startswith("bwd")), ())
        if self._custom.arg.effects and ct_indices:
            ct_indices = (-1, *[i if i < 0 else i + 1 for i in ct_indices])
        return (tuple([self._close(r.name, r.traced) for r in rules]),
                tuple([r.name for r in rules]), ct_indices)

    def _close(self, rule: str, traced: TracedFunction) -> UOp:
        """Close the trace of a rule over the captures of the function."""
        arg, captures = self._custom.arg, self._custom.captures
        if traced.tokens and not arg.effects:
            raise RuleError(f"expected the {rule} rule of {arg.name} to have effects only if the "
                            "function has, got one", hint="print in the function, too, or take the "
                            "derivative of the function itself, not of its jaxpr")
        fn, new, _ = close_over(traced, captures, arg.effects)
        if any(x.op is not ops.BUFFER for x in new):
            raise RuleError(f"expected the {rule} rule of {arg.name} to read its arguments and "
                            "what the function reads, got an array of an enclosing trace",
                            hint="pass it as an argument of the function")
        return with_arrays_inside(fn, len(captures), new)


def drop_lazy_rules(function: UOp) -> UOp:
    """Return a FUNCTION of which no derivative is taken, with calls in place of those whose rules
    are not traced."""
    def as_call(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is not ops.CUSTOM or node.arg.rule_maker is None or \
                node.arg.rule_maker.primitive is not None:
            return None
        return node.replace(op=ops.CALL, src=src, arg=op_args.Call(node.arg.name, node.arg.outs))

    rebuilt: dict[UOp, UOp] = {}
    for fn in toposort([function], into_functions=True):
        if fn.op is ops.FUNCTION:
            rebuilt[fn] = fn.with_operands(tuple(rebuild(substitute(fn.src, rebuilt), as_call)))
    return rebuilt[function]


def lazy_rules(function: FunctionWithRules, signature: Signature, custom: TracedCustom,
               is_always_lazy: bool) -> LazyRules:
    """Return the rules of a function for a signature; functions of equal code have the same, so
    that their calls are equal nodes."""
    def make() -> LazyRules:
        return LazyRules(function, signature, custom, is_always_lazy)

    codes = function.code_keys()
    key = (lazy_rules, type(function), codes, signature, custom.functions, scope.open_axes(),
           is_always_lazy)
    try:
        hash(key)
    except TypeError:
        return make()
    if codes is None or custom.captures:
        return make()
    cached: LazyRules = recent_forms.get_or_make(key, make)
    return cached
