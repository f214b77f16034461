"""Lowering rules of primitives, under the names of ``jax.interpreters.mlir``.

fnx lowers to its own graph: a rule is a function of a context, arrays and params.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx.core.array.api_boundary import asarray
from fnx.core.array.aval import ShapeDtypeStruct
from fnx.core.support.errors import ArgumentError
from fnx.jaxprs.lowering_context import LoweringRuleContext, ModuleContext, lower_fun
from fnx.jaxprs.primitive import Primitive
from fnx.jaxprs.registries import lowerings
from fnx.transforms.host_callbacks import io_callback, pure_callback

__all__ = ["LoweringRuleContext", "ModuleContext", "emit_python_callback", "ir_constant",
           "ir_constants", "lower_fun", "register_lowering"]


def register_lowering(prim: Primitive, rule: Callable[..., Any], platform: str | None = None,
                      inline: bool = True, cacheable: bool = True) -> None:
    """Define how a primitive is computed under ``jit``.

    Args:
        prim: the primitive.
        rule: ``rule(ctx, *arrays, **params)`` returns a list of arrays; make it with
            ``lower_fun``.
        platform: the platform that it is for; None: all that have no rule of their own. fnx uses
            those for "cpu".
        inline: accepted for JAX's sake.
        cacheable: likewise.
    """
    if not callable(rule):
        raise ArgumentError(f"register_lowering of {prim}: expected a function, got "
                            f"{type(rule).__name__}")
    lowerings.setdefault(prim, {})[platform] = rule


def ir_constant(val: Any, **options: Any) -> Any:
    """Return a value as an operand of ops in a lowering rule.

    Args:
        val: an array or a number.
        options: accepted for JAX's sake.
    """
    return asarray(val)


def ir_constants(val: Any, **options: Any) -> tuple[Any, ...]:
    """Return a value as operands of ops in a lowering rule.

    Args:
        val: an array or a number.
        options: accepted for JAX's sake.
    """
    return (asarray(val),)


def emit_python_callback(ctx: LoweringRuleContext, callback: Callable[..., Any], token: Any,
                         operands: Sequence[Any], operand_avals: Sequence[Any],
                         result_avals: Sequence[Any], *, has_side_effect: bool,
                         returns_token: bool = True, partitioned: bool = False,
                         sharding: Any = None) -> tuple[list[Any], Any, Any]:
    """Call a Python function in a lowering rule.

    Args:
        ctx: the context of the rule.
        callback: takes NumPy data, returns a sequence of it.
        token: accepted for JAX's sake: effects are ordered.
        operands: its arguments.
        operand_avals: their types.
        result_avals: the types of its results.
        has_side_effect: whether it is called once per call, in order, even if nothing reads it.
        returns_token: accepted for JAX's sake.
        partitioned: likewise.
        sharding: likewise.

    Returns:
        Its results, the token, and None.
    """
    def call(*args: Any) -> list[Any]:
        return list(callback(*map(np.asarray, args)))
    structs = [ShapeDtypeStruct(a.shape, a.dtype) for a in result_avals]
    run = io_callback if has_side_effect else pure_callback
    return list(run(call, structs, *operands)), token, None
