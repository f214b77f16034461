"""``grad``, ``value_and_grad``: the public API of reverse mode.

    grad(f)(x):  trace f on a fresh leaf  ->  reverse walk from the result
                 (autodiff/reverse.py)  ->  substitute x for the leaf

The result is a graph over x: inside another trace it becomes part of that graph, outside it runs
as one program. The leaf has the value of x if x is concrete, so f may use Python's ``if``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

from fnx.core.array import tree
from fnx.core.array.api_boundary import evaluate_pending
from fnx.core.array.array import Array
from fnx.core.array.call_validation import validate_call
from fnx.core.array.eager_cache import CacheMiss
from fnx.core.ir import build
from fnx.core.ir.derivations import run_derivation
from fnx.core.ir.uop import UOp, substitute
from fnx.core.scope import scope
from fnx.core.support.errors import ArgumentError, GradError
from fnx.core.tracing.backward_values import BackwardLift, lift_reverse
from fnx.core.tracing.state import Lift, StateUsedError
from fnx.core.tracing.trace import TracedFunction, dispatch_traced, preserving_locs, trace
from fnx.transforms.autodiff.arguments import (
    Layout,
    check_inputs,
    check_outputs,
    fix_others,
    flatten_args,
    resolve_argnums,
    with_summed_cotangents,
)
from fnx.transforms.autodiff.reverse import pullback_steps
from fnx.transforms.autodiff.rules import Cotangent
from fnx.transforms.transformed import Transformed, run_call
from fnx.transforms.vjp import vjp

P = ParamSpec("P")
R = TypeVar("R")


@validate_call
def grad(fun: Callable[P, Any], argnums: int | Sequence[int] = 0, has_aux: bool = False,
         holomorphic: bool = False, allow_int: bool = False,
         reduce_axes: Sequence[Any] = ()) -> Transformed[P, Any]:
    """Return the gradient function of a function with a scalar result.

    >>> import fnx
    >>> fnx.grad(lambda x: x ** 3)(2.0)
    Array(12., dtype=float32, weak_type=True)

    Args:
        fun: returns a float scalar, or (scalar, aux) if ``has_aux``.
        argnums: the positional argument to differentiate with respect to, or several.
        has_aux: whether ``fun`` returns a pair whose second part is passed through.
        holomorphic: whether ``fun`` is holomorphic: its arguments and results are complex.
        allow_int: accept integer arguments; their gradient is zeros of dtype float0.
        reduce_axes: accepted for JAX compatibility; empty.

    Returns:
        A function with the arguments of ``fun`` that returns a gradient like argument
        ``argnums`` (a tuple of them for several), or (gradient, aux).

    Raises:
        GradError: the result is not a float scalar, or an argument is not floating-point.
        ArgumentError: ``reduce_axes`` is not empty.
    """
    _check_reduce_axes(reduce_axes)
    return _Gradient(fun, argnums=argnums, has_aux=has_aux, allow_int=allow_int,
                            holomorphic=holomorphic)


@validate_call
def value_and_grad(fun: Callable[P, R], argnums: int | Sequence[int] = 0,
                   has_aux: bool = False, holomorphic: bool = False,
                   allow_int: bool = False, reduce_axes: Sequence[Any] = ()
                   ) -> Transformed[P, tuple[R, Any]]:
    """Return a function that computes the value and the gradient of a scalar function together.

    >>> import fnx
    >>> fnx.value_and_grad(lambda x: x * x)(3.0)
    (Array(9., dtype=float32, weak_type=True), Array(6., dtype=float32, weak_type=True))

    Args:
        fun: returns a float scalar, or (scalar, aux) if ``has_aux``.
        argnums: the positional argument to differentiate with respect to, or several.
        has_aux: whether ``fun`` returns a pair whose second part is passed through.
        holomorphic: whether ``fun`` is holomorphic: its arguments and results are complex.
        allow_int: accept integer arguments; their gradient is zeros of dtype float0.
        reduce_axes: accepted for JAX compatibility; empty.

    Returns:
        A function that returns (value, gradient), or ((value, aux), gradient).

    Raises:
        GradError: the result is not a float scalar, or an argument is not floating-point.
        ArgumentError: ``reduce_axes`` is not empty.
    """
    _check_reduce_axes(reduce_axes)
    return _ValueAndGradient(fun, argnums=argnums, has_aux=has_aux, allow_int=allow_int,
                            holomorphic=holomorphic)


def _check_reduce_axes(reduce_axes: Sequence[Any]) -> None:
    if tuple(reduce_axes):
        raise ArgumentError(f"expected no reduce_axes, got {tuple(reduce_axes)}",
                            hint="sum the gradient over these axes by lax.psum")


class _ValueAndGradient(Transformed[P, R]):
    kind = "value_and_grad"
    summary = "The value and its gradient. Takes the arguments of the function."

    def apply(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        argnums, has_aux, allow_int, holomorphic = self._options.values()
        wrt = resolve_argnums(argnums, len(args), "grad", self._name)

        leaves, layout = flatten_args(args, wrt, allow_int)
        check_inputs(self.kind, holomorphic, layout)
        inputs = [x for x in leaves if x._dtype.is_inexact]
        values = [x._node for x in inputs]
        f = with_summed_cotangents(fix_others(self._f, args, kwargs, wrt))
        traced = trace(f, layout.floats(leaves), layout.tree, values, transform="grad",
                       name=self._name, has_aux=has_aux)
        check_outputs(self.kind, holomorphic, [_scalar_loss(traced)])
        if has_aux or traced.tokens or scope.is_open():
            return self._results(traced, values, layout, inputs)
        result = dispatch_traced((type(self), argnums, layout), traced,
                                 [x._storage for x in inputs])
        if type(result) is CacheMiss:
            call, result = result, self._results(traced, values, layout, inputs)
            evaluate_pending(result, call)
        return result

    def with_aux(self, lifted: Lift) -> Callable[..., tuple[Any, Any]]:
        has_aux = self._options["has_aux"]
        g = type(self)(lifted.as_aux(self._f, has_aux), **{**self._options, "has_aux": True})

        def call(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
            first, second = run_call(g, args, kwargs)
            if self.kind == "grad":
                aux, values = second
                return ((first, aux) if has_aux else first), values
            value, (aux, values) = first
            return ((value, aux) if has_aux else value, second), values
        return call

    def _run_with_states(self, used: StateUsedError, args: tuple[Any, ...],
                         kwargs: dict[str, Any]) -> Any:
        return lift_reverse(used, lambda lifted: self.with_aux(lifted)(*args, **kwargs),
                            lambda backward: self._with_backward_states(backward, args, kwargs))

    def _with_backward_states(self, backward: BackwardLift, args: tuple[Any, ...],
                              kwargs: dict[str, Any]) -> Any:
        """Do a call in which backward rules use references: they begin with the values that the
        function leaves."""
        argnums, has_aux, allow_int, holomorphic = self._options.values()
        wrt = resolve_argnums(argnums, len(args), "grad", self._name)
        check_inputs(self.kind, holomorphic, flatten_args(args, wrt, allow_int)[1])
        f = backward.function(fix_others(self._f, args, kwargs, wrt), has_aux)
        (value, _), pull, (aux, states) = vjp(f, tuple([args[i] for i in wrt]), backward.zeros,
                                              has_aux=True)
        check_outputs(self.kind, holomorphic, [check_scalar(self._name, value)])
        backward.set(states)
        grads = backward.pull(pull, Array(build.const_like(value._node, 1), value.weak))
        gradient = grads[0] if isinstance(argnums, int) else grads
        if self.kind == "grad":
            return (gradient, aux) if has_aux else gradient
        return ((value, aux) if has_aux else value), gradient

    def _results(self, traced: TracedFunction, values: Sequence[UOp], layout: Layout,
                 inputs: Sequence[Array]) -> Any:
        """Build what a call returns, as nodes over the values of the inputs."""
        argnums, has_aux, _, _ = self._options.values()
        nodes = preserving_locs(_with_gradients, traced, values)
        value, aux = traced.substitute_results(nodes)
        grads = layout.gradients([Array(g, x.weak) for g, x in
                                  zip(nodes[len(nodes) - len(inputs):], inputs)])
        gradient = grads[0] if isinstance(argnums, int) else grads
        return ((value, aux) if has_aux else value), gradient


def _with_gradients(traced: TracedFunction, values: Sequence[UOp]) -> list[UOp]:
    """Return the results of a traced function, then the gradients of its leaves, with ``values``
    substituted for the leaves."""
    loss, leaves, nodes = _scalar_loss(traced), traced.leaves, traced.nodes
    seed = Cotangent(build.const_like(loss._node, 1))
    outs, cts, token = run_derivation(pullback_steps(nodes, [seed, *[None] * (len(nodes) - 1)],
                                                     leaves,
                                                     token=nodes[-1] if traced.tokens else None))
    if token is not None:
        outs = [*outs[:-1], token]
    grads = [build.const_like(leaf, 0) if ct is None else ct.value for leaf, ct in zip(leaves, cts)]
    return substitute([*outs, *grads], traced.substitution(values))


class _Gradient(_ValueAndGradient[P, R]):
    kind = "grad"
    summary = "The gradient. Takes the arguments of the function."

    def _results(self, traced: TracedFunction, values: Sequence[UOp], layout: Layout,
                 inputs: Sequence[Array]) -> Any:
        value, gradient = super()._results(traced, values, layout, inputs)
        return (gradient, value[1]) if self._options["has_aux"] else gradient


def _scalar_loss(traced: TracedFunction) -> Array:
    """Return the scalar to differentiate."""
    if traced.out_tree.pytree_type is not None:
        raise GradError(f"{traced.name}: expected a scalar as result, got "
                        f"{tree.describe_structure(traced.out_tree)}",
                        hint="return the loss alone and pass auxiliary values with has_aux=True"
                        if traced.outs else "a function without a return statement returns None")
    return check_scalar(traced.name, *traced.outs)


def check_scalar(name: str, loss: Array) -> Array:
    """Return the result of a function if it is a float scalar, else raise."""
    if loss.shape != () or not loss._dtype.is_inexact:
        raise GradError(f"{name}: expected a float scalar as result, got "
                        f"{loss._aval}",
                        hint="reduce it with .sum() or .mean(), or use vjp for other results"
                        if loss.shape else "convert it with .astype(float32)")
    return loss
