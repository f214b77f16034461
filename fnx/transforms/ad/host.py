"""HOST in both modes: a Python callback has no derivative.

A callback whose result does not contribute to the derivative is kept: it runs once, with the values
of the forward pass, and never in the backward pass.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import NoReturn

from fnx.core import build
from fnx.core.derived import Steps
from fnx.core.errors import GradError
from fnx.core.uop import UOp
from fnx.transforms.ad.rules import Cotangent
from fnx.transforms.ad.structural import Linearized, Pushes, Structural


class HostRule(Structural):
    """HOST: raises if a tangent or a cotangent would pass through it."""

    def operands(self, node: UOp) -> Sequence[int]:
        return range(1 + node.arg.effect, len(node.src))

    def push_all(self, node: UOp, tangents: Pushes, guarded: Sequence[int], wild: Container[UOp]
                 ) -> Steps[tuple[Sequence[UOp], Pushes]]:
        outs = build.results(node)
        if any(t is not None for t in tangents) and any(x.dtype.is_float for x in outs):
            _refuse(node)
        yield from ()
        return outs, [None] * len(outs)

    def forms(self, node: UOp, got: Mapping[int, Cotangent], active: Container[UOp],
              guarded: Container[UOp], wild: Container[UOp]) -> Steps[Linearized]:
        _refuse(node)


def _refuse(node: UOp) -> NoReturn:
    raise GradError(f"expected a derivative for {node.arg.name}, it has none",
                    hint="call it in a function with custom_jvp or custom_vjp, or give it "
                         "fnx.lax.stop_gradient of its arguments", site=node.site)
