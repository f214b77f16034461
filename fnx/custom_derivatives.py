"""Functions with custom derivatives, under the names of ``jax.custom_derivatives``."""

from typing import TYPE_CHECKING

from fnx.core.support.errors import lazy_module
from fnx.transforms.abstract_eval import closure_convert
from fnx.transforms.custom.check_results import SymbolicZero, zero_from_primal
from fnx.transforms.custom.gradient import custom_gradient
from fnx.transforms.custom.jvp import custom_jvp
from fnx.transforms.custom.linear import linear_call
from fnx.transforms.custom.vjp import (
    CustomVJPPrimal,
    custom_vjp,
    custom_vjp_primal_tree_values,
)

_PRIMITIVES = {"custom_jvp_call_p": "fnx.lax.primitives", "custom_vjp_call_p": "fnx.lax.primitives"}
__all__ = ["CustomVJPPrimal", "SymbolicZero", "closure_convert", "custom_gradient", "custom_jvp",
           "custom_vjp", "custom_vjp_primal_tree_values", "linear_call", "zero_from_primal",
           *_PRIMITIVES]

if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__, modules=_PRIMITIVES)
