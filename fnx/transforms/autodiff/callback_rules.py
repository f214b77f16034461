"""CALLBACK in both modes: a Python callback has no derivative.

A callback whose result does not contribute to the derivative is kept: it runs once, with the values
of the forward pass, and never in the backward pass.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import NoReturn

from fnx.core.ir import build
from fnx.core.ir.derivations import Derivation
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import GradError
from fnx.transforms.autodiff.higher_order import HigherOrderRule, Linearized, MaskedTangents
from fnx.transforms.autodiff.rules import Cotangent


class CallbackRule(HigherOrderRule):
    """CALLBACK: raises if a tangent or a cotangent would pass through it."""

    def operands(self, node: UOp) -> Sequence[int]:
        return range(1 + node.arg.effect, len(node.src))

    def jvp_all(self, node: UOp, tangents: MaskedTangents, needs_mask: Sequence[int],
                nonfinite: Container[UOp]
                ) -> Derivation[tuple[Sequence[UOp], MaskedTangents]]:
        outs = build.results(node)
        if any(t is not None for t in tangents) and any(x.dtype.is_inexact for x in outs):
            _raise_no_derivative(node)
        yield from ()
        return outs, [None] * len(outs)

    def vjp_forms(self, node: UOp, out_cts: Mapping[int, Cotangent], active: Container[UOp],
                  needs_mask: Container[UOp], nonfinite: Container[UOp]) -> Derivation[Linearized]:
        _raise_no_derivative(node)


def _raise_no_derivative(node: UOp) -> NoReturn:
    raise GradError(f"expected a derivative for {node.arg.name}, it has none",
                    hint="wrap it in a function with custom_jvp or custom_vjp, or pass it "
                         "fnx.lax.stop_gradient of its arguments", loc=node.loc)
