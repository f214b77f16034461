"""Inert versions of internal JAX names that libraries use while they are imported.

A library can create its own primitive and give it rules; calling the primitive raises.

>>> p = Primitive("nonbatchable")
>>> p.multiple_results = True
>>> try:
...     p.bind(1.0)
... except NotImplementedError as error:
...     print(error.message)
the primitive 'nonbatchable' is defined by a library, and fnx has no primitives
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from fnx.core.support.errors import NotBuiltError

T = TypeVar("T")


class Primitive:
    """``jax.extend.core.Primitive``: can be created and given rules, but not called."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.multiple_results = False

    def bind(self, *args: Any, **params: Any) -> NoReturn:
        """Raise, as there are no primitives."""
        raise NotBuiltError(f"the primitive {self.name!r} is defined by a library, and fnx has no "
                            "primitives", hint="docs/differences.md lists the parts of libraries "
                                               "that are not supported")

    def def_impl(self, impl: T) -> T:
        """Accept an implementation and ignore it."""
        return impl

    def_abstract_eval = def_effectful_abstract_eval = def_impl

    def __repr__(self) -> str:
        return self.name


class HiPrimitive(Primitive):
    """``jax.experimental.hijax.HiPrimitive``: base of the primitives of flax."""


class HiType:
    """``jax.experimental.hijax.MutableHiType``: base of a type of flax."""


class EffectTypes:
    """``control_flow_allowed_effects``: a set to which libraries add types."""

    def add_type(self, effect: type) -> None:
        """Accept a type and ignore it."""


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
