"""Functions under ``fnx.call`` with custom rules, and ``custom_vmap``.

A vmap rule is not a FUNCTION of the node: its graph depends on the batch size and on which
arguments are batched. So the node has a VmapRule, which is traced when the node is batched
(batching/higher_order.py). At the call, the rule is traced for batch size 2 and for the sizes of
open axes: this finds its captures, which become operands of the node, and its effects.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

from fnx.core.array import tree
from fnx.core.array.array import Array
from fnx.core.array.aval import Aval
from fnx.core.ir import build
from fnx.core.ir.cache import Cache
from fnx.core.ir.uop import UOp
from fnx.core.scope import scope
from fnx.core.support.errors import ArgumentError, BatchSizeError, RuleError
from fnx.core.tracing.host_callbacks import with_reused_handles
from fnx.core.tracing.trace import TracedFunction
from fnx.transforms.custom.check_results import RuleInfo, check_outs, check_pair
from fnx.transforms.custom.custom_function import CustomFunction
from fnx.transforms.custom.jvp import jvp_rule
from fnx.transforms.custom.traced_custom import (
    Signature,
    TracedCustom,
    TracedRule,
    close_over,
    dedup_arrays,
    traced_rule,
)
from fnx.transforms.custom.vjp import vjp_rules

P = ParamSpec("P")
R = TypeVar("R")
MAX_BATCHES = 16  # cached per signature


class CallWithRules(CustomFunction[P, R]):
    """A call boundary or a user-written kernel with custom rules."""

    kind = "call"

    def __init__(self, fun: Callable[..., Any], jvp: Callable[..., Any] | None = None,
                 vjp: Any = None, vmap: Callable[..., Any] | None = None, stops: bool = False,
                 linear: int = 0) -> None:
        super().__init__(fun)
        self._options = {"jvp": jvp, "vjp": vjp, "vmap": vmap, "stops": stops,
                         "linear": linear}
        self.stop_captures, self.linear = stops, linear
        self._name = getattr(fun, "_name", self._name)
        self._jvp, self._vmap = jvp, vmap
        self._vjp = None if vjp is None else self._fwd_bwd(vjp)
        given_rules = [jvp, *(self._vjp or ()), vmap]
        self._set_rules(*[rule for rule in given_rules if rule is not None])

    def _fwd_bwd(self, vjp: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """Return (fwd, bwd), also for a vjp that is a function of (arguments, result,
        cotangent)."""
        if isinstance(vjp, tuple | list) and len(vjp) == 2 and all(map(callable, vjp)):
            return vjp[0], vjp[1]
        if not callable(vjp):
            raise ArgumentError(f"call of {self._name}: expected vjp(args, out, ct), or a pair "
                                f"(fwd, bwd), got {type(vjp).__name__}")

        function: Callable[..., Any] = self

        def fwd(*args: Any) -> Any:
            out = function(*args)
            return out, (args, out)

        @functools.wraps(vjp)
        def bwd(saved: Any, ct: Any) -> Any:
            return vjp(*saved, ct)
        return fwd, bwd

    def rules(self, signature: Signature, custom: TracedCustom) -> list[TracedRule]:
        jvp_rules = [] if self._jvp is None else [jvp_rule(self, self._jvp, signature, custom)]
        return jvp_rules if self._vjp is None else [
            *jvp_rules, *vjp_rules(self, *self._vjp, signature, custom)]

    def vmap_rule(self, signature: Signature, custom: TracedCustom) -> VmapRule | None:
        return None if self._vmap is None else VmapRule(self._vmap, self._name, signature, custom)


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
        self._set_rules(vmap_rule)
        return vmap_rule

    def rules(self, signature: Signature, custom: TracedCustom) -> list[TracedRule]:
        return []

    def vmap_rule(self, signature: Signature, custom: TracedCustom) -> VmapRule | None:
        return VmapRule(self._user_rules[0], self._name, signature, custom)


class VmapRule:
    """A user-defined vmap rule, for arguments of certain types.

    Attributes:
        captures: the captures of the rule, the function and its other rules.
        effects: whether any of them has effects.
        handles: the handles of the callbacks in them.
    """

    def __init__(self, rule: Callable[..., Any], name: str, signature: Signature,
                 custom: TracedCustom
                 ) -> None:
        self.rule, self.name, self.signature = rule, name, signature
        self.out_tree, self.outs = custom.out_tree, custom.outs
        self.captures, self.effects = custom.captures, False
        self.handles: dict[Any, list[Any]] = {}
        self._functions: Cache[Any, tuple[UOp, list[bool]]] = Cache("batches of custom rules",
                                                                    MAX_BATCHES)

    def __repr__(self) -> str:
        return f"VmapRule({self.name})"

    def tried(self) -> list[TracedFunction]:
        """Trace the rule for batch size 2 with all arguments batched, and for the sizes of open
        axes, to find its captures and effects. A failure is ignored here; it is raised when the
        rule is used."""
        traces: list[TracedFunction] = []
        for size in dict.fromkeys([2, *[axis.size for axis in scope.open_axes()]]):
            with contextlib.suppress(Exception):
                traces.append(self._traced(size, (True,) * len(self.signature.avals)))
        return traces

    def function(self, size: int, batched: Sequence[bool]) -> tuple[UOp, list[bool]]:
        """Return the FUNCTION of a batch, all of whose results have a batch axis; and which of
        them, except a token, differ between batch elements."""
        n = len(self.captures)
        key = size, tuple(batched[n + self.effects:])
        batched_fn, differ = self._functions.get_or_make(key, lambda: self._closed(*key))
        if any(batched[:n]):
            used_params = build.params(batched_fn)
            if any(b and i in used_params for i, b in enumerate(batched[:n])):
                info = RuleInfo(self.rule, "vmap", self.name)
                raise RuleError(f"expected {info.text} to close over unbatched values only, got a "
                                "batched array",
                                hint="pass it as an argument")
        return batched_fn, differ

    def _closed(self, size: int, batched: tuple[bool, ...]) -> tuple[UOp, list[bool]]:
        differ: list[bool] = []
        traced = with_reused_handles(
            self.handles, lambda: dedup_arrays(self._traced(size, batched, differ), self.captures),
            trace_remains=True)
        fn, new_captures, _ = close_over(traced, self.captures, self.effects)
        if new_captures or traced.tokens and not self.effects:
            info = RuleInfo(self.rule, "vmap", self.name)
            what = "an array" if new_captures else "an effect"
            raise BatchSizeError(f"expected {info.text} to close over the same values for all "
                                 f"batches, got {what} more for {size} lanes of {sum(batched)} "
                                 "arguments",
                                 hint="pass arrays as arguments, and print in all cases or in none")
        return fn, differ

    def _traced(self, size: int, batched: tuple[bool, ...], differ: list[bool] | None = None
                ) -> TracedFunction:
        info, primals = RuleInfo(self.rule, "vmap", self.name), self.signature.primals
        avals = [Aval((size, *a.shape) if b else a.shape, a.dtype, a.weak and not b)
                 for a, b in zip(self.signature.avals, batched)]

        def run(leaves: Sequence[Any]) -> list[Any]:
            args, flags = primals.unflatten(leaves), primals.unflatten(batched)
            out, which = check_pair(info.call(size, list(flags), *args), info,
                                    "(result, out_batched)")
            flat = self._batched_flags(which, info)
            batched_avals = [Aval((size, *a.shape) if b else a.shape, a.dtype)
                             for a, b in zip(self.outs, flat)]
            results = check_outs(out, self.out_tree, batched_avals, info)
            if differ is not None:
                differ[:] = flat
            return [x if b else Array(build.expand(x._node, (size, *x._shape)))
                    for x, b in zip(results, flat)]
        return traced_rule(run, [avals], "the vmap", f"{self.name}.vmap")

    def _batched_flags(self, which: Any, info: RuleInfo) -> list[bool]:
        """Return for each result whether it has a batch axis; one bool applies to all below it."""
        parts = [which] * self.out_tree.num_leaves if isinstance(which, bool) else \
            tree.leaves(which)
        if len(parts) != self.out_tree.num_leaves or not all(type(b) is bool for b in parts):
            raise info.error(f"out_batched like the result, {self.out_tree}", f"{which!r}",
                             "return for each array of the result whether it has a batch axis")
        return parts
