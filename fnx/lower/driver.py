"""The driver: runs passes, times each, checks the spec on both sides, and reports to an observer.

A pass maps a graph, or a small record that holds graphs (``graphs``), to the next one:

>>> from fnx.core.ir import build, dtypes
>>> def twice_negated(fn):
...     return fn.replace(src=tuple([build.neg(build.neg(out)) for out in fn.src]))
>>> negate = Pass("negate", twice_negated, "tensor", "tensor")
>>> fn = build.function([build.param(0, dtypes.float32, (3,))], 1)
>>> driver = Driver(Target("interp"), on_pass=lambda step: print(step.name, step.after.src[0].op))
>>> after = driver.run((negate,), fn)
negate NEG
>>> list(driver.milliseconds)
['negate']

**Observing.** ``on_pass`` is called with a ``PassTrace`` after each pass: its name, input and
output, its time, and the reasons for its decisions. The shared cache is bypassed then, so the
observer sees every pass of every distinct kernel, in execution order. lower/pipeline.py lists the
passes.

**Verification.** If ``config.check_spec`` is set, the input and output of each pass are checked
against the spec of their level. The error names the pass, the rule, and the offending node.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any

from fnx.core.ir import ops
from fnx.core.ir.cache import MEGABYTE, Cache, find_graphs, graph_bytes
from fnx.core.ir.dtypes import DType
from fnx.core.ir.op import Op
from fnx.core.ir.uop import UOp, orders, reachable, substitute, toposort
from fnx.core.rewriting.rewrite import RuleSet
from fnx.core.support.config import config
from fnx.core.support.errors import SpecError
from fnx.core.support.process import lazy_import
from fnx.core.support.record import Record
from fnx.core.support.target import Target

spec = lazy_import("fnx.core.levels.spec")

Feature = Op | DType | str
MASKED_LOAD = "masked LOAD"


@contextmanager
def reuse_orders() -> Iterator[None]:
    """Within, ``toposort`` puts the same nodes in order once: the passes of a kernel ask for its
    order some thirty times."""
    outer, orders.known = orders.known, {}
    try:
        yield
    finally:
        orders.known = outer


def find_features(state: Any) -> set[Feature]:
    """Return what passes look for in the graphs of a state, also inside FUNCTIONs: ops, dtypes,
    whether a LOAD has a condition, and whether that of a WHERE is unlikely."""
    features: set[Feature] = set()
    graphs = find_graphs(state)
    nodes = toposort(graphs) if all(g.op is ops.KERNEL for g in graphs) else reachable(graphs)
    for node in nodes:
        features.add(node.op)
        features.add(node.dtype)
        if node.op is ops.LOAD and len(node.src) > 1:
            features.add(MASKED_LOAD)
        elif node.op is ops.WHERE and node.arg == ops.UNLIKELY:
            features.add(ops.UNLIKELY)
    return features


class Pass(Record):
    """A step of the compiler.

    Attributes:
        name: its name in errors, timings and reports.
        run: the function, applied to the output of the previous pass.
        before, after: the levels whose spec holds before and after it; "text" has none.
        features: the pass is skipped if the graph has none of these (``features``).
        needs: the pass is skipped if this is false of its input.
        takes_target: whether ``run`` also takes the Target.
        why: maps input and output to a line for each decision, for the observer.
        rules: the rewrite rules it applies, if it is a rewrite.
    """

    name: str
    run: Callable[..., Any]
    before: str
    after: str
    features: frozenset[Feature] | None = None
    takes_target: bool = False
    why: Callable[[Any, Any], Sequence[str]] | None = None
    rules: RuleSet | None = None
    needs: Callable[[Any], bool] | None = None

    __eq__ = object.__eq__  # entries of a table: identity
    __hash__ = object.__hash__

    def is_relevant(self, state: Any, present: set[Feature]) -> bool:
        """Whether the pass has something to do, given the features of its input."""
        if self.features is not None and self.features.isdisjoint(present):
            return False
        return self.needs is None or self.needs(state)


def lift_to_bodies(run: Callable[..., UOp]) -> Callable[..., UOp]:
    """Lift a function of FUNCTIONs without bodies to one that also rewrites each distinct body.
    Both may also take the target."""
    @wraps(run)
    def on_each(fn: UOp, *target: Target) -> UOp:
        rewritten: dict[UOp, UOp] = {}
        for body in toposort([fn], into_functions=True):
            if body.op is ops.FUNCTION:
                src = tuple(substitute(body.src, rewritten))
                rewritten[body] = run(body.with_operands(src), *target)
        return rewritten[fn]
    return on_each


class PassTrace(Record):
    """Trace of one run of a pass: input, output, time, reasons, match count of each rule."""

    name: str
    before: Any
    after: Any
    milliseconds: float
    why: tuple[str, ...] = ()
    rules: tuple[tuple[str, int], ...] = ()


MAX_RESULTS = 4096  # of passes over one kernel, per process
RESULT_BYTES = 96 * MEGABYTE


def _result_bytes(key: tuple[tuple[Any, Any], Target], outputs: Any) -> int:
    """Return the bytes of the inputs and outputs of passes."""
    return graph_bytes([key[0][1], outputs])


def _results_cache() -> Cache[tuple[tuple[Any, Any], Target], Any]:
    return Cache("results of passes", MAX_RESULTS, RESULT_BYTES, _result_bytes)


_results = _results_cache()


class Driver:
    """Runs passes for one target.

    Attributes:
        milliseconds: the time of each pass by name, summed over all its runs.
    """

    def __init__(self, target: Target, on_pass: Callable[[PassTrace], None] | None = None) -> None:
        self.target, self.on_pass = target, on_pass
        self.milliseconds: dict[str, float] = {}
        self._results = _results if on_pass is None else \
            _results_cache()

    def run(self, passes: Sequence[Pass], state: Any) -> Any:
        """Run the passes on ``state``, one after the other, and return the last output.

        Raises:
            SpecError: the input or output of a pass violates the spec of its level.
        """
        present: set[Feature] | None = None  # of ``state``; None if unknown
        checked: tuple[object, str] = None, ""  # the latest state that was checked, at which level
        for step in passes:
            if config.check_spec and not (state is checked[0] and step.before == checked[1]):
                _check(state, step.before, f"before pass {step.name}")
            counts_before = step.rules.counts.copy() if self.on_pass and step.rules else None
            start = time.perf_counter()
            if present is None and step.features is not None:
                present = find_features(state)
            after = state
            if step.name != self.target.unfused and step.is_relevant(state, present or set()):
                after = step.run(state, self.target) if step.takes_target else step.run(state)
            elapsed_ms = (time.perf_counter() - start) * 1e3
            self.milliseconds[step.name] = self.milliseconds.get(step.name, 0.0) + elapsed_ms
            if after is not state:
                present = None
            if config.check_spec:
                if after is not state or step.after != step.before:
                    _check(after, step.after, f"after pass {step.name}")
                checked = after, step.after
            if self.on_pass is not None:
                why = () if step.why is None else tuple(step.why(state, after))
                self.on_pass(PassTrace(step.name, state, after, elapsed_ms, why,
                                       _rule_counts(counts_before, step.rules)))
            state = after
        return state

    def run_cached(self, passes: tuple[Pass, ...], state: Hashable) -> Any:
        """As ``run``, memoized: equal states run through the passes once per process."""
        return self.memoize(passes, state, partial(self.run, passes, state))

    def memoize(self, kind: Hashable, state: Hashable, make: Callable[[], Any]) -> Any:
        """Return ``make()``, memoized per process by ``kind``, ``state`` and the target."""
        return self._results.get_or_make(((kind, state), self.target), make)


def _rule_counts(before: Counter[str] | None, rules: RuleSet | None) -> tuple[tuple[str, int], ...]:
    """Return how often each rule matched since ``before``, the most frequent first."""
    return () if before is None or rules is None else tuple((rules.counts - before).most_common())


def _check(state: Any, level: str, when: str) -> None:
    if level == "text":
        return
    try:
        for graph in find_graphs(state):
            spec.check([graph], level)
    except SpecError as e:
        raise SpecError(f"{when}: {e.message}", hint="a fault of fnx: the pass made, or was "
                        "given, a node that the spec does not allow", loc=e.loc) from None
