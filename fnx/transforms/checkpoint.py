"""``checkpoint`` (rematerialization): the backward pass recomputes values of the forward pass.

    f(x) under checkpoint      CALL(FUNCTION, x) with a policy
    its backward pass          reads BARRIER(x, cotangents) and recomputes f's values from that

The policy says which values are saved nevertheless (autodiff/policies.py). The BARRIER prevents CSE
of the second computation with the first, and makes it wait for its cotangents; so the intermediate
values of f are computed twice, but their live ranges are short.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar, overload

from fnx.core.array import tree
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array
from fnx.core.array.call_validation import validate_call
from fnx.core.ir import build_calls, ops
from fnx.core.ir.op_bodies import replace_results
from fnx.core.ir.uop import UOp, toposort
from fnx.core.support.errors import ArgumentError
from fnx.core.tracing import trace
from fnx.core.tracing.state import Lift
from fnx.core.tracing.trace import ClosedFunction
from fnx.transforms.autodiff import policies
from fnx.transforms.autodiff.policies import Policy
from fnx.transforms.dispatch.signature import ArgFlattener, as_tuple
from fnx.transforms.dispatch.trace_cache import TraceCache
from fnx.transforms.transformed import Transformed, run_call

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


@overload
def checkpoint(fun: Callable[P, R], *, prevent_cse: bool | Sequence[bool] = True,
               policy: Policy | None = None, static_argnums: int | Sequence[int] = (),
               static_argnames: str | Sequence[str] = (), concrete: bool = False
               ) -> Transformed[P, R]: ...


@overload
def checkpoint(fun: None = None, *, prevent_cse: bool | Sequence[bool] = True,
               policy: Policy | None = None, static_argnums: int | Sequence[int] = (),
               static_argnames: str | Sequence[str] = (), concrete: bool = False
               ) -> Callable[[Callable[P, R]], Transformed[P, R]]: ...


@validate_call
def checkpoint(fun: Callable[..., Any] | None = None, *,
               prevent_cse: bool | Sequence[bool] = True, policy: Policy | None = None,
               static_argnums: int | Sequence[int] = (),
               static_argnames: str | Sequence[str] = (), concrete: bool = False) -> Any:
    """Make a function save less for its backward pass, which recomputes the rest.

    Args:
        fun: the function. Omit it to use ``checkpoint`` as a decorator.
        prevent_cse: whether to prevent CSE of the recomputation with the forward pass. Without
            it the two may be merged again; inside a loop's body they never are.
        policy: what is saved, one of ``fnx.checkpoint_policies``; None saves the arguments only.
        static_argnums: positions of arguments that are static values of the trace (hashable).
        static_argnames: the same by name.
        concrete: not supported: functions are traced without values here.

    Returns:
        A function like ``fun``.

    Raises:
        ArgumentError: ``policy`` is a user-defined function, or ``concrete`` is True.

    >>> import fnx
    >>> import fnx.numpy as jnp
    >>> layer = fnx.checkpoint(lambda x: jnp.sin(jnp.sin(x)))
    >>> fnx.grad(layer)(0.0)
    Array(1., dtype=float32, weak_type=True)
    """
    if concrete:
        raise ArgumentError("checkpoint: expected concrete=False, got True",
                            hint="list arguments that Python's `if` reads in static_argnums")
    if policy is not None and not isinstance(policy, Policy):
        raise ArgumentError("checkpoint: expected a policy of fnx.checkpoint_policies, got "
                            f"{policy!r}",
                            hint="to save chosen values, name them with "
                                 "fnx.ad_checkpoint.checkpoint_name and use save_only_these_names")
    options: dict[str, Any] = {
        "prevent_cse": prevent_cse, "policy": policy, "static_argnums": static_argnums,
        "static_argnames": static_argnames}
    return functools.partial(checkpoint, **options) if fun is None else \
        _Checkpointed(fun, **options)


class _Checkpointed(Transformed[P, R]):
    """A function as a CALL with a policy."""

    kind = "checkpoint"

    def __init__(self, f: Callable[..., Any], prevent_cse: bool | Sequence[bool],
                 policy: Policy | None, static_argnums: int | Sequence[int],
                 static_argnames: str | Sequence[str]) -> None:
        super().__init__(f, prevent_cse=prevent_cse, policy=policy,
                         static_argnums=static_argnums, static_argnames=static_argnames)
        self._arguments = ArgFlattener(f, self._name, as_tuple(static_argnums),
                                       as_tuple(static_argnames))
        prevents_cse = prevent_cse if isinstance(prevent_cse, bool) else any(prevent_cse)
        base_policy = Policy("nothing") if policy is None else policy
        self._policy = None if base_policy.kind == "everything" else \
            Policy(base_policy.kind, base_policy.names, prevents_cse, base_policy.others)
        self._traces: TraceCache[ClosedFunction] = TraceCache(lambda: f)

    def apply(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        arrays, key = self._arguments.key(args, kwargs)

        def make() -> tuple[ClosedFunction, list[UOp]]:
            closed = trace.trace(self._arguments.of_dynamic(args, kwargs), key.avals, key.in_tree,
                                 transform="checkpoint", name=self._name).close()
            return ClosedFunction(_inline(closed.function), closed.captures, closed.out_tree,
                                  closed.outs, closed.effects), closed.captures

        return self._traces.find(key, make).value.call(arrays, self._policy)


    def with_aux(self, lifted: Lift) -> Callable[..., tuple[Any, Any]]:
        g = functools.wraps(self._f)(lifted.closed(self._f))
        checkpointed: _Checkpointed[..., Any] = _Checkpointed(g, **self._options)
        return lambda *args, **kwargs: run_call(checkpointed, args, kwargs)


def _inline(fn: UOp) -> UOp:
    """Inline the functions that a FUNCTION calls, so that the policy also applies to their
    values. Calls that have a policy or name a value stay."""
    inlined: dict[UOp, UOp] = {}
    for body in toposort([fn], into_functions=True):
        if body.op is ops.FUNCTION:
            inlined[body] = _inline_body(body, inlined)
    return inlined[fn]


def _inline_body(body: UOp, inlined: dict[UOp, UOp]) -> UOp:
    def inline(node: UOp, src: tuple[UOp, ...]) -> list[UOp] | None:
        if node.op is ops.CALL and src[0].op is ops.FUNCTION and node.arg.policy is None \
                and not policies.is_name_call(node):
            return trace.inline_function(inlined[src[0]], src[1:])
        return None
    return body.with_operands(tuple(replace_results(body.src, inline)))


@public_api
def checkpoint_name(x: T, name: str) -> T:
    """Return x, with a name that policies of ``checkpoint`` can refer to.

    Args:
        x: a pytree of arrays.
        name: the name for ``save_only_these_names`` and others.

    Returns:
        x.

    Raises:
        ArgumentError: the name is not a str.

    >>> from fnx.ad_checkpoint import checkpoint_name
    >>> checkpoint_name(2.0, "hidden")
    Array(2., dtype=float32, weak_type=True)
    """
    if not isinstance(name, str):
        raise ArgumentError(f"expected a name, got {type(name).__name__}")
    leaves, structure = tree.flatten(x)
    out: T = structure.unflatten([_mark(asarray(leaf), policies.label(name)) for leaf in leaves])
    return out


def _mark(x: Array, label: str) -> Array:
    return Array(build_calls.label(x._node, label), x.weak)


remat = checkpoint
