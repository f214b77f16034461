"""NaN debugger: find the op that produced a NaN, by recomputing a FUNCTION node by node.

    y = log(x - 1), z = y * 2          z has a NaN at 3  ->  y has one, x - 1 has none: LOG, at 3

The search goes from an element of a result that is NaN back to the element of an operand that it
came from (bad_elements.py), until no operand has one: that node produced it. So NaNs that a WHERE
discards are not blamed. It enters the bodies of calls, branches and loops, and goes back through
the iterations. Effects are not repeated.

>>> from fnx.core.ir import dtypes
>>> x = build.param(0, dtypes.float32, (3,))
>>> fn = build.function([build.neg(build.log(x))], 1)
>>> found = find_origin(fn, [np.array([1, -1, 2], np.float32)], 0, "nan")
>>> found.description, found.index
('log', (1,))
"""

from __future__ import annotations

import ast
import linecache
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import numpy as np

from fnx.core.ir import accessors, build, ops
from fnx.core.ir.dtypes import NDArray
from fnx.core.ir.op_bodies import OpBodies
from fnx.core.ir.uop import CallLocation, DerivativeLocation, UOp, toposort
from fnx.core.levels import interp
from fnx.core.levels.bad_elements import (
    CarriesOfSteps,
    Index,
    decode_values,
    first_index,
    is_bad,
    replace_bad,
    source_of,
)
from fnx.core.levels.loop_iterations import Iteration, Running, iterations
from fnx.core.scope import callbacks
from fnx.core.support.errors import (
    Location,
    NotFiniteError,
    choose_location,
    format_location,
    own_locations,
)
from fnx.core.support.record import Record

_BAD_VALUES = {"nan": "NaN", "inf": "NaN or infinity"}


class Origin(Record):
    """The origin of a NaN.

    Attributes:
        description: an op name, or a description of an argument or callback.
        index: index of the element that reaches the result.
        value: that element.
        operands: what the op computed the element from, if that is another value for each operand.
        loops: the enclosing iterations, the outermost first.
        loc: the user's line of a callback.
        locs: candidate lines.
        nan: the op that made a NaN of this infinity.
    """

    description: str
    index: Index
    value: float
    operands: tuple[float, ...] = ()
    loops: tuple[Iteration, ...] = ()
    loc: Location | None = None
    locs: tuple[Location, ...] = ()
    nan: Origin | None = None

    def error(self, check: str, name: str) -> NotFiniteError:
        """Return the error for the user."""
        loops = "".join([f", in {_describe(i)}" for i in reversed(self.loops)])
        whose = f"{name}: " if name else ""
        loc = self.loc or _choose(self.locs)
        return NotFiniteError(
            f"{whose}expected no {_BAD_VALUES[check]}, got {self._at(loc)}{loops}"
            f"{self._became(loc)}",
            loc=loc, locs=self.locs, hint=_DOUBLE_WHERE if isinstance(loc, DerivativeLocation)
            and any(x == 0 or np.isinf(x) for x in self.operands) else
            "check the inputs of this line; config.check = '' turns this check off")

    def describe_in_line(self, loc: Location) -> str:
        """Say what is infinite or NaN in a line of the user's and what made it, as ``error``
        does."""
        origin = self.restrict_lines({loc})
        at = _choose(origin.locs)
        line = "this line" if at is None or at == loc else format_location(at)
        here = "" if isinstance(at, DerivativeLocation) else \
            " in this line" if line == "this line" else f" at {line}"
        return f"{origin._at(at, line)}{here}{origin._became(at)}"

    def _at(self, loc: Location | None, line: str = "this line") -> str:
        function = loc.function if isinstance(loc, CallLocation) else ""
        if not isinstance(loc, DerivativeLocation):
            return self.text_of(function)
        return f"{self.text} in the derivative of {f'{function} in ' if function else ''}{line}"

    def restrict_lines(self, lines: Container[Location]) -> Origin:
        """Restrict the candidate lines to those of the program, if there are any."""
        return self.replace(locs=own_locations(self.locs, lines),
                            nan=self.nan and self.nan.restrict_lines(lines))

    @property
    def is_nan(self) -> bool:
        """Whether it is a NaN or became one."""
        return bool(np.isnan(self.value)) or self.nan is not None

    @property
    def text(self) -> str:
        """What it is, such as "nan from log at [1] of -1"."""
        where = f" at {list(self.index)}" if self.index else ""
        return f"{self.value} from {self.description}{where}{self._of_operands()}"

    def text_of(self, function: str) -> str:
        """What it is, such as "nan from log10 at [1] (log of -1)", in a call of a function."""
        op = self.description
        if function in ("", op, _OPERATORS.get(op)):
            return self.text
        at = f" at {list(self.index)}" if self.index else ""
        how = "" if op == "const" else f" ({op}{self._of_operands()})"
        return f"{self.value} from {function}{at}{how}"

    def _became(self, of: Location | None) -> str:
        """Return where this infinity, of a line, became a NaN."""
        if self.nan is None:
            return ""
        loc = _choose(self.nan.locs)
        at = " in the derivative of" if isinstance(loc, DerivativeLocation) else " at"
        is_told = loc is None or loc == of and isinstance(of, DerivativeLocation) == (at != " at")
        return f"; it became NaN in {self.nan.description}{self.nan._of_operands()}" + (
            "" if is_told else f"{at} {format_location(loc)}")

    def _of_operands(self) -> str:
        values = " and ".join([f"{x:.5g}" for x in self.operands])
        return values and f" of {values}"

    def of_infinity(self, infinity: object) -> Origin:
        """Return the origin of the infinity that this op made a NaN of; an infinite constant or
        argument is none."""
        if not isinstance(infinity, Origin) or infinity.description == "const":
            return self
        return infinity.replace(nan=self)


