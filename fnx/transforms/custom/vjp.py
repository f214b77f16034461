"""``custom_vjp``: a function with user-defined vjp rules."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any, Generic, ParamSpec, TypeVar

import numpy as np

from fnx.core.array import tree as pytree
from fnx.core.array.abstract_values import FLOAT0
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array
from fnx.core.array.aval import Aval, ShapeDtypeStruct
from fnx.core.array.convert import SCALAR_DTYPES
from fnx.core.ir import op_args, ops
from fnx.core.ir.uop import UOp, substitute, toposort
from fnx.core.support.errors import ArgumentError, FnxError
from fnx.core.support.record import Record
from fnx.core.tracing.backward_values import used_by_bwd
from fnx.core.tracing.state import Lift, StateUsedError
from fnx.core.tracing.trace import TracedFunction, preserving_locs
from fnx.transforms.custom.check_results import (
    RuleInfo,
    SymbolicZero,
    check_cotangents,
    check_outs,
    check_pair,
)
from fnx.transforms.custom.custom_function import CustomFunction
from fnx.transforms.custom.references import hide_states, on_values, rules_on_values
from fnx.transforms.custom.traced_custom import (
    Signature,
    TracedCustom,
    TracedRule,
    traced_rule,
)

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class CustomVJPPrimal(Generic[T]):
    """An argument of a ``fwd`` that was defined with ``symbolic_zeros=True``.

    Args:
        value: the argument.
        perturbed: whether an enclosing transform may differentiate with respect to it.

    >>> CustomVJPPrimal(3.0, True)
    CustomVJPPrimal(value=3.0, perturbed=True)
    """

    __slots__ = ("value", "perturbed")

    def __init__(self, value: T, perturbed: bool) -> None:
        self.value, self.perturbed = value, perturbed

    def __repr__(self) -> str:
        return f"CustomVJPPrimal(value={self.value!r}, perturbed={self.perturbed})"


def custom_vjp_primal_tree_values(tree: Any) -> Any:
    """Return the plain arguments of a ``fwd`` that was defined with ``symbolic_zeros=True``.

    Args:
        tree: a pytree whose leaves are CustomVJPPrimals.

    Returns:
        The same tree, of their values.

    >>> custom_vjp_primal_tree_values((CustomVJPPrimal(3.0, True), [CustomVJPPrimal(4.0, False)]))
    (3.0, [4.0])
    """
    return pytree.map(lambda x: x.value if isinstance(x, CustomVJPPrimal) else x, tree)


class custom_vjp(CustomFunction[P, R]):
    """A function with a custom vjp: reverse mode applies it, forward mode transposes it.

    Args:
        fun: the function. Also usable as a decorator.
        nondiff_argnums: positions of arguments that have no derivative, of any type; ``bwd``
            takes them first.
        nondiff_argnames: the same by name.

    Returns:
        A function like ``fun``; define its rules with ``defvjp``.

    Raises:
        RuleError: it is called without rules, or the rules return values of the wrong type.

    >>> import fnx
    >>> import fnx.numpy as jnp
    >>> @fnx.custom_vjp
    ... def f(x, y):
    ...     return jnp.sin(x) * y
    >>> def fwd(x, y):
    ...     return f(x, y), (jnp.cos(x), jnp.sin(x), y)
    >>> def bwd(saved, ct):
    ...     cos_x, sin_x, y = saved
    ...     return cos_x * y * ct, sin_x * ct
    >>> f.defvjp(fwd, bwd)
    >>> fnx.grad(f)(0.0, 2.0)
    Array(2., dtype=float32, weak_type=True)
    """

    kind = "custom_vjp"
    derivatives_only = True
    rule_names = "fwd", "bwd"
    missing = "call defvjp(fwd, bwd) on it before it is used"

    def defvjp(self, fwd: Callable[..., tuple[Any, Any]], bwd: Callable[..., Any],
               symbolic_zeros: bool = False, optimize_remat: bool = False) -> None:
        """Define the two rules.

        Args:
            fwd: takes the arguments of the function; returns (result, saved), where ``saved`` is
                a pytree of arrays and numbers; Python numbers (shapes, flags) are passed on as
                they are.
            bwd: ``bwd(saved, ct)``, after the arguments in ``nondiff_argnums``: takes a
                cotangent like the result, and returns a tuple with one for each other argument.
                None, for an argument or a part of it, is zero. The cotangent of an integer is
                ignored; that of an integer result is passed as zeros of dtype float0.
            symbolic_zeros: whether ``fwd`` gets each leaf as a CustomVJPPrimal, which says
                whether it is differentiated, and ``bwd`` a SymbolicZero for each result without
                a cotangent; where it does not accept a SymbolicZero, it gets an array of zeros.
            optimize_remat: accepted for JAX's sake; unread values are never computed here.
        """
        for rule in (fwd, bwd):
            if not callable(rule):
                raise ArgumentError(f"defvjp of {self._name}: expected functions, got "
                                    f"{type(rule).__name__}", hint="write defvjp(fwd, bwd)")
        self.symbolic_zeros = symbolic_zeros
        self._set_rules(fwd, bwd)

    def lifted_form(self, lifted: Lift) -> custom_vjp[Any, Any]:
        f = custom_vjp[Any, Any](on_values(self._f, lifted), [i + 1 for i in self._nondiff])
        fwd, bwd = self._user_rules
        f.defvjp(*rules_on_values(fwd, bwd, len(self._nondiff), lifted), self.symbolic_zeros)
        return f

    def with_aux(self, lifted: Lift) -> Callable[..., tuple[Any, Any]]:
        f = super().with_aux(lifted)

        def call(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
            args, kwargs = hide_states((args, kwargs), lifted.states)
            return f(*args, **kwargs)
        return call

    def rules(self, signature: Signature, custom: TracedCustom) -> list[TracedRule]:
        fwd, bwd = self._user_rules
        return vjp_rules(self, fwd, bwd, signature, custom)


def vjp_rules(f: CustomFunction[..., Any], fwd: Callable[..., Any], bwd: Callable[..., Any],
              signature: Signature, custom: TracedCustom) -> list[TracedRule]:
    """Trace the two rules of a function to FUNCTIONs; the second takes what the first one saves.

    With symbolic zeros, the second is traced for the results that have a cotangent.
    """
    forward, saved = _trace_fwd(f, fwd, signature, custom)
    saved_avals = [x._aval for x in forward.outs[len(custom.outs):]]
    floats = [a for a in custom.outs if a.dtype.is_inexact]
    info = RuleInfo(bwd, "bwd", f._name)

    def backward(ct_outs: Sequence[int]) -> TracedRule:
        ct_indices: list[tuple[int, ...]] = []

        def rule(residuals: Sequence[Any], ct_values: Sequence[Any]) -> list[Any]:
            cts = _cotangents(custom.outs, ct_values, ct_outs, f.symbolic_zeros)
            out = info.call(*signature.static, saved.fill(residuals),
                            custom.out_tree.unflatten(cts))
            cts_out, indices = check_cotangents(out, signature.primals, signature.avals, info)
            ct_indices.append(indices)
            return cts_out

        try:
            traced = traced_rule(rule, [saved_avals, floats], "the bwd", f"{f._name}.bwd",
                                 saved.values)
        except StateUsedError as used:
            raise used_by_bwd(used) from None
        return TracedRule(op_args.bwd_rule_name(ct_outs, len(floats)), traced, ct_indices[-1])

    fwd_rule, all_floats = TracedRule("fwd", forward), tuple(range(len(floats)))
    if f.symbolic_zeros and signature.cotangents not in (None, all_floats):
        with contextlib.suppress(Exception):  # it takes no SymbolicZero: pass arrays of zeros
            return [fwd_rule, backward(signature.cotangents or ())]
    return [fwd_rule, backward(all_floats)]


def _trace_fwd(f: CustomFunction[..., Any], fwd: Callable[..., Any], signature: Signature,
               custom: TracedCustom) -> tuple[TracedFunction, _SavedResiduals]:
    """Trace the first rule; return it, and what it saves."""
    info = RuleInfo(fwd, "fwd", f._name)
    saved: list[tuple[pytree.TreeDef, dict[int, Any]]] = []

    def rule(args: Sequence[Any]) -> list[Any]:
        if f.symbolic_zeros:
            args = [CustomVJPPrimal(x, p) for x, p in zip(args, signature.perturbed)]
        out = info.call(*signature.fill(signature.primals.unflatten(args)))
        value, residuals = check_pair(out, info, "(result, saved)")
        results = check_outs(value, custom.out_tree, custom.outs, info)
        leaves, structure = pytree.flatten(residuals)
        numbers = {i: x for i, x in enumerate(leaves) if type(x) in SCALAR_DTYPES}
        saved.append((structure, numbers))
        return [*results, *[_residual(x, structure, i, info) for i, x in enumerate(leaves)
                            if i not in numbers]]

    traced = traced_rule(rule, [signature.avals], "the fwd", f"{f._name}.fwd", signature.values)
    return traced, _SavedResiduals(*saved[-1], _known_values(traced, len(custom.outs), signature))


class _SavedResiduals(Record):
    """What a ``fwd`` saves besides arrays: Python numbers, which the ``bwd`` gets as they are.

    ``numbers`` are keyed by their position among all leaves, ``values`` are the known values of
    the arrays.
    """

    structure: pytree.TreeDef
    numbers: dict[int, Any]
    values: tuple[UOp | None, ...]

    def fill(self, arrays: Sequence[Any]) -> Any:
        """Return the saved pytree, as the ``bwd`` takes it."""
        remaining = iter(arrays)
        return self.structure.unflatten([self.numbers[i] if i in self.numbers else next(remaining)
                                         for i in range(self.structure.num_leaves)])


def _known_values(traced: TracedFunction, first: int,
                  signature: Signature) -> tuple[UOp | None, ...]:
    """Return the values of results of a ``fwd``, from ``first`` on, that depend on no leaf; in a
    trace for given values, on none of its own leaves."""
    nodes = preserving_locs(substitute, [x._node for x in traced.outs[first:]],
                            dict(zip(traced.leaves, signature.values)))
    own_leaves = {*traced.leaves, *traced.tokens}

    def is_known(node: UOp) -> bool:
        return all(n.op is not ops.LEAF or signature.values and n not in own_leaves
                   for n in toposort([node]))
    return tuple([node if is_known(node) else None for node in nodes])


def _cotangents(outs: Sequence[Aval], ct_values: Sequence[Any], ct_outs: Container[int],
                symbolic: bool) -> Iterator[Any]:
    """Yield one for each result: an array for floats with a cotangent, else a zero."""
    remaining = iter(enumerate(ct_values))
    for a in outs:
        if a.dtype.is_inexact:
            k, ct = next(remaining)
            zero = symbolic and k not in ct_outs
            yield SymbolicZero(ShapeDtypeStruct(a.shape, a.dtype)) if zero else ct
        else:
            float0_zeros = np.zeros(a.shape, FLOAT0)
            yield SymbolicZero(float0_zeros) if symbolic else float0_zeros


def _residual(x: Any, structure: pytree.TreeDef, i: int, info: RuleInfo) -> Array:
    try:
        return asarray(x)
    except FnxError:
        raise info.error(f"arrays in what it saves, at saved"
                         f"{pytree.keystr(pytree.paths(structure)[i])}", type(x).__name__,
                         "save arrays and numbers; pass other values through "
                         "nondiff_argnums") from None
