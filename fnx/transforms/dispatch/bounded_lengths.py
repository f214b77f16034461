"""Arguments of a jitted function whose lengths differ from call to call (``jit(dynamic=)``).

    f = jit(loss, dynamic={"tokens": {1: dim("T", 1, 4096)}})

    f(tokens: int32[8, 100])   T = 100   -> trace with tokens: int32[8, T]   -> instantiate T = 100
    f(tokens: int32[8, 37])    T = 37    ->        the same trace            -> instantiate T = 37
                                            kernels take their lengths as arguments, so the second
                                            call compiles nothing new

A trace holds for the lengths for which its assumptions do (core/rewriting/dimensions.py). Others
get a trace with dimensions whose choices suit them; lengths that are equal by chance, as T = 1 in
``squeeze``, one of numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fnx.core.array import tree
from fnx.core.array.aval import Aval
from fnx.core.ir.uop import UOp
from fnx.core.rewriting.dimensions import Assumptions, Dim, variables
from fnx.core.rewriting.lengths import (
    instantiate,
    length_at,
    numbers_in_shapes,
    renamed,
    solve_for,
)
from fnx.core.support.errors import ArgumentError, ShapeError
from fnx.core.support.record import Record
from fnx.core.tracing.trace import ClosedFunction
from fnx.transforms.dispatch.signature import CallKey, leaf_path, parameters_of
from fnx.transforms.dispatch.trace_cache import TraceCache

Lengths = dict[UOp, int]


class BoundedFunction(Record):
    """A trace with dimensions, what it assumes of lengths, and its variables by the declared ones.
    """

    closed: ClosedFunction
    assumptions: Assumptions
    news: dict[UOp, UOp]
    avals: tuple[Aval, ...]

    def lengths(self, lengths: Lengths) -> Lengths:
        """Return the values of its variables from those of the declared ones."""
        return {self.news[v]: n for v, n in lengths.items() if v in self.news}

    def broken_by(self, lengths: Lengths) -> str:
        """Return an assumption that does not hold for these values; "" if all do."""
        return self.assumptions.broken_by(self.lengths(lengths))

    def at(self, lengths: Lengths) -> ClosedFunction:
        """Return the function for these values."""
        return instantiated(self.closed, self.lengths(lengths))


def trace_bounded(avals: Sequence[Aval], trace: Callable[[tuple[Aval, ...]], ClosedFunction],
                  lengths: Lengths | None = None) -> BoundedFunction:
    """Trace a function of arguments with dimensions; ``lengths``: those of a call."""
    shapes, news = renamed([a.shape for a in avals])
    # A length of 1 chooses as 2 does: it may be equal to what the trace takes for unequal.
    typical = None if lengths is None else {news[v]: max(n, 2) for v, n in lengths.items()
                                            if v in news}
    new_avals = tuple([a._replace(shape=s) for a, s in zip(avals, shapes)])
    with Assumptions(typical) as assumptions:
        closed = trace(new_avals)
    return BoundedFunction(closed, assumptions, news, new_avals)


class BoundedTrace:
    """The traces of one signature with dimensions; each holds for lengths of its own."""

    __slots__ = ("variants",)

    def __init__(self) -> None:
        self.variants: list[BoundedFunction] = []

    @property
    def graphs(self) -> tuple[UOp, ...]:
        """The traced FUNCTIONs."""
        return tuple([variant.closed.function for variant in self.variants])

    def broken_by(self, lengths: Lengths) -> str:
        """Return an assumption of the latest trace that fails, if all traces have one that does."""
        broken = [variant.broken_by(lengths) for variant in self.variants]
        return broken[-1] if all(broken) and broken else ""

    def find(self, lengths: Lengths, trace: Callable[[], BoundedFunction],
             trace_numbers: Callable[[], ClosedFunction]) -> ClosedFunction:
        """Return the function for these lengths.

        Args:
            lengths: of a call.
            trace: makes a trace with dimensions, whose choices are those for ``lengths``.
            trace_numbers: traces for these lengths only, at which two lengths are equal that are
                not in general.
        """
        for variant in self.variants:
            if not variant.broken_by(lengths):
                return variant.at(lengths)
        variant = trace()
        is_general = not variant.broken_by(lengths)
        if is_general or not self.variants:
            self.variants.append(variant)
        return variant.at(lengths) if is_general else trace_numbers()


def instantiated(closed: ClosedFunction, lengths: Lengths) -> ClosedFunction:
    """Return a closed function for these values of its variables."""
    outs = tuple([a._replace(shape=shape_at(a.shape, lengths)) for a in closed.outs])
    return closed.replace(function=instantiate(closed.function, lengths), outs=outs)


def shape_at(shape: Sequence[Any], lengths: Lengths) -> tuple[int, ...]:
    """Return a shape for these values of its variables."""
    return tuple([length_at(n, lengths) for n in shape])


class DynamicArguments:
    """Which axes of which arguments have a length that is known at the call.

    Args:
        f: the function.
        name: its name, for messages.
        axes: {name or position of an argument: {axis: a Dim}}.
    """

    def __init__(self, f: Callable[..., Any], name: str, axes: Mapping[Any, Any]) -> None:
        self._name = name
        self._parameters = [p.name for p in parameters_of(f)]
        self._axes: dict[Any, dict[int, Dim]] = {}
        for argument, lengths in axes.items():
            if not isinstance(lengths, Mapping) or not lengths or not all(
                    isinstance(a, int) and type(n) is Dim for a, n in lengths.items()):
                raise ArgumentError(f"jit of {name}: expected dynamic={{argument: {{axis: "
                                    f"fnx.dim(...)}}}}, got {lengths!r} for {argument!r}",
                                    hint=f"for the length of its first axis write dynamic="
                                         f"{{{argument!r}: {{0: fnx.dim('N', 1, 4096)}}}}")
            if isinstance(argument, str) and argument not in self._parameters:
                raise ArgumentError(f"jit of {name}: expected a parameter in dynamic=, got "
                                    f"{argument!r}",
                                    hint=f"the parameters are {', '.join(self._parameters)}")
            self._axes[argument] = dict(lengths)

    def with_dimensions(self, key: CallKey) -> tuple[CallKey, Lengths]:
        """Return a signature with Dims in its shapes, and the values of their variables.

        Raises:
            ShapeError: a length is out of bounds, or two lengths contradict each other.
        """
        avals, declared, actual, where = list(key.avals), [], [], []
        for i, path in enumerate(tree.paths(key.in_tree)):
            axes = self._axes_of(path, key)
            if axes is None:
                continue
            shape: list[Any] = list(avals[i].shape)
            for axis, length in axes.items():
                if not -len(shape) <= axis < len(shape):
                    raise ShapeError(f"{self._name}: expected an axis {axis} of "
                                     f"{leaf_path(key.in_tree, i)}, which is dynamic, got shape "
                                     f"{avals[i].shape}")
                declared.append(length)
                actual.append(shape[axis])
                where.append(f"axis {axis} of {leaf_path(key.in_tree, i)}")
                shape[axis] = length
            avals[i] = avals[i]._replace(shape=tuple(shape))
        return key._replace(avals=tuple(avals)), solve(self._name, declared, actual, where)

    def _axes_of(self, path: Sequence[Any], key: CallKey) -> dict[int, Dim] | None:
        half, first = path[:2]
        if half.idx == 1:
            return self._axes.get(first.key)
        static = {name for name, _ in key.statics}
        positions = [i for i in range(len(self._parameters) + first.idx + 1) if i not in static]
        position = positions[first.idx]
        named = self._parameters[position] if position < len(self._parameters) else None
        return self._axes.get(position, self._axes.get(named))


class BoundedTraces:
    """The traces with dimensions of a function; ``axes`` as of ``DynamicArguments``."""

    def __init__(self, f: Callable[..., Any], name: str, axes: Mapping[Any, Any]) -> None:
        self._arguments = DynamicArguments(f, name, axes)
        self.cache: TraceCache[BoundedTrace] = TraceCache(lambda: f)
        self.trace_count = 0  # with those for other lengths of one signature
        self.fixed_lengths: frozenset[int] = frozenset()  # that do not change from call to call

    def find(self, key: CallKey, trace: Callable[[CallKey], ClosedFunction]) -> ClosedFunction:
        """Return the function for a signature; ``trace`` makes that of one with dimensions."""
        bounded_key, lengths = self._arguments.with_dimensions(key)
        first: list[ClosedFunction] = []

        def counted(key: CallKey) -> ClosedFunction:
            self.trace_count += 1
            return trace(key)

        def of(bounded: BoundedTrace) -> ClosedFunction:
            if (broken := bounded.broken_by(lengths)):
                self.cache.record_miss(f"{_text(lengths)}: the trace excludes {broken}")
            return bounded.find(lengths, lambda: self._trace(bounded_key, key, counted, lengths),
                                lambda: counted(key))

        def make() -> tuple[BoundedTrace, list[UOp]]:
            bounded = BoundedTrace()
            first.append(of(bounded))
            return bounded, first[0].captures

        entry = self.cache.find(bounded_key, make)
        return first[0] if first else of(entry.value)

    def _trace(self, bounded_key: CallKey, key: CallKey,
               trace: Callable[[CallKey], ClosedFunction], lengths: Lengths) -> BoundedFunction:
        bounded = trace_bounded(bounded_key.avals, lambda avals: trace(key._replace(avals=avals)),
                                lengths)
        self.fixed_lengths |= numbers_in_shapes(bounded.closed.function)
        return bounded


def solve(function: str, declared: Sequence[Any], actual: Sequence[int], where: Sequence[str]
          ) -> Lengths:
    """Return the values of the variables for which declared lengths are the actual ones.

    >>> from fnx.core.rewriting.dimensions import dim
    >>> t = dim("T", 1, 64)
    >>> {v.arg.name: n for v, n in solve("f", [t, 2 * t], [5, 10], ["x", "y"]).items()}
    {'T': 5}

    Args:
        function: its name, for messages.
        declared: ints and Dims.
        actual: the lengths of a call.
        where: what each of them is a length of, for messages.

    Raises:
        ShapeError: there are no such values within the bounds.
    """
    lengths: Lengths = {}
    known = -1
    while known < len(lengths):
        known = len(lengths)
        for length, n in zip(declared, actual, strict=True):
            unknown = [v for v in variables(length) if v not in lengths]
            if len(unknown) == 1:
                value = solve_for(length, unknown[0], n, lengths)
                if value is not None:
                    lengths[unknown[0]] = value
    for length, n, location in zip(declared, actual, where):
        missing = [v.arg.name for v in variables(length) if v not in lengths]
        if missing:
            raise ShapeError(f"{function}: {location} is {n}, which does not determine "
                             f"{', '.join(missing)} of {length}",
                             hint="give each dimension an axis of its own")
        for v in variables(length):
            if not v.arg.low <= lengths[v] <= v.arg.high:
                raise ShapeError(f"{function}: expected {v.arg.low} <= {v.arg.name} <= "
                                 f"{v.arg.high}, got {lengths[v]} at {location}",
                                 hint="widen the bounds of the dimension, or split the call")
        if length_at(length, lengths) != n:
            values = _text({v: lengths[v] for v in variables(length)})
            raise ShapeError(f"{function}: expected {length} as {location}"
                             f"{f' with {values}' if values else ''}, got {n}")
    return lengths


def _text(lengths: Lengths) -> str:
    return ", ".join([f"{v.arg.name} = {n}" for v, n in lengths.items()])