_OPERATORS = {"div": "divide", "mul": "multiply", "pow": "power", "sub": "subtract"}
_DOUBLE_WHERE = (
    "sqrt, log, division and powers have an infinite derivative at 0, arcsin, arccos and arctanh "
    "at -1 and 1, and 0 * inf is NaN; choose the input and the result (double where): "
    "safe = jnp.where(v > 0, v, 1); y = jnp.where(v > 0, jnp.sqrt(safe), 0)")


def _choose(locs: Sequence[Location]) -> Location | None:
    """Choose the line to report among those of a node, the most likely of which is the last.

    A line that computes the node comes before one whose derivative does: both have its value.
    """
    locs = [loc for loc in locs if not isinstance(loc, DerivativeLocation)] or locs
    return choose_location(locs) or next(reversed(locs), None)


class _Lines:
    """The lines of a program: to how many nodes each file and each function in it contributed."""

    def __init__(self, fn: UOp) -> None:
        self.functions: dict[str, list[tuple[int, int]]] = {}  # lines; outer ones come first
        self.counts: Counter[Any] = Counter()
        for node in toposort([fn], into_functions=True):
            if node.src:
                keys = [self._keys(loc) for loc in node.locs]
                self.counts.update({key for pair in keys for key in pair})

    def _keys(self, loc: Location) -> tuple[Any, Any]:
        file, line = loc
        if file not in self.functions:
            self.functions[file] = _functions_in(file)
        around = [lines for lines in self.functions[file] if lines[0] <= line <= lines[1]]
        return file, (file, *around[-1:])

    def by_likelihood(self, origin: Origin) -> Origin:
        """Sort the lines of a node that several programs share: the most likely one is last."""
        return origin.replace(
            locs=tuple(sorted(origin.locs, key=lambda loc: [
                self.counts[key] for key in self._keys(loc)])),
            nan=origin.nan and self.by_likelihood(origin.nan))


def _functions_in(file: str) -> list[tuple[int, int]]:
    """Return the first and the last line of each function in a file."""
    try:
        module = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return []
    return [(x.lineno, x.end_lineno or x.lineno) for x in ast.walk(module)
            if isinstance(x, ast.FunctionDef)]


def _describe(i: Iteration) -> str:
    where = format_location(i.loc) if i.loc else ""
    order = "the derivative walks backwards" if i.is_backward else ""
    notes = "; ".join(filter(None, (where, order)))
    count = i.describe() if i.is_backward or i.number is None else f"iteration {i.number}"
    return f"{count} of {i.loop} of {i.name}{f' ({notes})' if notes else ''}"


