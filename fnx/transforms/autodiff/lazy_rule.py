"""A derivative rule whose file is loaded when its op is first met: most programs have no loop."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence

from fnx.core.ir.cache import cached_property
from fnx.core.ir.derivations import Derivation
from fnx.core.ir.uop import UOp
from fnx.transforms.autodiff.higher_order import HigherOrderRule, Linearized, MaskedTangents
from fnx.transforms.autodiff.rules import Cotangent


class LazyRule(HigherOrderRule):
    """A rule that ``make`` creates when it is first used."""

    def __init__(self, make: Callable[[], HigherOrderRule]) -> None:
        self._make = make

    @cached_property
    def _rule(self) -> HigherOrderRule:
        return self._make()

    def depends(self, node: UOp) -> Derivation[Sequence[frozenset[int]]]:
        return self._rule.depends(node)

    def jvp_all(self, node: UOp, tangents: MaskedTangents, needs_mask: Sequence[int],
                nonfinite: Container[UOp]
                ) -> Derivation[tuple[Sequence[UOp], MaskedTangents]]:
        return self._rule.jvp_all(node, tangents, needs_mask, nonfinite)

    def vjp_forms(self, node: UOp, out_cts: Mapping[int, Cotangent], active: Container[UOp],
                  needs_mask: Container[UOp], nonfinite: Container[UOp]) -> Derivation[Linearized]:
        return self._rule.vjp_forms(node, out_cts, active, needs_mask, nonfinite)
