"""Whole programs by name: a builder, its sizes, and small sizes for a test of values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Builder = Callable[..., tuple[Callable[..., Any], tuple[Any, ...]]]


@dataclass(frozen=True)
class Program:
    """A program as a user has it.

    Attributes:
        name: of the function that builds it, and of its sizes if it has several.
        theme: the file that it is in.
        make: takes a namespace with ``jax``, ``jnp``, ``lax`` and ``random``, and sizes; returns
            a function and its arguments.
        sizes: of this program, if they are not the defaults of ``make``.
        small: sizes at which it runs in milliseconds.
    """

    name: str
    theme: str
    make: Builder
    sizes: Mapping[str, Any] = field(default_factory=dict)
    small: Mapping[str, Any] = field(default_factory=dict)

    def build(self, ns: Any, small: bool = False) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.make(ns, **(dict(self.sizes) | (dict(self.small) if small else {})))


PROGRAMS: dict[str, Program] = {}


def program(variants: Mapping[str, Mapping[str, Any]] | None = None, **small: Any
            ) -> Callable[[Builder], Builder]:
    """Register the function that builds a program.

    Args:
        variants: a name and sizes of each, if there are several.
        small: sizes for a test of values.
    """
    def register(make: Builder) -> Builder:
        theme = make.__module__.rpartition(".")[2]
        for variant, sizes in (variants or {"": {}}).items():
            name = f"{make.__name__} {variant}".strip()
            if name in PROGRAMS:
                raise ValueError(f"two programs are called {name!r}")
            PROGRAMS[name] = Program(name, theme, make, sizes, small)
        return make
    return register


class Draws:
    """Random arrays, the same for each target."""

    def __init__(self, ns: Any, seed: int = 0) -> None:
        self.asarray, self.numbers = ns.jnp.asarray, np.random.default_rng(seed)

    def normal(self, *shape: int, scale: float = 1.0) -> Any:
        return self.asarray((self.numbers.standard_normal(shape) * scale).astype("float32"))

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Any:
        return self.asarray(self.numbers.uniform(low, high, shape).astype("float32"))

    def integers(self, high: int, *shape: int, low: int = 0, dtype: str = "int32") -> Any:
        return self.asarray(self.numbers.integers(low, high, shape).astype(dtype))

    def weights(self, *sizes: int) -> list[tuple[Any, Any]]:
        """Weights of layers from each size to the next: a matrix and zeros."""
        return [(self.normal(i, o, scale=i ** -0.5), self.asarray(np.zeros(o, "float32")))
                for i, o in zip(sizes, sizes[1:])]