def check_results(fn: UOp, args: Sequence[NDArray], results: Sequence[NDArray], check: str,
                  lines: frozenset[Location] = frozenset()) -> None:
    """Raise if a result has a NaN.

    Raises:
        NotFiniteError: names the op that produced it, the line, iteration and index.
    """
    for i, value in enumerate(results):
        if is_bad(value, check).any():
            origin_ = find_origin(fn, args, i, check, value) or Origin(
                f"result {i}, but none when recomputed: it came from a callback or from "
                "rounding", *_first_bad(value, check))
            raise origin_.restrict_lines(lines).error(check, fn.arg.name)


def find_origin(fn: UOp, args: Sequence[NDArray], result: int, check: str,
                value: NDArray | None = None) -> Origin | None:
    """Return the origin of the first NaN in a result; None if recomputing gives no NaN.

    Args:
        value: the result as it was computed before, if it was.
    """
    sought = _Sought(check)
    with np.errstate(all="ignore"):
        result_origin = callbacks.suppress_effects(
            lambda: _Search(_values(fn, args), sought).find_in_result(fn.src[result], value))
    if sought.nan is not None:
        result_origin = sought.nan.of_infinity(result_origin)
    if isinstance(result_origin, Origin):
        return _Lines(fn).by_likelihood(result_origin)
    if result_origin is not None:
        slot, index = result_origin
        return Origin(f"argument {slot}", index, float(decode_values(args[slot])[index]))
    return result_origin


def origin_in_line(shown: Sequence[UOp], values: Mapping[UOp, NDArray], known: Container[UOp],
                   check: str) -> Origin | None:
    """Return the origin of a NaN in the nodes that a line shows, or for the check "inf" of an
    infinity; None if no node of the line made it.

    Args:
        values: of the nodes of the line and their operands.
        known: the nodes that earlier lines computed.
    """
    for kind in dict.fromkeys(("nan", check)):
        for node in shown:
            bad = is_bad(values[node], kind)
            if kind == "inf":
                bad = bad & ~is_bad(values[node], "nan")
            if node in known or not bad.any():
                continue
            sought = _Sought(kind)
            origin = _Search(values, sought, known=known).find(node, first_index(bad))
            if sought.nan is not None:
                return sought.nan.of_infinity(origin)
            if isinstance(origin, Origin) and (kind == "nan" or origin.description != "const"):
                return origin
    return None


def origin_at(node: UOp, values: Mapping[UOp, NDArray], check: str,
              loops: tuple[Iteration, ...] = (), index: Index | None = None) -> Origin:
    """Return a node as the origin of a NaN in its value, at an index or the first one."""
    call = node.src[0] if node.op is ops.GETTUPLE else node
    what = call.arg.name if node.op is ops.GETTUPLE else node.op.name.lower()
    loc = callbacks.handle_location(int(values[call.src[0]])) if call.op is ops.CALLBACK else None
    index = first_index(is_bad(values[node], check)) if index is None else index
    value = float(decode_values(values[node])[index])
    operands = [values[s] for s in node.src if s in values] if node.op in ops.ELEMENTWISE else []
    return Origin(what, index, value, tuple([
        float(decode_values(x)[index]) for x in operands if decode_values(x).dtype.kind == "f"]),
        loops, loc, node.locs or call.locs)


def _first_bad(value: NDArray, check: str) -> tuple[Index, float]:
    index = first_index(is_bad(value, check))
    return index, float(decode_values(value)[index])


class _Sought:
    """What a search looks for: a NaN, then the infinity of a derivative that became it.

    Attributes:
        check: "nan" or "inf".
        nan: the op that made a NaN of an infinity, if that is sought.
    """

    def __init__(self, check: str) -> None:
        self.check = check
        self.nan: Origin | None = None


def _values(fn: UOp, args: Sequence[NDArray]) -> dict[UOp, NDArray]:
    """Return the value of each node of a FUNCTION."""
    nodes = [n for n in toposort(fn.src, stop=lambda n: n.op is ops.KERNEL)
             if n.op.result != "void"]
    env = {p: np.asarray(args[i]) for i, p in build.params(fn).items()}
    return dict(zip(nodes, interp.evaluate(nodes, env)))


