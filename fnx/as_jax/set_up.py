"""What libraries do with JAX's inner names while they are imported: taken, and without effect.

A primitive of a library's own can be made and given rules; calling it raises by its name.

>>> p = Primitive("nonbatchable")
>>> p.multiple_results = True
>>> try:
...     p.bind(1.0)
... except NotImplementedError as error:
...     print(error.message)
the primitive 'nonbatchable' is a library's own, and fnx has no primitives
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from fnx.core.errors import NotBuiltError

T = TypeVar("T")


class Primitive:
    """``jax.extend.core.Primitive``: made and given rules, never called."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.multiple_results = False

    def bind(self, *args: Any, **params: Any) -> NoReturn:
        """Raises: there are no primitives."""
        raise NotBuiltError(f"the primitive {self.name!r} is a library's own, and fnx has no "
                            "primitives", hint="docs/differences.md says which parts of libraries "
                            "are out for that")

    def def_impl(self, impl: T) -> T:
        """Its meaning: kept nowhere."""
        return impl

    def_abstract_eval = def_effectful_abstract_eval = def_impl

    def __repr__(self) -> str:
        return self.name


class HiPrimitive(Primitive):
    """``jax.experimental.hijax.HiPrimitive``: the base of flax's own."""


class HiType:
    """``jax.experimental.hijax.MutableHiType``: the base of a type of flax's own."""


class EffectTypes:
    """``control_flow_allowed_effects``: a set that types are added to."""

    def add_type(self, effect: type) -> None:
        """Kept nowhere."""


def ignored(*args: Any, **kwargs: Any) -> None:
    """What only tells JAX something."""


def itself(x: T, *args: Any, **kwargs: Any) -> T:
    """What is given, as it is."""
    return x


def no(*args: Any, **kwargs: Any) -> bool:
    """Whether something is of a kind that fnx does not have."""
    return False


def api_boundary(f: Callable[..., Any] | None = None, **kwargs: Any) -> Any:
    """A decorator that marks where the frames of a library begin: fnx leaves out its own only."""
    return itself if f is None else f
