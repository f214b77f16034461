"""A derivative rule whose file is loaded when its op is first met: most programs have no loop."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence

from fnx.core.cache import cached
from fnx.core.derived import Steps
from fnx.core.uop import UOp
from fnx.transforms.ad.rules import Cotangent
from fnx.transforms.ad.structural import Linearized, Pushes, Structural


class LoadedRule(Structural):
    """A rule that ``make`` creates when it is first used."""

    def __init__(self, make: Callable[[], Structural]) -> None:
        self._make = make

    @cached
    def _rule(self) -> Structural:
        return self._make()

    def bodies(self, node: UOp) -> Sequence[UOp]:
        return self._rule.bodies(node)

    def operands(self, node: UOp) -> Sequence[int]:
        return self._rule.operands(node)

    def depends(self, node: UOp) -> Steps[Sequence[frozenset[int]]]:
        return self._rule.depends(node)

    def push_all(self, node: UOp, tangents: Pushes, guarded: Sequence[int], wild: Container[UOp]
                 ) -> Steps[tuple[Sequence[UOp], Pushes]]:
        return self._rule.push_all(node, tangents, guarded, wild)

    def forms(self, node: UOp, got: Mapping[int, Cotangent], active: Container[UOp],
              guarded: Container[UOp], wild: Container[UOp]) -> Steps[Linearized]:
        return self._rule.forms(node, got, active, guarded, wild)
