"""``jacfwd``, ``jacrev``, ``jacobian``, ``hessian``: all derivatives of all results.

    jacfwd   the jvp of each standard basis tangent: the jvp FUNCTION, batched over them
    jacrev   the vjp of each standard basis cotangent: the backward FUNCTION, batched over them
    hessian  jacfwd of jacrev

The forward pass does not depend on the basis vector, so it is not batched and runs once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

from fnx.core.array.array import Array
from fnx.core.array.aval import Aval
from fnx.core.array.call_validation import validate_call
from fnx.core.ir import build, build_calls, dtypes
from fnx.core.ir.derivations import retain
from fnx.core.ir.ops import Shape
from fnx.core.ir.uop import UOp
from fnx.core.scope import scope
from fnx.core.support.errors import GradError
from fnx.core.tracing.backward_values import refuse_backward
from fnx.core.tracing.state import Lift
from fnx.core.tracing.trace import ClosedFunction, inline_function, preserving_locs, trace
from fnx.transforms.autodiff.arguments import (
    Float0,
    check_inputs,
    check_outputs,
    fix_others,
    flatten_args,
    resolve_argnums,
    with_summed_cotangents,
)
from fnx.transforms.autodiff.drop_effects import drop_effects
from fnx.transforms.autodiff.forward import jvp_form
from fnx.transforms.autodiff.higher_order import Activity, JvpKey, Linearized
from fnx.transforms.autodiff.reverse import linearize
from fnx.transforms.autodiff.standard_basis import contract_basis
from fnx.transforms.batching.batch import batch
from fnx.transforms.transformed import Transformed, run_call

P = ParamSpec("P")
R = TypeVar("R")

DerivativeBlocks = list[list[UOp]]  # [float result][float input]: the derivative block


@validate_call
def jacfwd(fun: Callable[P, Any], argnums: int | Sequence[int] = 0, has_aux: bool = False,
           holomorphic: bool = False) -> Transformed[P, Any]:
    """Compute the Jacobian column by column: best with more results than arguments.

    >>> import fnx
    >>> import fnx.numpy as jnp
    >>> fnx.jacfwd(lambda x: x ** 2)(jnp.arange(2.0))
    Array([[0., 0.],
           [0., 2.]], dtype=float32)

    Args:
        fun: returns a pytree of arrays, or (pytree, aux) if ``has_aux``.
        argnums: the positional argument to differentiate with respect to, or several.
        has_aux: whether ``fun`` returns a pair whose second part is passed through.
        holomorphic: whether ``fun`` is holomorphic: its arguments and results are complex.

    Returns:
        A function with the arguments of ``fun``. It returns a pytree like the result, in which
        each array is replaced by a pytree like the argument (a tuple of these for several
        arguments), of arrays with the axes of the result and then those of the argument; or
        (this, aux).

    Raises:
        GradError: an argument is not floating-point.
    """
    return _Jacfwd(fun, argnums=argnums, has_aux=has_aux, allow_int=False,
                   holomorphic=holomorphic)


@validate_call
def jacrev(fun: Callable[P, Any], argnums: int | Sequence[int] = 0, has_aux: bool = False,
           holomorphic: bool = False, allow_int: bool = False) -> Transformed[P, Any]:
    """Compute the Jacobian row by row: best with more arguments than results.

    >>> import fnx
    >>> import fnx.numpy as jnp
    >>> fnx.jacrev(lambda x: (x ** 2).sum())(jnp.arange(2.0))
    Array([0., 2.], dtype=float32)

    Args:
        fun: returns a pytree of float arrays, or (pytree, aux) if ``has_aux``.
        argnums: the positional argument to differentiate with respect to, or several.
        has_aux: whether ``fun`` returns a pair whose second part is passed through.
        holomorphic: whether ``fun`` is holomorphic: its arguments and results are complex.
        allow_int: accept integer arguments; their derivative is zeros of dtype float0.

    Returns:
        A function with the arguments of ``fun``, with results as for ``jacfwd``.

    Raises:
        GradError: an argument or a result is not floating-point.
    """
    return _Jacrev(fun, argnums=argnums, has_aux=has_aux, allow_int=allow_int,
                            holomorphic=holomorphic)


jacobian = jacrev


@validate_call
def hessian(fun: Callable[P, Any], argnums: int | Sequence[int] = 0, has_aux: bool = False,
            holomorphic: bool = False) -> Transformed[P, Any]:
    """Compute the matrix of second derivatives of a function.

    >>> import fnx
    >>> import fnx.numpy as jnp
    >>> fnx.hessian(lambda x: x[0] ** 2 * x[1])(jnp.array([1.0, 3.0]))
    Array([[6., 2.],
           [2., 0.]], dtype=float32)

    Args:
        fun: returns a pytree of float arrays, or (pytree, aux) if ``has_aux``.
        argnums: the positional argument to differentiate with respect to, or several.
        has_aux: whether ``fun`` returns a pair whose second part is passed through.
        holomorphic: whether ``fun`` is holomorphic: its arguments and results are complex.

    Returns:
        A function with the arguments of ``fun``. It returns a pytree like the result of pytrees
        like the argument of pytrees like the argument; or (this, aux).

    Raises:
        GradError: an argument or a result is not floating-point.
    """
    return jacfwd(jacrev(fun, argnums, has_aux, holomorphic), argnums, has_aux, holomorphic)


class _Jacobian(Transformed[P, R]):
    """Base class: ``blocks`` computes all derivatives of a FUNCTION with respect to its first
    PARAMs."""

    def apply(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        argnums, has_aux, allow_int, holomorphic = self._options.values()
        wrt = resolve_argnums(argnums, len(args), self.kind, self._name)

        args_in, layout = flatten_args(args, wrt, allow_int)
        check_inputs(self.kind, holomorphic, layout, only_real=self.kind == "jacfwd")
        inputs = [x for x in args_in if x._dtype.is_inexact]
        values = [x._node for x in inputs]
        f = with_summed_cotangents(fix_others(self._f, args, kwargs, wrt))
        traced = trace(f, layout.floats(args_in), layout.tree, values, transform=self.kind,
                       name=self._name, has_aux=has_aux)
        self.check(traced.outs, holomorphic)
        closed = traced.close()
        retain(closed.function)
        nodes, blocks = preserving_locs(self.blocks, closed, [*values, *closed.operands()],
                                        len(values))
        _, aux = traced.substitute_results(nodes)

        def row(out: Array, row_blocks: list[UOp]) -> Any:
            remaining = iter(row_blocks)
            leaves = [Array(next(remaining), self.is_weak(x, out)) if x._dtype.is_inexact else
                      Float0.like((*out.shape, *x.shape)) for x in args_in]
            of_args: tuple[tuple[Any, ...], Any] = layout.tree.unflatten(leaves)
            return of_args[0][0] if isinstance(argnums, int) else of_args[0]

        jacobian = traced.out_tree.unflatten([row(*r) for r in zip(traced.outs, blocks)])
        return (jacobian, aux) if has_aux else jacobian

    def with_aux(self, lifted: Lift) -> Callable[..., tuple[Any, Any]]:
        refuse_backward(lifted, self.kind)
        has_aux = self._options["has_aux"]
        g = type(self)(lifted.as_aux(self._f, has_aux), **{**self._options, "has_aux": True})

        def call(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
            jacobian, (aux, values) = run_call(g, args, kwargs)
            return ((jacobian, aux) if has_aux else jacobian), values
        return call

    def check(self, outs: Sequence[Array], holomorphic: bool) -> None:
        """Raise if a result has no derivative."""
        if holomorphic:
            check_outputs(self.kind, holomorphic, outs)

    def is_weak(self, x: Array, out: Array) -> bool:
        """Whether a block is weakly typed: follows the tangent of ``out``, or the cotangent of
        ``x``."""
        raise NotImplementedError

    def blocks(self, closed: ClosedFunction, args: Sequence[UOp], n: int
               ) -> tuple[list[UOp], DerivativeBlocks]:
        """Return the results of a FUNCTION, and their derivatives in the first ``n`` operands."""
        raise NotImplementedError


class _Jacfwd(_Jacobian[P, R]):
    kind = "jacfwd"
    summary = "The Jacobian. Takes the arguments of the function."

    def is_weak(self, x: Array, out: Array) -> bool:
        return out.weak

    def blocks(self, closed: ClosedFunction, args: Sequence[UOp], n: int
               ) -> tuple[list[UOp], DerivativeBlocks]:
        nodes, columns = list(_results(closed.function, args)), []
        with_effects = closed.effects  # only the first of several passes has effects
        for k in range(n):
            column, results = _jvp_columns(closed, args, k, with_effects)
            columns.append(column)
            if with_effects and results:
                nodes, with_effects = results, False
        return nodes, [list(row) for row in zip(*columns)] or [[] for _ in closed.outs]


_RERUN_WHAT = "a function that a Jacobian in several arrays runs again for each"
_RERUN_HINT = "take the Jacobian of one array at a time"


def _jvp_columns(closed: ClosedFunction, args: Sequence[UOp], k: int, effects: bool
                 ) -> tuple[list[UOp], list[UOp]]:
    """Return the derivative of each result in operand ``k``, and the results."""
    fn, x = closed.function, args[k]
    size = math.prod(x.shape)
    form = jvp_form(fn, JvpKey((k,)))

    def block(out: Aval, node: UOp | None, is_batched: bool) -> UOp:
        shape = out.shape + x.shape
        if node is None or size == 0:
            return build.const(0, out.dtype, shape) if out.dtype.is_inexact else _int_zeros(shape)
        if not is_batched:
            node = build.expand(node, (size, *out.shape))
        back = (*range(1, len(out.shape) + 1), 0)
        return build.reshape(build.permute(node, back), shape)

    if size == 0:
        return [block(out, None, False) for out in closed.outs], []
    function = form.function if effects else drop_effects(form.function, _RERUN_WHAT, _RERUN_HINT)
    batched = batch(function, size, [*[False] * len(args), True])
    units = _standard_basis(x)
    results = contract_basis(_results(batched.function, [*args, units]), units)
    return [block(out, *((None, False) if t is None else (results[t], batched.outs[t])))
            for out, (t, _) in zip(closed.outs, form.result_indices)], \
        results[:len(form.result_indices)]


def _results(function: UOp, args: Sequence[UOp]) -> Sequence[UOp]:
    """Return the results of a FUNCTION: of a call, but in a jaxpr, where calls are those of the
    user's jitted functions, of its body."""
    return inline_function(function, args) if scope.is_within("make_jaxpr") else \
        build_calls.call(function, args)


