"""NaN debugger: find the op that produced a NaN, by recomputing a FUNCTION node by node.

    y = log(x - 1), z = y * 2          z has a NaN at 3  ->  y has one, x - 1 has none: LOG, at 3

The search goes from a result with a NaN back to an operand that has one, until no operand does:
that node produced it. At a WHERE it follows the selected operand; it enters the bodies of calls,
branches and loops, and there the first iteration with a NaN. Effects are not repeated.

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

from fnx.core.ir import accessors, build, low_precision, ops
from fnx.core.ir.dtypes import NUMPY_DTYPES, NDArray, as_dtype
from fnx.core.ir.op_bodies import OpBodies
from fnx.core.ir.uop import CallLocation, DerivativeLocation, UOp, toposort
from fnx.core.levels import interp
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


def is_bad(value: Any, check: str) -> Any:
    """Return where a value is NaN, or for the check "inf" also infinite."""
    if not isinstance(value, np.ndarray | np.generic):
        return np.False_
    value = decode_values(value)
    if value.dtype.kind not in "fc":
        return np.False_
    return np.isnan(value) if check == "nan" else ~np.isfinite(value)


def decode_values(value: Any) -> NDArray:
    """Return the values of an array, decoded if its type is storage-only."""
    array = np.asarray(value)
    return low_precision.decode(array,
                                as_dtype(array.dtype)) if array.dtype in NUMPY_DTYPES else array


class Origin(Record):
    """The origin of a NaN.

    Attributes:
        description: an op name, or a description of an argument or callback.
        index: index of the first bad element.
        value: that element.
        operands: what the op computed the element from, if that is another value for each operand.
        loops: the enclosing iterations, the outermost first.
        loc: the user's line of a callback.
        locs: candidate lines.
        nan: the op that made a NaN of this infinity.
    """

    description: str
    index: tuple[int, ...]
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
        of_derivative = isinstance(loc, DerivativeLocation)
        function = loc.function if isinstance(loc, CallLocation) else ""
        what = f" in the derivative of {f'{function} in ' if function else ''}this line" \
            if of_derivative else ""
        text = self.text if of_derivative else self.text_of(function)
        return NotFiniteError(
            f"{whose}expected no {_BAD_VALUES[check]}, got {text}{what}{loops}"
            f"{self._became()}",
            loc=loc, locs=self.locs, hint=_DOUBLE_WHERE if of_derivative and any(
                x == 0 or np.isinf(x) for x in self.operands) else
            "check the inputs of this line; config.check = '' turns this check off")

    def restrict_lines(self, lines: Container[Location]) -> Origin:
        """Restrict the candidate lines to those of the program, if there are any."""
        return self.replace(locs=own_locations(self.locs, lines),
                            nan=self.nan and self.nan.restrict_lines(lines))

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

    def _became(self) -> str:
        """Return where this infinity became a NaN."""
        if self.nan is None:
            return ""
        loc = _choose(self.nan.locs)
        return f"; it became NaN in {self.nan.description}{self.nan._of_operands()}" + (
            f" in the derivative of {format_location(loc)}" if loc else "")

    def _of_operands(self) -> str:
        values = " and ".join([f"{x:.5g}" for x in self.operands])
        return values and f" of {values}"

    def of_infinity(self, infinity: Origin | int | None) -> Origin:
        """Return the origin of the infinity that this op made a NaN of, if in a derivative."""
        if not isinstance(infinity, Origin):
            return self
        of_derivative = any(isinstance(loc, DerivativeLocation) for loc in infinity.locs)
        return infinity.replace(nan=self) if of_derivative else self


_OPERATORS = {"div": "divide", "mul": "multiply", "pow": "power", "sub": "subtract"}
_DOUBLE_WHERE = (
    "sqrt, log, division and powers have an infinite derivative at 0, arcsin, arccos and arctanh "
    "at -1 and 1, and 0 * inf is NaN; choose the input and the result (double where): "
    "safe = jnp.where(v > 0, v, 1); y = jnp.where(v > 0, jnp.sqrt(safe), 0)")


def _choose(locs: Sequence[Location]) -> Location | None:
    """Choose the line to report among those of a node, the most likely of which is the last."""
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
            origin_ = find_origin(fn, args, i, check) or Origin(
                f"result {i}, but none when recomputed: it came from a callback or from "
                "rounding", *_first_bad(value, check))
            raise origin_.restrict_lines(lines).error(check, fn.arg.name)


def find_origin(fn: UOp, args: Sequence[NDArray], result: int, check: str) -> Origin | None:
    """Return the origin of the NaN in a result; None if recomputing gives no NaN."""
    sought = _Sought(check)
    with np.errstate(all="ignore"):
        result_origin = callbacks.suppress_effects(
            lambda: _Search(fn, args, sought).find(fn.src[result]))
    if sought.nan is not None:
        result_origin = sought.nan.of_infinity(result_origin)
    if isinstance(result_origin, Origin):
        return _Lines(fn).by_likelihood(result_origin)
    if isinstance(result_origin, int):
        return Origin(f"argument {result_origin}", *_first_bad(args[result_origin], check))
    return result_origin


def origin_at(node: UOp, values: Mapping[UOp, NDArray], check: str,
              loops: tuple[Iteration, ...] = ()) -> Origin:
    """Return a node whose value has a NaN, while those of its operands have none, as the origin."""
    call = node.src[0] if node.op is ops.GETTUPLE else node
    what = call.arg.name if node.op is ops.GETTUPLE else node.op.name.lower()
    loc = callbacks.handle_location(int(values[call.src[0]])) if call.op is ops.CALLBACK else None
    index, value = _first_bad(values[node], check)
    operands = [values[s] for s in node.src if s in values] if node.op in ops.ELEMENTWISE else []
    return Origin(what, index, value, tuple([
        float(decode_values(x)[index]) for x in operands if decode_values(x).dtype.kind == "f"]),
        loops, loc, node.locs or call.locs)


def _first_bad(value: NDArray, check: str) -> tuple[tuple[int, ...], float]:
    index = tuple([int(i) for i in np.argwhere(is_bad(value, check))[0]])
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


class _Search:
    """A search in one FUNCTION, evaluated on values."""

    def __init__(self, fn: UOp, args: Sequence[NDArray], sought: _Sought,
                 running: tuple[Running, ...] = ()) -> None:
        self.sought, self.args, self.running = sought, [np.asarray(a) for a in args], running
        order = toposort(fn.src, stop=lambda n: n.op is ops.KERNEL)
        nodes = [n for n in order if n.op.result != "void"]
        env = {p: self.args[i] for i, p in build.params(fn).items()}
        self.values: dict[UOp, NDArray] = dict(zip(nodes, interp.evaluate(nodes, env)))

    def is_bad_node(self, node: UOp) -> bool:
        return node in self.values and bool(is_bad(self.values[node], self.sought.check).any())

    def find(self, node: UOp) -> Origin | int | None:
        """Return the origin of the NaN in a node, or the slot of the PARAM that it came from."""
        if not self.is_bad_node(node):
            return None
        reader: UOp | None = None  # what chooses or moves a constant has its index and line
        while True:
            if node.op is ops.WHERE or node.op.kind == "movement" and reader is None:
                reader = node
            elif node.op.kind not in ("movement", "source"):
                reader = None
            if node.op is ops.PARAM:
                return int(node.arg.slot)
            if node.op is ops.GETTUPLE and node.src[0].op in _SEARCH_RULES:
                call = node.src[0]
                inner = _SEARCH_RULES[call.op](self, call, node.arg)
                if not isinstance(inner, int):
                    return inner
                operand: UOp | None = accessors.operands(call)[inner]
            else:
                operand = self._bad_operand(node)
            if operand is None:
                origin = self._origin_at(node)
                if node.op is ops.CONST and reader is not None:
                    origin = self._origin_at(reader).replace(description="const", operands=())
                if (infinity := self._infinity_in(node, origin)) is None:
                    return origin
                self.sought.nan, self.sought.check = origin, "inf"
                operand = infinity
            node = operand

    def _infinity_in(self, node: UOp, origin: Origin) -> UOp | None:
        """Return an infinite operand that became a NaN in a derivative: its line is to blame."""
        if self.sought.nan is not None or not np.isnan(origin.value) or \
                not any(isinstance(loc, DerivativeLocation) for loc in origin.locs):
            return None
        return next((s for s in node.src if s in self.values
                     and is_bad(self.values[s], "inf").any()), None)

    def _bad_operand(self, node: UOp) -> UOp | None:
        """Return an operand that the NaN came from, or None."""
        if node.op is ops.GETTUPLE:
            node = node.src[0]
        src = node.src
        if node.op is ops.WHERE:
            index, _ = _first_bad(self.values[node], self.sought.check)
            src = (node.src[1 if self.values[node.src[0]][index] else 2],)
        return next((s for s in src if self.is_bad_node(s)), None)

    def _origin_at(self, node: UOp) -> Origin:
        return origin_at(node, self.values, self.sought.check, self.iterations())

    def iterations(self) -> tuple[Iteration, ...]:
        """Return the iterations around this FUNCTION."""
        return tuple([i if i.loc is None else i.replace(loc=choose_location(loop.node.locs))
                      for loop, i in iterations(self.running)])

    def find_in_body(self, body: UOp, args: Sequence[NDArray], result: int,
                     *running: Running) -> Origin | int | None:
        """Return the origin of the NaN in a result of a body, or the slot of its PARAM."""
        return _Search(body, args, self.sought, (*self.running, *running)).find(body.src[result])

    def call(self, call: UOp, result: int) -> Origin | int | None:
        op, which = OpBodies(call), 0
        if op.selector:
            which = min(max(int(self.values[op.selector[0]]), 0), len(op.steps) - 1)
        origin = self.find_in_body(op.steps[which], [self.values[s] for s in op.operands], result)
        return origin + len(op.selector) if isinstance(origin, int) else origin

    def loop(self, call: UOp, result: int) -> Origin | int | None:
        """Find the first iteration after which a result has the NaN, and search its body."""
        op, arg = OpBodies(call), call.arg
        consts, inits, xs = op.split([self.values[s] for s in op.operands])
        order = range(1 << 60) if op.conditions else range(arg.length)[::-1 if arg.reverse else 1]
        (body,), carries, i = op.steps, inits, 0
        while i < len(order):
            step_args = [*consts, *carries, *[x[order[i]] for x in xs]]
            if not all(interp.apply(condition, step_args)[0] for condition in op.conditions):
                break
            outs = interp.apply(body, step_args)
            if is_bad(outs[result], self.sought.check).any():
                inner = self.find_in_body(body, step_args, result, Running(
                    call, consts, inits, carries, order[i]))
                if isinstance(inner, Origin):
                    return inner
                if inner is None or not 0 <= inner - op.n_consts < op.n_carries or not i:
                    return inner
                result, carries, i = inner - op.n_consts, inits, 0  # restart with that carry
                continue
            carries, i = outs[:op.n_carries], i + 1
        return op.n_consts + result if result < op.n_carries else None


_SEARCH_RULES: dict[ops.Op, Callable[[_Search, UOp, int], Origin | int | None]] = {
    ops.CALL: lambda s, call, result: s.call(call, result)
    if call.src[0].op is ops.FUNCTION else _search_kernel(s, call, result),
    ops.COND: _Search.call, ops.SCAN: _Search.loop, ops.WHILE: _Search.loop,
    ops.CUSTOM: _Search.call}


def _search_kernel(search: _Search, call: UOp, result: int) -> Origin | int | None:
    """Return an operand of a user-written kernel that has the NaN, or the kernel as origin."""
    for i, operand in enumerate(accessors.operands(call)):
        if search.is_bad_node(operand):
            return i
    check, whole = search.sought.check, f"kernel {call.arg.name}"
    index, bad = _first_bad(search.values[build.results(call)[result]], check)
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
