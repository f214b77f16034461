"""``saved_residuals``: what the forward pass of reverse mode saves for the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fnx.core.array import tree
from fnx.core.array.abstract_values import ShapedArray
from fnx.core.array.api_boundary import public_api
from fnx.core.array.arguments import positional_name
from fnx.core.array.aval import Aval
from fnx.core.array.pytree_registry import Path
from fnx.core.ir import ops
from fnx.core.ir.derivations import retain
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import choose_location, format_location
from fnx.core.tracing.trace import function_name, trace
from fnx.transforms.autodiff import policies
from fnx.transforms.autodiff.arguments import flatten_args
from fnx.transforms.autodiff.higher_order import Activity
from fnx.transforms.autodiff.reverse import linearize


@public_api
def saved_residuals(f: Callable[..., Any], *args: Any, **kwargs: Any
                    ) -> list[tuple[ShapedArray, str]]:
    """Return the arrays that the forward pass of a function saves for its backward pass.

    Args:
        f: a function of pytrees of arrays.
        args: its arguments.
        kwargs: the same by name; no derivative is taken in them.

    Returns:
        A list of (type, where it comes from).

    >>> import fnx.numpy as jnp
    >>> [str(aval) for aval, _ in saved_residuals(lambda x: jnp.exp(x).sum(), jnp.ones(3))]
    ['float32[3]']
    """
    leaves, layout = flatten_args(args, range(len(args)), allow_int=True)
    traced = trace(lambda *xs: f(*xs, **kwargs), layout.floats(leaves), layout.tree,
                   transform="saved_residuals", name=function_name(f))
    closed = traced.close()
    retain(closed.function)
    floats = tuple([i for i, a in enumerate(closed.outs) if a.dtype.is_inexact])
    form = linearize(closed.function, Activity(tuple(range(len(traced.leaves))), floats))
    results = (closed.function if form.forward is None else form.forward).src
    labels = [_argument_name(f, path) for path, x in zip(tree.paths(tree.structure(args)), leaves)
              if x._dtype.is_inexact]
    residuals = []
    for kind, i in form.sources:
        if kind == "input" and i < len(labels):
            residuals.append((_aval(traced.leaves[i]), f"from the argument {labels[i]}"))
        elif kind == "input":
            residuals.append((_aval(closed.captures[i - len(labels)]), "from a constant"))
        elif kind == "result":
            residuals.append((_aval(results[i]), _origin(results[i])))
    return residuals


def _argument_name(f: Callable[..., Any], path: Path) -> str:
    first, *rest = path
    return positional_name(f, getattr(first, "idx", 0)) + tree.keystr(tuple(rest))


def _aval(x: UOp) -> ShapedArray:
    return ShapedArray.of(Aval(x.shape, x.dtype))


def _origin(node: UOp) -> str:
    call = node.src[0] if node.op is ops.GETTUPLE else node
    loc = choose_location(node.locs)
    if call.op is ops.CALL and policies.is_name_call(call):
        return f"named '{policies.name_of_call(call)}'" + \
            (f" from {format_location(loc)}" if loc else "")
    name = call.arg.name if node.op is ops.GETTUPLE else node.op.name.lower()
    return f"output of {name}" + (f" from {format_location(loc)}" if loc else "")


def print_saved_residuals(f: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Print the arrays that the forward pass of a function saves for its backward pass.

    Args:
        f: a function of pytrees of arrays.
        args: its arguments.
        kwargs: the same by name.

    >>> import fnx.numpy as jnp
    >>> print_saved_residuals(lambda x: (x * x).sum(), jnp.ones(3))
    float32[3] from the argument x
    """
    for aval, text in saved_residuals(f, *args, **kwargs):
        print(aval, text)
