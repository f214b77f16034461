"""Functions under ``fnx.call`` with custom rules, and ``custom_vmap``.

A vmap rule is not a FUNCTION of the node: its graph depends on the batch size and on which
arguments are batched. So the node has a VmapRule, which is traced when the node is batched
(batching/bodies.py). At the call, the rule is traced for batch size 2 and for the sizes of
open axes: this finds its captures, which become operands of the node, and its effects.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

from fnx.core import build
from fnx.core.array import scope, tree
from fnx.core.array.array import Array
from fnx.core.array.aval import Aval
from fnx.core.array.effects import traced_again
from fnx.core.array.trace import Traced
from fnx.core.cache import Cache
from fnx.core.errors import ArgumentError, BatchSizeError, RuleError
from fnx.core.uop import UOp
from fnx.transforms.custom.jvp import jvp_rule
from fnx.transforms.custom.results import Told, pair_of, results_of
from fnx.transforms.custom.rules import (
    CustomFunction,
    Made,
    Signature,
    TracedRule,
    closed,
    traced_rule,
    with_known,
)
from fnx.transforms.custom.vjp import vjp_rules

P = ParamSpec("P")
R = TypeVar("R")
MAX_BATCHES = 16  # cached per signature


class Ruled(CustomFunction[P, R]):
    """A call boundary or a user-written kernel with custom rules."""

    kind = "call"

    def __init__(self, fun: Callable[..., Any], jvp: Callable[..., Any] | None = None,
                 vjp: Any = None, vmap: Callable[..., Any] | None = None, stops: bool = False,
                 linear: int = 0) -> None:
        super().__init__(fun)
        self._options = {"jvp": jvp, "vjp": vjp, "vmap": vmap, "stops": stops,
                         "linear": linear}
        self.stops_captures, self.linear = stops, linear
        self._name = getattr(fun, "_name", self._name)
        self._jvp, self._vmap = jvp, vmap
        self._vjp = None if vjp is None else self._pair(vjp)
        given = [jvp, *(self._vjp or ()), vmap]
        self._with(*[rule for rule in given if rule is not None])

    def _pair(self, vjp: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """Return (fwd, bwd), also for a vjp that is a function of (arguments, result,
        cotangent)."""
        if isinstance(vjp, tuple | list) and len(vjp) == 2 and all(map(callable, vjp)):
            return vjp[0], vjp[1]
        if not callable(vjp):
            raise ArgumentError(f"call of {self._name}: expected vjp(args, out, ct), or a pair "
                                f"(fwd, bwd), got {type(vjp).__name__}")

        again: Callable[..., Any] = self

        def fwd(*args: Any) -> Any:
            out = again(*args)
            return out, (args, out)

        @functools.wraps(vjp)
        def bwd(saved: Any, ct: Any) -> Any:
            return vjp(*saved, ct)
        return fwd, bwd

    def rules(self, signature: Signature, made: Made) -> list[TracedRule]:
        found = [] if self._jvp is None else [jvp_rule(self, self._jvp, signature, made)]
        return found if self._vjp is None else [
            *found, *vjp_rules(self, *self._vjp, signature, made)]

    def lanes(self, signature: Signature, made: Made) -> VmapRule | None:
        return None if self._vmap is None else VmapRule(self._vmap, self._name, signature, made)


class custom_vmap(CustomFunction[P, R]):
    """A function with a custom rule for a batch of arguments.

    Args:
        fun: the function. Also usable as a decorator.

    Returns:
        A function like ``fun``; define its rule with ``def_vmap``. Derivatives are those of
        ``fun``.

    Raises:
        RuleError: it is called without a rule, or the rule returns values of the wrong type.

    >>> import fnx
    >>> import fnx.numpy as jnp
    >>> from fnx.custom_batching import custom_vmap
    >>> @custom_vmap
    ... def f(x):
    ...     return jnp.sin(x)
    >>> @f.def_vmap
    ... def rule(axis_size, in_batched, xs):
    ...     return jnp.cos(xs), in_batched[0]
    >>> fnx.vmap(f)(jnp.zeros(2))
    Array([1., 1.], dtype=float32)
    """

    kind = "custom_vmap"
    missing = "call def_vmap(rule) on it before it is used"

    def __init__(self, fun: Callable[..., Any]) -> None:
        super().__init__(fun)
        self._options = {}

    def def_vmap(self, vmap_rule: Callable[..., Any]) -> Callable[..., Any]:
        """Define the rule.

        Args:
            vmap_rule: ``vmap_rule(axis_size, in_batched, *args)``: the arguments marked in
                ``in_batched`` (a list of bools, or of trees of them) have a batch axis in front;
                returns (result, out_batched).

        Returns:
            ``vmap_rule`` itself, so that this is a decorator.
        """
        self._with(vmap_rule)
        return vmap_rule

    def rules(self, signature: Signature, made: Made) -> list[TracedRule]:
        return []

    def lanes(self, signature: Signature, made: Made) -> VmapRule | None:
        return VmapRule(self._given[0], self._name, signature, made)


class VmapRule:
    """A user-defined vmap rule, for arguments of certain types.

    Attributes:
        captures: the captures of the rule, the function and its other rules.
        effects: whether any of them has effects.
        handles: the handles of the callbacks in them.
    """

    def __init__(self, rule: Callable[..., Any], name: str, signature: Signature, made: Made
                 ) -> None:
        self.rule, self.name, self.signature = rule, name, signature
        self.out_tree, self.outs = made.out_tree, made.outs
        self.captures, self.effects = made.captures, False
        self.handles: dict[Any, list[Any]] = {}
        self._made: Cache[Any, tuple[UOp, list[bool]]] = Cache("batches of custom rules",
                                                               MAX_BATCHES)

    def __repr__(self) -> str:
        return f"VmapRule({self.name})"

    def tried(self) -> list[Traced]:
        """Trace the rule for batch size 2 with all arguments batched, and for the sizes of open
        axes, to find its captures and effects. A failure is ignored here; it is raised when the
        rule is used."""
        found: list[Traced] = []
        for size in dict.fromkeys([2, *[axis.size for axis in scope.axes()]]):
            with contextlib.suppress(Exception):
                found.append(self._traced(size, (True,) * len(self.signature.avals)))
        return found

    def function(self, size: int, batched: Sequence[bool]) -> tuple[UOp, list[bool]]:
        """Return the FUNCTION of a batch, all of whose results have a batch axis; and which of
        them, except a token, differ between batch elements."""
        n = len(self.captures)
        key = size, tuple(batched[n + self.effects:])
        made, differ = self._made.find(key, lambda: self._closed(*key))
        if any(batched[:n]):
            read = build.params(made)
            if any(b and i in read for i, b in enumerate(batched[:n])):
                told = Told(self.rule, "vmap", self.name)
                raise RuleError(f"expected {told.text} to close over what is the same for all "
                                "lanes, got an array that each lane has its own of",
                                hint="pass it as an argument")
        return made, differ

    def _closed(self, size: int, batched: tuple[bool, ...]) -> tuple[UOp, list[bool]]:
        differ: list[bool] = []
        traced = traced_again(
            self.handles, lambda: with_known(self._traced(size, batched, differ), self.captures),
            kept=True)
        fn, more, _ = closed(traced, self.captures, self.effects)
        if more or traced.tokens and not self.effects:
            told = Told(self.rule, "vmap", self.name)
            what = "an array" if more else "an effect"
            raise BatchSizeError(f"expected {told.text} to close over the same for all batches, "
                                 f"got {what} more for {size} lanes of {sum(batched)} arguments",
                                 hint="pass arrays as arguments, and print in all cases or in none")
        return fn, differ

    def _traced(self, size: int, batched: tuple[bool, ...], differ: list[bool] | None = None
                ) -> Traced:
        told, primals = Told(self.rule, "vmap", self.name), self.signature.primals
        avals = [Aval((size, *a.shape) if b else a.shape, a.dtype, a.weak and not b)
                 for a, b in zip(self.signature.avals, batched)]

        def run(given: Sequence[Any]) -> list[Any]:
            args, flags = primals.unflatten(given), primals.unflatten(batched)
            out, which = pair_of(told.call(size, list(flags), *args), told,
                                 "(result, out_batched)")
            flat = self._flags(which, told)
            wide = [Aval((size, *a.shape) if b else a.shape, a.dtype)
                    for a, b in zip(self.outs, flat)]
            found = results_of(out, self.out_tree, wide, told)
            if differ is not None:
                differ[:] = flat
            return [x if b else Array(build.expand(x._node, (size, *x._shape)))
                    for x, b in zip(found, flat)]
        return traced_rule(run, [avals], "the vmap", f"{self.name}.vmap")

    def _flags(self, which: Any, told: Told) -> list[bool]:
        """Return for each result whether it has a batch axis; one bool applies to all below it."""
        parts = [which] * self.out_tree.num_leaves if isinstance(which, bool) else \
            tree.leaves(which)
        if len(parts) != self.out_tree.num_leaves or not all(type(b) is bool for b in parts):
            raise told.error(f"out_batched like the result, {self.out_tree}", f"{which!r}",
                             "say of each array of the result whether it has a batch axis")
        return parts