def _int_zeros(shape: Shape) -> UOp:
    """The derivative of an integer result: zeros of int32, as in JAX."""
    return build.const(0, dtypes.int32, shape)


class _Jacrev(_Jacobian[P, R]):
    kind = "jacrev"
    summary = "The Jacobian. Takes the arguments of the function."

    def is_weak(self, x: Array, out: Array) -> bool:
        return x.weak

    def check(self, outs: Sequence[Array], holomorphic: bool) -> None:
        check_outputs(self.kind, holomorphic, outs)
        for out in outs:
            if not out._dtype.is_inexact:
                raise GradError(f"expected float results of {self._name}, got {out._aval}",
                                hint="convert it with .astype(float32), or use vjp")

    def blocks(self, closed: ClosedFunction, args: Sequence[UOp], n: int
               ) -> tuple[list[UOp], DerivativeBlocks]:
        nodes, rows = list(_results(closed.function, args)), []
        forms = [linearize(closed.function, Activity(tuple(range(n)), (o,)))
                 for o in range(len(closed.outs))]
        forward = [form.forward_of(closed.function) for form in forms]
        if closed.effects:  # only the first of several passes has effects
            forward[1:] = [drop_effects(fn, _RERUN_WHAT, _RERUN_HINT) for fn in forward[1:]]
            nodes = list(_results(forward[0], args))[:len(nodes)] if forward else nodes
        token = nodes[-1] if closed.effects else None
        for o, form in enumerate(forms):
            row, token = _vjp_rows(closed, args, form, _results(forward[o], args), o, token)
            rows.append(row[:n])
        return nodes if token is None else [*nodes[:-1], token], rows


