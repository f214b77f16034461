"""``make_jaxpr``: trace a function, and view its graph as a jaxpr."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec

from fnx.core.array import tree
from fnx.core.array.array import Array, from_storage
from fnx.core.array.aval import Aval, ShapeDtypeStruct
from fnx.core.ir import build, ops
from fnx.core.ir.uop import UOp, substitute
from fnx.core.scope import scope
from fnx.core.support.errors import ArgumentError
from fnx.core.support.process import lazy_import
from fnx.core.tracing.reference_log import ReferenceLog
from fnx.core.tracing.references import AbstractRef, Ref, new_ref
from fnx.core.tracing.state import StateUsedError, values_of
from fnx.core.tracing.trace import ClosedFunction, TracedFunction
from fnx.jaxprs import evaluate
from fnx.jaxprs.signature_names import signature_names
from fnx.jaxprs.syntax import ClosedJaxpr
from fnx.jaxprs.view import function_to_jaxpr, graph_to_jaxpr, is_handle
from fnx.transforms.abstract_eval import trace_function
from fnx.transforms.dispatch.signature import CallKey
from fnx.transforms.dispatch.stateful_calls import (
    ReferenceValue,
    on_values,
    values_of_references,
)
from fnx.transforms.transformed import Transformed

references = lazy_import("fnx.jaxprs.references")

P = ParamSpec("P")


def make_jaxpr(fun: Callable[P, Any], static_argnums: int | Sequence[int] = (),
               axis_env: Sequence[tuple[Any, int]] | None = None,
               return_shape: bool = False) -> Transformed[P, Any]:
    """Make a function that returns the jaxpr of ``fun`` instead of running it.

    >>> import fnx
    >>> print(fnx.make_jaxpr(lambda x: x + 1)(3.0))
    { lambda ; a:f32[]. let b:f32[] = add a 1.0:f32[] in (b,) }

    References are variables of type ``Ref``, which ``get`` and ``swap`` read and write.

    Args:
        fun: a function of pytrees of arrays.
        static_argnums: positional arguments that are passed to ``fun`` unchanged.
        axis_env: pairs (name, size) of axes over which its collectives run.
        return_shape: whether to also return the shapes of the result.

    Returns:
        A function with the arguments of ``fun``. It returns a ClosedJaxpr; or (this, a pytree of
        ShapeDtypeStructs like the result).
    """
    return _MakeJaxpr(fun, static_argnums=static_argnums, axis_env=axis_env,
                      return_shape=return_shape)


class _MakeJaxpr(Transformed[P, Any]):
    kind = "make_jaxpr"
    summary = "The jaxpr of the function, whose arguments it takes."

    def apply(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        nums, axis_env, return_shape = self._options.values()
        static = {i % max(len(args), 1) for i in ((nums,) if isinstance(nums, int) else nums)}
        dynamic = [x for i, x in enumerate(args) if i not in static]

        def of_rest(*values: Any, **kwargs: Any) -> Any:
            remaining = iter(values)
            return self._f(*[x if i in static else next(remaining) for i, x in enumerate(args)],
                           **kwargs)

        def in_axes(*values: Any, **kwargs: Any) -> Any:
            with contextlib.ExitStack() as stack:
                for name, size in axis_env or ():
                    stack.enter_context(scope.Scope(f"axis {name}", scope.new_axis(name, size)))
                return of_rest(*values, **kwargs)

        (values, kwargs), _ = values_of_references((tuple(dynamic), kwargs), f=self._f)
        f = in_axes if axis_env else of_rest
        recorded = _Recorded(f)
        traced, avals = recorded.trace(values, kwargs, self.kind, self._name)
        jaxpr = traced_jaxpr(traced, avals, recorded)
        positions = [i for i in range(len(args)) if i not in static]
        name_arguments(jaxpr, self._f, tree.structure((values, kwargs)), recorded.out_tree,
                       positions)
        n = recorded.out_tree.num_leaves
        shapes = recorded.out_tree.unflatten([_shape_struct(x._aval) for x in traced.outs[:n]])
        return (jaxpr, shapes) if return_shape else jaxpr


class _Recorded:
    """A function whose accesses of references are recorded when it is traced.

    Args:
        f: the function, of ReferenceValues.

    Attributes:
        log: what it does with references.
        outside: the references that it reads from outside.
        out_tree: the structure of its result.
    """

    def __init__(self, f: Callable[..., Any]) -> None:
        self._f = f
        self.outside: list[Ref] = []
        self.log = ReferenceLog()

    def trace(self, args: tuple[Any, ...], kwargs: dict[str, Any], by: str, name: str
              ) -> tuple[TracedFunction, list[Aval]]:
        """Trace it; the results are its own, then the operands of the accesses."""
        while True:
            try:
                return trace_function(self, args, kwargs, by, name)
            except StateUsedError as used:
                if used.state in self.outside or not isinstance(used.state, Ref):
                        raise
                self.outside.append(used.state)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        trace = scope.innermost()
        assert trace is not None
        held = [ref.aval.inner_aval._aval for ref in self.outside]
        values = [Array(trace.leaf(a.dtype, a.shape)) for a in held]
        arguments = [x.value._node for x in tree.leaves(
            (args, kwargs), is_leaf=lambda x: isinstance(x, ReferenceValue))
            if isinstance(x, ReferenceValue)]
        self.log = trace.log = ReferenceLog(arguments)
        for ref, value in zip(self.outside, values):
            self.log.adopt(ref, value)

        @functools.wraps(self._f)
        def f(*args: Any, **kwargs: Any) -> Any:
            out = self._f(*args, **kwargs)
            trace.log = None
            return out
        with values_of(self.outside, values):
            out, _ = on_values(f)(*args, **kwargs)
        self.out_tree = tree.structure(out)
        return out, self.log.arrays()


def name_arguments(closed: ClosedJaxpr, f: Callable[..., Any], in_tree: tree.TreeDef,
                   out_tree: tree.TreeDef, positions: Sequence[int]) -> None:
    """Say in a jaxpr's debug_info which argument each variable is, and which result.

    ``positions``: those of the positional arguments that are not static.
    """
    closed.jaxpr.debug_info.set_names(signature_names(f, in_tree, out_tree, positions))


def discharge_state(closed_jaxpr: ClosedJaxpr, *, should_discharge: bool | Sequence[bool] = True,
                    lower: bool = True) -> ClosedJaxpr:
    """Return a jaxpr on the values of references, which also returns those that they have after it.

    >>> import fnx
    >>> print(discharge_state(fnx.make_jaxpr(lambda r: r.addupdate(1.0))(fnx.new_ref(2.0))))
    { lambda ; a:f32[]. let b:f32[] = add a 1.0:f32[] in (b,) }

    Args:
        closed_jaxpr: the jaxpr.
        should_discharge: whether to do so; accepted for JAX's sake as True for all arguments.
        lower: accepted for JAX's sake.

    Returns:
        A ClosedJaxpr.

    Raises:
        ArgumentError: a reference is to stay one.
    """
    avals = [v.aval for v in closed_jaxpr.jaxpr.invars]
    flags = [should_discharge] * len(avals) if isinstance(should_discharge, bool) \
        else should_discharge
    if any(isinstance(a, AbstractRef) and not flag for a, flag in zip(avals, flags)):
        raise ArgumentError("discharge_state: expected all references to be discharged, got one "
                            "that is not", hint="pass should_discharge=True")

    def f(*values: Any) -> list[Any]:
        arguments = [new_ref(x) if isinstance(a, AbstractRef) else x for x, a in zip(values, avals)]
        outs = evaluate.eval_jaxpr(closed_jaxpr.jaxpr, closed_jaxpr.consts, *arguments)
        return [*outs, *[x.held for x in arguments if isinstance(x, Ref)]]
    types = [getattr(a, "inner_aval", a) for a in avals]
    structs = tuple([ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type) for a in types])
    name = closed_jaxpr.jaxpr.debug_info.func_name or "jaxpr"
    return traced_jaxpr(*trace_function(f, structs, {}, "discharge_state", name))


def traced_jaxpr(traced: TracedFunction, avals: Sequence[Aval], recorded: _Recorded | None = None
                 ) -> ClosedJaxpr:
    """Return the jaxpr of a trace on leaves of these types."""
    closed = traced.close(every_value=True)
    n = len(traced.outs) if recorded is None else recorded.out_tree.num_leaves
    weak = [*[a.weak for a in avals], *[x.weak for x in traced.outs[:n]]]
    consts = [c for c in closed.captures if not is_handle(c)]
    # values of enclosing traces become sources, so that no equation reads what is below them
    sources = {c: build.param(i, c.dtype, c.shape) for i, c in enumerate(consts) if c.src}
    outs, tokens = traced.nodes[:len(traced.outs)], traced.tokens
    if sources:
        outs, tokens = substitute(outs, sources), tuple(substitute(tokens, sources))
    log, refs = (ReferenceLog(), []) if recorded is None else (recorded.log, recorded.outside)
    logged = references.logged(log, outs[n:]) if log.leaves or log.accesses else None
    outside = log.leaves[:len(refs)]
    jaxpr = graph_to_jaxpr(outs[:n], traced.leaves[:len(avals)],
                           [*outside, *[sources.get(c, c) for c in consts]], traced.name,
                           weak, tokens, logged)
    return ClosedJaxpr(jaxpr, [*refs, *[_as_array(c) for c in consts]],
                       None if logged else lambda: closed.function)


def closed_jaxpr(closed: ClosedFunction, key: CallKey, f: Callable[..., Any],
                 positions: Sequence[int]) -> ClosedJaxpr:
    """Return the jaxpr of a FUNCTION that f became in calls with a key; see ``name_arguments``."""
    inputs = key.avals
    params = [build.param(i, a.dtype, a.shape) for i, a in enumerate(inputs)]
    consts = [build.param(len(params) + i, c.dtype, c.shape)
              for i, c in enumerate(closed.captures)]
    weak = [*[a.weak for a in inputs], *[a.weak for a in closed.outs]]
    jaxpr = function_to_jaxpr(closed.function, params, consts, weak)
    out = ClosedJaxpr(jaxpr, [_as_array(c) for c in closed.captures], lambda: closed.function)
    name_arguments(out, f, key.in_tree, closed.out_tree, positions)
    return out


def _as_array(node: UOp) -> Array:
    """Return a capture as an Array: a concrete one, if it is memory."""
    return from_storage(node.arg.handle, node.shape, node.dtype) if node.op is ops.BUFFER \
        and not is_handle(node) else Array(node)


def _shape_struct(aval: Aval) -> ShapeDtypeStruct:
    return ShapeDtypeStruct(aval.shape, aval.dtype.np, weak_type=aval.weak)