class _Search:
    """A search among the nodes of one FUNCTION, with their values; what is known is none of its."""

    def __init__(self, values: Mapping[UOp, NDArray], sought: _Sought,
                 running: tuple[Running, ...] = (), known: Container[UOp] = ()) -> None:
        self.values, self.sought, self.running, self.known = values, sought, running, known

    def find_in_result(self, node: UOp, value: NDArray | None) -> OriginOrParam:
        """Return the origin of the first NaN in a result, one that ``value`` has, too, if any."""
        bad = is_bad(self.values[node], self.sought.check)
        if value is not None and (both := bad & is_bad(value, self.sought.check)).any():
            bad = both
        return self.find(node, first_index(bad)) if bad.any() else None

    def find(self, node: UOp, index: Index) -> OriginOrParam:
        """Return the origin of the NaN in an element of a node."""
        if not is_bad(self.values.get(node), self.sought.check)[index]:
            return None
        reader: tuple[UOp, Index] | None = None  # what chooses or moves a constant has its line
        while True:
            if node.op is ops.WHERE or node.op.kind == "movement" and reader is None:
                reader = node, index
            elif node.op.kind not in ("movement", "source"):
                reader = None
            if node in self.known:
                return None
            if node.op is ops.PARAM:
                return int(node.arg.slot), index
            if node.op is ops.GETTUPLE and node.src[0].op in _SEARCH_RULES:
                call = node.src[0]
                inner = _SEARCH_RULES[call.op](self, call, node.arg, index)
                if isinstance(inner, Origin | None):
                    return inner
                slot, index = inner
                node = accessors.operands(call)[slot]
                continue
            source = source_of(node, self.values, index, self.sought.check)
            if source is None:
                origin = self._origin_at(node, index)
                if node.op is ops.CONST and reader is not None:
                    origin = self._origin_at(*reader).replace(description="const", operands=())
                if (source := self._infinity_in(node, index, origin)) is None:
                    return origin
                self.sought.nan, self.sought.check = origin, "inf"
            node, index = source

    def _infinity_in(self, node: UOp, index: Index, origin: Origin) -> tuple[UOp, Index] | None:
        """Return an infinite operand that became a NaN: the line that made it is to blame."""
        if self.sought.nan is not None or not np.isnan(origin.value):
            return None
        return source_of(node, self.values, index, "inf")

    def _origin_at(self, node: UOp, index: Index) -> Origin:
        return origin_at(node, self.values, self.sought.check, self.iterations(), index)

    def iterations(self) -> tuple[Iteration, ...]:
        """Return the iterations around this FUNCTION."""
        return tuple([i if i.loc is None else i.replace(loc=choose_location(loop.node.locs))
                      for loop, i in iterations(self.running)])

    def find_in_body(self, body: UOp, args: Sequence[NDArray], result: int, index: Index,
                     *running: Running) -> OriginOrParam:
        """Return the origin of the NaN in an element of a result of a body."""
        return _Search(_values(body, args), self.sought, (*self.running, *running)).find(
            body.src[result], index)

    def call(self, call: UOp, result: int, index: Index) -> OriginOrParam:
        op, which = OpBodies(call), 0
        if op.selector:
            which = min(max(int(self.values[op.selector[0]]), 0), len(op.steps) - 1)
        origin = self.find_in_body(op.steps[which], [self.values[s] for s in op.operands], result,
                                   index)
        if isinstance(origin, Origin):  # its results have the lines of the call once it is inlined
            return origin.replace(locs=tuple([loc for loc in origin.locs if loc not in call.locs])
                                  or origin.locs)
        return origin and (origin[0] + len(op.selector), origin[1])

    def loop(self, call: UOp, result: int, index: Index) -> OriginOrParam:
        """Go back through the iterations, from the last one or that of a row."""
        op, steps = OpBodies(call), _LoopSteps(call, self.values)
        i, at = steps.last, index
        if result >= op.n_carries:
            i, at = steps.order.index(index[0]), index[1:]
        while i >= steps.carries.start:
            carries = steps.carries.before(i)
            if result < op.n_carries and steps.only_passes_on(
                    i, carries, result, at, self.sought.check):
                i -= 1
                continue
            inner = self.find_in_body(op.steps[0], steps.args(i, carries), result, at, Running(
                call, steps.consts, steps.inits, carries, steps.order[i]))
            if isinstance(inner, Origin | None):
                return inner
            slot, at = inner
            if slot < op.n_consts:
                return inner
            if slot >= op.n_consts + op.n_carries:
                return slot, (steps.order[i], *at)
            result, i = slot - op.n_consts, i - 1
        return op.n_consts + result, at


