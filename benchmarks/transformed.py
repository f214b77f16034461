"""Whole programs under a transform, for whole_programs.py: their gradients, tangents and batches.

    grad   of the sum of the sines of all float results, by all float operands
    jvp    the tangents of all float results, along all float operands
    vmap   over two copies of all operands

Users write programs and then take derivatives; what a compiler does well with a program may not
hold for its gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

KINDS = ("grad", "jvp", "vmap")


class Transformed:
    """A program (programs/registry.py) under a transform."""

    def __init__(self, program: Any, kind: str) -> None:
        self.name, self.theme, self.program, self.kind = program.name, program.theme, program, kind

    def build(self, ns: Any, small: bool = False) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Return a jitted function and its arguments.

        Raises:
            LookupError: the program has no float operands to differentiate by.
        """
        f, args = self.program.build(ns, small)
        operands, tree = ns.jax.tree_util.tree_flatten(args)

        def call(values: list[Any]) -> list[Any]:
            results = f(*ns.jax.tree_util.tree_unflatten(tree, values))
            return list(ns.jax.tree_util.tree_leaves(results))
        if self.kind == "vmap":
            batched = [ns.jnp.stack([ns.jnp.asarray(x)] * 2) for x in operands]
            return ns.jax.jit(ns.jax.vmap(call)), (batched,)
        varying = [i for i, x in enumerate(operands) if _is_float(x)]
        if not varying:
            raise LookupError(f"{self.name} has no float operands")

        def floats(values: list[Any]) -> list[Any]:
            replaced = dict(zip(varying, values))
            return [y for y in call([replaced.get(i, x) for i, x in enumerate(operands)])
                    if _is_float(y)]

        def loss(values: list[Any]) -> Any:
            return sum([ns.jnp.sin(y.astype("float32")).sum() for y in floats(values)],
                       ns.jnp.float32(0))

        def tangents(values: list[Any]) -> Any:
            return ns.jax.jvp(floats, (values,), ([0.5 * x for x in values],))[1]
        derived = ns.jax.grad(loss) if self.kind == "grad" else tangents
        return ns.jax.jit(derived), ([ns.jnp.asarray(operands[i]) for i in varying],)


def _is_float(x: Any) -> bool:
    return str(getattr(x, "dtype", "")).startswith(("float", "bfloat"))
