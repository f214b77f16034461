"""Functions of lengths: ints, or Dims while a function is traced (dimensions.py).

    FUNCTION(x: [T, 8]):  REDUCE sum (axis 0) of x, DIMENSION T
    -> instantiate {T: 5} ->
    FUNCTION(x: [5, 8]):  REDUCE sum (axis 0) of x, CONST 5

>>> from fnx.core.rewriting.dimensions import dim
>>> most(dim("T", 1, 64))
64
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from fnx.core.ir import build, ops
from fnx.core.ir.uop import UOp, copy_locs, substitute, toposort
from fnx.core.rewriting.dimensions import Dim, length_of, required_operand, variables
from fnx.core.support.errors import ArgumentError, InconclusiveDimensionError
from fnx.core.support.process import lazy_import
from fnx.core.support.record import Record, values

ast = lazy_import("ast")
symbolic = lazy_import("fnx.core.rewriting.symbolic")


def length_at(length: Any, lengths: Mapping[UOp, int]) -> Any:
    """Return a length, an int or a Dim, for these values of the variables."""
    return length.at(lengths) if type(length) is Dim else length


def most(n: Any) -> int:
    """Return the greatest value of a length."""
    return int(n.bounds[1] if type(n) is Dim else n)


def maximum(a: Any, b: Any) -> Any:
    """Return the greater of two lengths."""
    return _extreme(build.maximum, max, a, b)


def minimum(a: Any, b: Any) -> Any:
    """Return the lesser of two lengths."""
    return _extreme(build.minimum, min, a, b)


def _extreme(op: Callable[[UOp, UOp], UOp], of_ints: Callable[[Any, Any], Any], a: Any, b: Any
             ) -> Any:
    if type(a) is not Dim and type(b) is not Dim:
        return of_ints(a, b)
    low, high = symbolic.bounds(_as_remainders(a - b).node) if type(a - b) is Dim else (a - b,) * 2
    if low >= 0 or high <= 0:
        return a if (low >= 0) is (of_ints is max) else b
    return length_of(op(required_operand(a), required_operand(b)))


def _as_remainders(length: Dim) -> Dim:
    """Return a multiple of a length, with remainders in the place of quotients: their bounds are
    closer, as x and floordiv(x, 2) vary together.

    T - 2*floordiv(T, 2)  ->  2*mod(T, 2)
    """
    for quotient in toposort([length.node]):
        if quotient.op is ops.IDIV and quotient.src[1].op is ops.CONST:
            x, divisor = quotient.src
            unknown = build.var(next(_trace_numbers), quotient.dtype, 0, 1 << 31)
            rest, = substitute([length.node], {quotient: unknown})
            slope = symbolic.coefficient(rest, unknown)
            if type(slope) is int and slope:
                rest, = substitute([rest], {unknown: build.index_const(0)})
                scaled = length_of(rest) * build.const_of(divisor) + \
                    slope * length_of(build.sub(x, build.rem(x, divisor)))
                return _as_remainders(scaled) if type(scaled) is Dim else length
    return length


def slice_of_axis(s: slice, n: Any) -> tuple[Any, int, Any]:
    """Return (start, step, count) of a slice of an axis of length n, as ``slice.indices`` does.

    >>> from fnx.core.rewriting.dimensions import dim
    >>> slice_of_axis(slice(1, -1), dim("T", 4))
    (1, 1, T - 2)
    """
    step = 1 if s.step is None else operator.index(s.step)
    low, high = (0, n) if step > 0 else (-1, n - 1)
    start = _clamp(s.start, n, low, high, low if step > 0 else high)
    stop = _clamp(s.stop, n, low, high, high if step > 0 else low)
    return start, step, range_length(start, stop, step)


def _clamp(bound: Any, n: Any, low: Any, high: Any, default: Any) -> Any:
    if bound is None:
        return default
    return maximum(low, minimum(high, bound + n if bound < 0 else bound))


def range_length(first: Any, last: Any, step: Any) -> Any:
    """Return the number of elements of range(first, last, step).

    >>> from fnx.core.rewriting.dimensions import dim
    >>> range_length(0, dim("T"), 2)
    floordiv(T + 1, 2)
    """
    distance, step = (last - first, step) if step > 0 else (first - last, -step)
    return maximum(0, (distance + step - 1) // step)


# ---- text ---------------------------------------------------------------------------------------

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add, "Sub": operator.sub, "Mult": operator.mul,
    "FloorDiv": operator.floordiv, "Mod": operator.mod}
_FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "min": minimum, "max": maximum, "floordiv": lambda a, b: a // b, "mod": lambda a, b: a % b}


def parse(text: str, variable: Callable[[str], Any]) -> Any:
    """Read a length as ``repr`` prints it; ``variable`` returns the Dim of a name.

    >>> from fnx.core.rewriting.dimensions import dim
    >>> parse("2*T + floordiv(n, 4)", dim)
    2*T + floordiv(n, 4)

    Raises:
        ArgumentError: the text is no such expression.
    """
    try:
        return _evaluate(ast.parse(text.strip(), mode="eval").body, variable)
    except (SyntaxError, ValueError, TypeError, LookupError, RecursionError):
        raise ArgumentError(f"expected a length such as 2*t or floordiv(t, 4), got {text[:80]!r}"
                            ) from None


def _evaluate(tree: Any, variable: Callable[[str], Any]) -> Any:
    kind = type(tree).__name__
    if kind == "Constant" and type(tree.value) is int:
        return tree.value
    if kind == "Name":
        return variable(tree.id)
    if kind == "UnaryOp" and type(tree.op).__name__ == "USub":
        return 0 - _evaluate(tree.operand, variable)
    if kind == "BinOp":
        return _OPERATORS[type(tree.op).__name__](_evaluate(tree.left, variable),
                                                  _evaluate(tree.right, variable))
    if kind == "Call" and len(tree.args) == 2 and not tree.keywords:
        return _FUNCTIONS[tree.func.id](*[_evaluate(x, variable) for x in tree.args])
    raise ValueError(tree)


# ---- variables ----------------------------------------------------------------------------------


def solve_for(length: Any, variable: UOp, n: int, known: Mapping[UOp, int]) -> int | None:
    """Return the value of the one unknown variable of a length that equals n; None if the length is
    not linear in it, or no whole number fits.

    >>> from fnx.core.rewriting.dimensions import dim
    >>> t = dim("T")
    >>> solve_for(2 * t + 1, t.node, 11, {})
    5
    """
    slope = symbolic.coefficient(length.node, variable)
    if type(slope) is not int or not slope:
        return None
    rest = length.at({**known, variable: 0})
    value: Any = (n - rest) // slope
    return value if value * slope == n - rest else None


_trace_numbers = itertools.count(1 << 32)


def renamed(shapes: Sequence[Sequence[Any]]) -> tuple[list[tuple[Any, ...]], dict[UOp, UOp]]:
    """Return shapes with new variables of the same names and bounds, and the map to these.

    Each trace has variables of its own, so that no cache of graphs or traces answers with what was
    made under the assumptions of another trace.
    """
    news = {v: build.var(next(_trace_numbers), v.dtype, v.arg.low, v.arg.high, v.arg.name)
            for v in dict.fromkeys([v for shape in shapes for n in shape for v in variables(n)])}
    return [tuple([length_of(substitute([n.node], news)[0]) if type(n) is Dim else n
                   for n in shape]) for shape in shapes], news


def instantiate(function: UOp, lengths: Mapping[UOp, int]) -> UOp:
    """Return a FUNCTION with numbers in the place of its dimensions.

    Args:
        function: a FUNCTION, whose shapes may hold Dims.
        lengths: the values of their variables.
    """
    done: dict[UOp, UOp] = {}
    for node in toposort([function], into_functions=True):
        src = tuple([done[s] for s in node.src])
        if node.op is ops.DIMENSION:
            done[node] = build.const(node.arg.at(lengths), node.dtype)
        else:
            arg = _with_lengths(node.arg, lengths)
            same = arg is node.arg and all(a is b for a, b in zip(src, node.src))
            done[node] = node if same else copy_locs(UOp(node.op, node.dtype, src, arg), node)
    return done[function]


def first_dimension(function: UOp) -> tuple[UOp, Dim] | None:
    """Return the first node of a FUNCTION with a dimension, and this; None if it has none."""
    for node in toposort([function], into_functions=True):
        if node.op is ops.DIMENSION:
            return node, cast(Dim, node.arg)
        if Dim in set(map(type, node.shape)):
            return node, next(cast(Dim, n) for n in node.shape if isinstance(n, Dim))
    return None


def numbers_in_shapes(function: UOp) -> frozenset[int]:
    """Return the lengths in a FUNCTION that are numbers, and those of adjacent axes as one.

    x: [T, 4, 8]  ->  4, 8, 32
    """
    numbers: set[int] = set()
    for shape in {n.shape for n in toposort([function], into_functions=True)}:
        for i in range(len(shape)):
            lengths = itertools.takewhile(lambda n: type(n) is int, shape[i:])
            numbers.update(itertools.accumulate(lengths, operator.mul))
    return frozenset(numbers - {0, 1})


def check_no_dimensions(function: UOp) -> None:
    """Raise unless all lengths of a graph that is to be compiled are numbers."""
    first = first_dimension(function)
    if first is not None:
        raise InconclusiveDimensionError(
            f"expected numbers as lengths of what runs, got the dimension {first[1]}",
            loc=first[0].loc, hint="this function needs the length while it is traced: compute it "
                                   "with others, or make this length static; a function that runs "
                                   "is called under jit(dynamic=...)")


def _with_lengths(arg: Any, lengths: Mapping[UOp, int]) -> Any:
    """Return an arg with numbers in the place of Dims; the same object if it has none."""
    if type(arg) is Dim:
        return arg.at(lengths)
    if isinstance(arg, Record):
        fields = values(arg)
        new = _with_lengths(fields, lengths)
        return arg if new is fields else type(arg)(*new)
    if type(arg) is tuple:
        new = tuple([_with_lengths(x, lengths) for x in arg])
        return arg if all(a is b for a, b in zip(new, arg)) else new
    return arg
