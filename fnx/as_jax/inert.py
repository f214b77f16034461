"""Inert versions of internal JAX names that libraries use while they are imported.

>>> api_boundary(identity)(3)
3
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from fnx.jaxprs.primitive import Primitive
from fnx.sharding import Sharding, SingleDeviceSharding

T = TypeVar("T")


class HiPrimitive(Primitive):
    """``jax.experimental.hijax.HiPrimitive``: base of the primitives of flax."""


class Format(SingleDeviceSharding):
    """``jax.experimental.layout.Format``: a sharding and a layout, which fnx chooses itself."""

    def __init__(self, layout: Any = None, sharding: Any = None) -> None:
        super().__init__(next(iter((sharding or Sharding()).device_set)))
        self.layout, self.sharding = layout, sharding


class HiType:
    """``jax.experimental.hijax.MutableHiType``: base of a type of flax."""


class EffectTypes:
    """``control_flow_allowed_effects`` and its kin: a set of types of effects.

    >>> EffectTypes().contains(Primitive("p"))
    False
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


def ignore(*args: Any, **kwargs: Any) -> None:
    """Ignore all arguments: a call that only informs JAX."""


def identity(x: T, *args: Any, **kwargs: Any) -> T:
    """Return the first argument unchanged."""
    return x


def always_false(*args: Any, **kwargs: Any) -> bool:
    """Return False: a test for something that does not exist in fnx."""
    return False


def api_boundary(f: Callable[..., Any] | None = None, **kwargs: Any) -> Any:
    """Return the function unchanged: fnx filters only its own stack frames."""
    return identity if f is None else f
