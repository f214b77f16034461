"""``make_jaxpr``: trace a function, and view its graph as a jaxpr."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec

from fnx.core.array import tree
from fnx.core.array.array import Array, from_storage
from fnx.core.array.aval import Aval, ShapeDtypeStruct
from fnx.core.ir import build, ops
from fnx.core.ir.uop import UOp, substitute
from fnx.core.scope import scope
from fnx.core.tracing.trace import ClosedFunction, TracedFunction, argument_name
from fnx.jaxprs.syntax import ClosedJaxpr
from fnx.jaxprs.view import function_to_jaxpr, graph_to_jaxpr, is_handle
from fnx.transforms.abstract_eval import trace_function
from fnx.transforms.dispatch.signature import CallKey
from fnx.transforms.dispatch.stateful_calls import on_values, values_of_references
from fnx.transforms.transformed import Transformed

P = ParamSpec("P")


def make_jaxpr(fun: Callable[P, Any], static_argnums: int | Sequence[int] = (),
               axis_env: Sequence[tuple[Any, int]] | None = None,
               return_shape: bool = False) -> Transformed[P, Any]:
    """Make a function that returns the jaxpr of ``fun`` instead of running it.

    >>> import fnx
    >>> print(fnx.make_jaxpr(lambda x: x + 1)(3.0))
    { lambda ; a:f32[]. let b:f32[] = add a 1.0:f32[] in (b,) }

    The last results of a function of references are the values that they have after it.

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

        (values, kwargs), references = values_of_references((tuple(dynamic), kwargs), f=self._f)
        f = in_axes if axis_env else of_rest
        traced, avals = trace_function(on_values(f) if references else f, values, kwargs,
                                       self.kind, self._name)
        jaxpr = traced_jaxpr(traced, avals)
        positions = [i for i in range(len(args)) if i not in static]
        name_arguments(jaxpr, self._f, tree.structure((values, kwargs)), traced.out_tree,
                       positions)
        shapes = traced.out_tree.unflatten([_shape_struct(x._aval) for x in traced.outs])
        return (jaxpr, shapes[0] if references else shapes) if return_shape else jaxpr


def name_arguments(closed: ClosedJaxpr, f: Callable[..., Any], in_tree: tree.TreeDef,
                   out_tree: tree.TreeDef, positions: Sequence[int]) -> None:
    """Say in a jaxpr's debug_info which argument each variable is, and which result.

    ``positions``: those of the positional arguments that are not static.
    """
    info = closed.jaxpr.debug_info
    code = getattr(f, "__code__", None)
    if code is not None and info.func_src_info:
        info.func_src_info = f"{info.func_name} at {code.co_filename}:{code.co_firstlineno}"
    info.arg_names = tuple([argument_name(f, path, positions) for path in tree.paths(in_tree)])
    info.result_paths = tuple(["result" + tree.keystr(path) for path in tree.paths(out_tree)])


def traced_jaxpr(traced: TracedFunction, avals: Sequence[Aval]) -> ClosedJaxpr:
    """Return the jaxpr of a trace on leaves of these types."""
    closed = traced.close(every_value=True)
    n = len(traced.outs)
    weak = [*[a.weak for a in avals], *[x.weak for x in traced.outs]]
    consts = [c for c in closed.captures if not is_handle(c)]
    # values of enclosing traces become sources, so that no equation reads what is below them
    sources = {c: build.param(i, c.dtype, c.shape) for i, c in enumerate(consts) if c.src}
    outs, tokens = traced.nodes[:n], traced.tokens
    if sources:
        outs, tokens = substitute(outs, sources), tuple(substitute(tokens, sources))
    jaxpr = graph_to_jaxpr(outs, traced.leaves, [sources.get(c, c) for c in consts], traced.name,
                           weak, tokens)
    return ClosedJaxpr(jaxpr, [_as_array(c) for c in consts], lambda: closed.function)


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
