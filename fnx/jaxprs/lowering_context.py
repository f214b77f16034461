"""What a lowering rule of a user's primitive gets first: a context. It lowers to fnx's graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fnx.core.support.errors import NotBuiltError

if TYPE_CHECKING:
    from fnx.jaxprs.primitive import Primitive


class ModuleContext:
    """The module of a lowering: fnx has a graph instead.

    Attributes:
        platforms: the platforms that it lowers for.
    """

    platforms = ("cpu",)

    def add_keepalive(self, value: Any) -> None:
        """Do nothing: a graph holds the functions that it calls."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotBuiltError(f"module_context.{name} of a lowering: fnx lowers to its own graph, "
                            "not to MLIR", hint="write the rule with mlir.lower_fun(f)")


class LoweringRuleContext:
    """The context of a lowering rule.

    Args:
        primitive: the primitive that is lowered.
        avals_in: types of the operands.
        avals_out: types of the results.
    """

    module_context = ModuleContext()
    platforms = ("cpu",)

    def __init__(self, primitive: Primitive | None, avals_in: Sequence[Any],
                 avals_out: Sequence[Any]) -> None:
        self.primitive, self.avals_in, self.avals_out = primitive, avals_in, avals_out

    def replace(self, **changes: Any) -> LoweringRuleContext:
        """Return a copy with some fields changed."""
        fields = {"primitive": self.primitive, "avals_in": self.avals_in,
                  "avals_out": self.avals_out}
        return LoweringRuleContext(**{k: v for k, v in {**fields, **changes}.items()
                                      if k in fields})

    __getattr__ = ModuleContext.__getattr__


def lower_fun(fun: Callable[..., Any], multiple_results: bool = True) -> Callable[..., Any]:
    """Make a lowering rule from a function of arrays.

    Args:
        fun: takes the operands, and params by name.
        multiple_results: whether it returns a list of arrays.
    """
    def rule(ctx: LoweringRuleContext, *args: Any, **params: Any) -> Any:
        out = fun(*args, **params)
        return list(out) if multiple_results else [out]
    rule.__wrapped__ = fun  # type: ignore[attr-defined]
    return rule
