"""Jaxprs and primitives, under the names of ``jax.extend.core``."""

from __future__ import annotations

from typing import Any

from fnx.core.array.abstract_values import Float0Aval, ShapedArray
from fnx.core.array.array import Array
from fnx.core.array.convert import SCALAR_DTYPES
from fnx.core.ir import dtypes
from fnx.core.support.errors import FnxError, JaxprTypeError
from fnx.jaxprs.check import check_jaxpr
from fnx.jaxprs.evaluate import jaxpr_as_fun
from fnx.jaxprs.primitive import Primitive
from fnx.jaxprs.syntax import (
    ClosedJaxpr,
    DebugInfo,
    DropVar,
    Effect,
    Jaxpr,
    JaxprEqn,
    Literal,
    Var,
    gensym,
    jaxprs_in_params,
    new_jaxpr_eqn,
    no_effects,
    subjaxprs,
)

__all__ = ["CallPrimitive", "ClosedJaxpr", "DebugInfo", "DropVar", "Effect", "Effects", "Jaxpr",
           "JaxprEqn", "JaxprTypeError", "Literal", "Primitive", "Var", "array_types",
           "check_jaxpr", "gensym", "jaxpr_as_fun", "jaxprs_in_params", "mapped_aval",
           "new_jaxpr_eqn", "no_effects", "primal_dtype_to_tangent_dtype", "subjaxprs",
           "unmapped_aval", "valid_jaxtype"]

Effects = frozenset[Effect]
array_types = frozenset({Array})


class CallPrimitive(Primitive):
    """A primitive that calls a function."""

    multiple_results = True
    call_primitive = True


def mapped_aval(size: int, axis: int | None, aval: Any) -> Any:
    """Return the type of an element of a batch.

    Args:
        size: the size of the batch.
        axis: its axis; None: all elements are equal.
        aval: the type of the batch.
    """
    return aval if axis is None else aval.update(shape=tuple(
        [n for i, n in enumerate(aval.shape) if i != axis]))


def unmapped_aval(size: int, axis: int | None, aval: Any, explicit_mesh_axis: Any = None) -> Any:
    """Return the type of a batch of elements.

    Args:
        size: the size of the batch.
        axis: its axis; None: all elements are equal.
        aval: the type of an element.
        explicit_mesh_axis: accepted for JAX's sake.
    """
    return aval if axis is None else aval.update(
        shape=(*aval.shape[:axis], size, *aval.shape[axis:]))


def primal_dtype_to_tangent_dtype(primal_dtype: Any) -> Any:
    """Return the dtype of tangents of a dtype: float0 for integers.

    Args:
        primal_dtype: a dtype.
    """
    t = dtypes.as_dtype(primal_dtype)
    return ShapedArray((), t.np).dtype if t.is_inexact else Float0Aval.dtype


def valid_jaxtype(x: Any) -> bool:
    """Return whether a value is an array or a number.

    Args:
        x: any value.
    """
    try:
        return isinstance(x, Array) or type(x) in SCALAR_DTYPES or \
            dtypes.as_dtype(x.dtype) is not None
    except (FnxError, AttributeError):
        return False