def _vjp_rows(closed: ClosedFunction, args: Sequence[UOp], form: Linearized, results: Sequence[UOp],
              o: int, token: UOp | None) -> tuple[list[UOp], UOp | None]:
    """Return the derivative of result ``o`` in each active operand, and the token after its
    effects."""
    fn, out = closed.function, closed.outs[o]
    size = math.prod(out.shape)
    if size == 0:
        return [build.const(0, x.dtype, out.shape + x.shape) for x in args], token
    units = _standard_basis(fn.src[o])
    by_kind = {"input": args, "result": results, "cotangent": [units],
               "token": [units if token is None else token]}
    batched = batch(form.backward, size, [kind == "cotangent" for kind, _ in form.sources])
    operands = [by_kind[kind][i] for kind, i in form.sources]
    cts = contract_basis(_results(batched.function, operands), units)

    def block(x: UOp, i: int | None) -> UOp:
        shape = out.shape + x.shape
        if i is None:
            return build.const(0, x.dtype, shape)
        node = cts[i] if batched.outs[i] else build.expand(cts[i], (size, *x.shape))
        return build.reshape(node, shape)

    return [block(x, i) for x, (i, _) in zip(args, form.result_indices)], \
        token if form.token is None else cts[form.token]


def _standard_basis(x: UOp) -> UOp:
    """Return the standard basis of the shape of x, stacked along axis 0."""
    n = math.prod(x.shape)
    rows = build.expand(build.reshape(build.iota(n), (n, 1)), (n, n))
    columns = build.expand(build.reshape(build.iota(n), (1, n)), (n, n))
    return build.reshape(build.cast(build.eq(rows, columns), x.dtype), (n, *x.shape))
