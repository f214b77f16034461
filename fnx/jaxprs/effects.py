"""Effects of primitives of the user's: which there are, and where they are allowed.

A primitive with ``def_effectful_abstract_eval`` is ordered among the effects of a program, so it is
no dead code. In loops and branches JAX allows effects of registered types only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fnx.core.support.errors import NotBuiltError

_CONTROL_FLOW = {"while": "while", "scan": "scan", "cond": "cond"}


class EffectTypes:
    """A set of types of effects, as ``control_flow_allowed_effects`` is.

    >>> types = EffectTypes()
    >>> types.add_type(int)
    >>> types.contains(3), types.filter_in([1, "a"])
    (True, [1])
    """

    def __init__(self) -> None:
        self._types: set[type] = set()

    def add_type(self, effect: type) -> None:
        """Add a type."""
        self._types.add(effect)

    def contains(self, effect: Any) -> bool:
        """Return whether an effect is of one of the types."""
        kind = effect if isinstance(effect, type) else type(effect)
        return any(issubclass(kind, t) for t in self._types)

    def filter_in(self, effects: Iterable[Any]) -> list[Any]:
        """Return the effects of these types."""
        return [e for e in effects if self.contains(e)]

    def filter_not_in(self, effects: Iterable[Any]) -> list[Any]:
        """Return the effects of other types."""
        return [e for e in effects if not self.contains(e)]


control_flow_allowed_effects = EffectTypes()


def effects_of_primitive(primitive: Any, avals: Sequence[Any], params: Mapping[str, Any]
                         ) -> set[Any]:
    """Return the effects of a primitive of the user's on operands of these types."""
    rule = vars(primitive).get("effectful_abstract_eval")
    return set() if rule is None else set(rule(*avals, **params)[1])


def check_control_flow(name: str, effects: Iterable[Any]) -> None:
    """Raise if a loop or a branch may not have these effects of the user's.

    Raises:
        NotBuiltError: the type of one is not registered.
    """
    other = control_flow_allowed_effects.filter_not_in(effects)
    if other and name in _CONTROL_FLOW:
        raise NotBuiltError(f"Effects not supported in `{name}`: {other}",
                            hint="register their types: effects.control_flow_allowed_effects."
                                 "add_type(T)")
