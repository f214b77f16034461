"""``custom_jvp``: a function with a user-defined jvp rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ParamSpec, TypeVar

import numpy as np

from fnx.core.array import tree
from fnx.core.array.abstract_values import FLOAT0
from fnx.core.array.aval import ShapeDtypeStruct
from fnx.core.support.errors import ArgumentError
from fnx.core.tracing.state import Lift
from fnx.transforms.custom.check_results import (
    RuleInfo,
    SymbolicZero,
    check_outs,
    check_pair,
    check_tangents,
)
from fnx.transforms.custom.custom_function import CustomFunction
from fnx.transforms.custom.references import on_values
from fnx.transforms.custom.traced_custom import (
    Signature,
    TracedCustom,
    TracedRule,
    traced_rule,
)

P = ParamSpec("P")
R = TypeVar("R")


class custom_jvp(CustomFunction[P, R]):
    """A function with a custom jvp: forward mode applies it, reverse mode transposes it.

    Args:
        fun: the function. Also usable as a decorator.
        nondiff_argnums: positions of arguments that have no derivative, of any type; rules take
            them first.
        nondiff_argnames: the same by name.

    Returns:
        A function like ``fun``; define its rule with ``defjvp`` or ``defjvps``.

    Raises:
        RuleError: it is called without a rule, or the rule returns values of the wrong type.

    >>> import fnx
    >>> import fnx.numpy as jnp
    >>> @fnx.custom_jvp
    ... def log1pexp(x):
    ...     return jnp.log(1.0 + jnp.exp(x))
    >>> @log1pexp.defjvp
    ... def log1pexp_jvp(primals, tangents):
    ...     (x,), (t,) = primals, tangents
    ...     return log1pexp(x), t * (1 - 1 / (1 + jnp.exp(x)))
    >>> fnx.grad(log1pexp)(100.0)
    Array(1., dtype=float32, weak_type=True)
    """

    kind = "custom_jvp"
    derivatives_only = True
    rule_names = ("jvp",)
    missing = "call defjvp(rule) or defjvps(...) on it before it is used"

    def defjvp(self, jvp: Callable[..., tuple[Any, Any]], symbolic_zeros: bool = False
               ) -> Callable[..., tuple[Any, Any]]:
        """Define the rule for all arguments together.

        Args:
            jvp: ``jvp(primals, tangents)``, two tuples like the arguments, after the arguments
                in ``nondiff_argnums``; returns (result, tangent). It is linear in the tangents.
                Tangents of integers are zeros of dtype float0.
            symbolic_zeros: whether tangents that are known to be zero are passed as SymbolicZero;
                else as arrays of zeros.

        Returns:
            ``jvp`` itself, so that this is a decorator.
        """
        self.symbolic_zeros = symbolic_zeros
        self._set_rules(jvp)
        return jvp

    def defjvps(self, *jvps: Callable[..., Any] | None) -> None:
        """Define a rule for each argument; the tangents of the result are summed.

        Args:
            jvps: ``jvp(t, ans, *primals)``, a function of the argument's tangent, the result
                and all arguments, which returns the tangent of the result; None: zero.

        >>> import fnx
        >>> @fnx.custom_jvp
        ... def f(x, y):
        ...     return x * y
        >>> f.defjvps(lambda t, ans, x, y: t * y, None)
        >>> fnx.grad(f, (0, 1))(2.0, 3.0)
        (Array(3., dtype=float32, weak_type=True), Array(0., dtype=float32, weak_type=True))
        """
        if self._nondiff:
            raise ArgumentError(f"defjvps of {self._name}: expected no nondiff_argnums, got "
                                f"{self._nondiff}", hint="use defjvp, whose rule gets them")
        for jvp in jvps:
            if jvp is not None and not callable(jvp):
                raise ArgumentError(f"defjvps of {self._name}: expected functions or None, got "
                                    f"{type(jvp).__name__}")
        self.defjvp(_SumOfJvps(self, jvps))

    def lifted_form(self, lifted: Lift) -> custom_jvp[Any, Any]:
        rule, = self._user_rules

        def jvp(*args: Any) -> Any:
            *static, (values, *primals), (_, *tangents) = args
            (out, tangent), last = lifted.run(rule, values, *static, tuple(primals),
                                              tuple(tangents))
            return (out, last), (tangent, tree.map(lambda x: SymbolicZero(x), last))
        f = custom_jvp[Any, Any](on_values(self._f, lifted), [i + 1 for i in self._nondiff])
        f.defjvp(jvp, self.symbolic_zeros)
        return f

    def rules(self, signature: Signature, custom: TracedCustom) -> list[TracedRule]:
        return [jvp_rule(self, self._user_rules[0], signature, custom)]


def jvp_rule(f: CustomFunction[..., Any], jvp: Callable[..., Any], signature: Signature,
             custom: TracedCustom) -> TracedRule:
    """Trace a jvp rule to a FUNCTION of the arguments and their tangents."""
    info = RuleInfo(jvp, "jvp", f._name)
    avals, primals_tree = signature.avals, signature.primals

    def rule(primals: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        out = info.call(*signature.static, primals_tree.unflatten(primals),
                        primals_tree.unflatten(_tangents(signature, tangents, f.symbolic_zeros)))
        value, tangent = check_pair(out, info, "(result, tangent)")
        return [*check_outs(value, custom.out_tree, custom.outs, info),
                *check_tangents(tangent, custom.out_tree, custom.outs, info)]

    traced = traced_rule(rule, [avals, [a for a in avals if a.dtype.is_inexact]],
                         "the jvp", f"{f._name}.jvp", signature.values)
    return TracedRule("jvp", traced)


def _tangents(signature: Signature, tangents: Sequence[Any], zeros: bool) -> Iterator[Any]:
    """Yield a tangent for each leaf: the given arrays for floats, zeros of dtype float0 for
    others."""
    remaining = iter(tangents)
    for i, a in enumerate(signature.avals):
        t = next(remaining) if a.dtype.is_inexact else np.zeros(a.shape, FLOAT0)
        is_zero = zeros and not signature.perturbed[i]
        yield SymbolicZero(ShapeDtypeStruct(a.shape, a.dtype)) if is_zero else t


class _SumOfJvps:
    """The joint rule that ``defjvps`` builds from the rules of the arguments."""

    def __init__(self, f: custom_jvp[..., Any], jvps: Sequence[Callable[..., Any] | None]) -> None:
        self.f, self.jvps = f, jvps
        self.__name__ = "defjvps"

    @property
    def __also__(self) -> tuple[Any, ...]:
        return tuple([jvp for jvp in self.jvps if jvp is not None])

    def __call__(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        if len(self.jvps) != len(primals):
            raise ArgumentError(f"defjvps: expected a rule, or None, for each of {len(primals)} "
                                f"arguments, got {len(self.jvps)}")
        ans = self.f(*primals)
        terms = [jvp(t, ans, *primals) for jvp, t in zip(self.jvps, tangents) if jvp is not None]
        if not terms:
            return ans, tree.map(lambda x: SymbolicZero(x), ans)
        return ans, tree.map(_add_all, terms[0], *terms[1:])


def _add_all(total: Any, *others: Any) -> Any:
    for x in others:
        total = total + x
    return total