class _LoopSteps:
    """The steps of a loop, done again: the carries before each one from the first NaN or infinity
    on, which may become a NaN.

    Attributes:
        order: position -> the number of the step: the row of a SCAN.
        last: the position of the last step, -1 if there is none.
    """

    def __init__(self, call: UOp, values: Mapping[UOp, NDArray]) -> None:
        op, arg = OpBodies(call), call.arg
        self.op, self.body = op, op.steps[0]
        self.consts, self.inits, self.xs = op.split([values[s] for s in op.operands])
        self.order = range(1 << 60) if op.conditions else \
            range(arg.length)[::-1 if arg.reverse else 1]
        self.carries = CarriesOfSteps(lambda i, before: self._outs(i, before)[:op.n_carries])
        self.last = self._run()

    def args(self, i: int, carries: Sequence[NDArray]) -> list[NDArray]:
        """Return what the body takes in a step."""
        return [*self.consts, *carries, *[x[self.order[i]] for x in self.xs]]

    def _outs(self, i: int, carries: Sequence[NDArray]) -> list[NDArray]:
        return interp.apply(self.body, self.args(i, carries))

    def _run(self) -> int:
        before, i, has_bad = self.inits, 0, False
        while i < len(self.order) and all(interp.apply(
                condition, self.args(i, before))[0] for condition in self.op.conditions):
            outs = self._outs(i, before)
            has_bad = has_bad or any(is_bad(x, "inf").any() for x in (*before, *outs))
            if has_bad:
                self.carries.save(i, before)
            before, i = outs[:self.op.n_carries], i + 1
        return i - 1

    def only_passes_on(self, i: int, carries: Sequence[NDArray], carry: int, index: Index,
                       check: str) -> bool:
        """Whether an element of a carry is bad after a step since it was bad before it, and for no
        other reason."""
        if not is_bad(carries[carry], check)[index]:
            return False
        finite = [replace_bad(x, is_bad(x, check)) for x in self.args(i, carries)]
        if is_bad(interp.apply(self.body, finite)[carry], check)[index]:
            return False
        finite[self.op.n_consts + carry][index] = carries[carry][index]
        return bool(is_bad(interp.apply(self.body, finite)[carry], check)[index])


OriginOrParam = Origin | tuple[int, Index] | None  # a PARAM: its slot and the element

_SEARCH_RULES: dict[ops.Op, Callable[[_Search, UOp, int, Index], OriginOrParam]] = {
    ops.CALL: lambda s, call, result, index: s.call(call, result, index)
    if call.src[0].op is ops.FUNCTION else _search_kernel(s, call, result, index),
    ops.COND: _Search.call, ops.SCAN: _Search.loop, ops.WHILE: _Search.loop,
    ops.CUSTOM: _Search.call}


def _search_kernel(search: _Search, call: UOp, result: int, index: Index) -> OriginOrParam:
    """Return an operand of a user-written kernel that has the NaN, or the kernel as origin."""
    node, check = build.results(call)[result], search.sought.check
    if (source := source_of(node, search.values, index, check)) is not None:
        return accessors.operands(call).index(source[0]), source[1]
    whole, bad = f"kernel {call.arg.name}", float(decode_values(search.values[node])[index])
    inside: list[Origin] = []

    def watch(store: UOp, node: UOp, values: Mapping[UOp, Any]) -> None:
        if not inside and node.op in ops.ELEMENTWISE and is_bad(values[node], check).any() and \
                not any(is_bad(values.get(s), check).any() for s in node.src):
            at = origin_at(node, {n: np.broadcast_to(values[n], values[node].shape)
                                  for n in (node, *node.src)}, check)
            inside.append(at.replace(description=f"{at.description} in {whole}", index=index,
                                     loops=search.iterations(), locs=node.locs or store.locs))

    interp.apply_kernel(call, [search.values[s] for s in accessors.operands(call)], watch)
    return inside[0] if inside else Origin(whole, index, bad, loops=search.iterations(),
                                           locs=call.locs)
