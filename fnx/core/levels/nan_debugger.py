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

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx.core.ir import accessors, build, low_precision, ops
from fnx.core.ir.dtypes import NUMPY_DTYPES, NDArray, as_dtype
from fnx.core.ir.op_bodies import OpBodies
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels import interp
from fnx.core.scope import callbacks
from fnx.core.support.errors import Location, NotFiniteError, choose_location, format_location
from fnx.core.support.record import Record

_BAD_VALUES = {"nan": "NaN", "inf": "NaN or infinity"}


def is_bad(value: Any, check: str) -> Any:
    """Return where a value is NaN, or for the check "inf" also infinite."""
    if not isinstance(value, np.ndarray | np.generic):
        return np.False_
    value = _decode_values(value)
    if value.dtype.kind not in "fc":
        return np.False_
    return np.isnan(value) if check == "nan" else ~np.isfinite(value)


def _decode_values(value: Any) -> NDArray:
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
        loops: the enclosing loops, the innermost first: (iteration, description).
        loc: the user's line of a callback.
        locs: candidate lines.
    """

    description: str
    index: tuple[int, ...]
    value: float
    loops: tuple[tuple[int, str], ...] = ()
    loc: Location | None = None
    locs: tuple[Location, ...] = ()

    def error(self, check: str, name: str) -> NotFiniteError:
        """Return the error for the user."""
        where = f" at {list(self.index)}" if self.index else ""
        loops = "".join(f", in iteration {i} of {loop}" for i, loop in self.loops)
        whose = f"{name}: " if name else ""
        return NotFiniteError(
            f"{whose}expected no {_BAD_VALUES[check]}, got {self.value} from "
            f"{self.description}{where}"
            f"{loops}", loc=self.loc, locs=self.locs,
            hint="check the inputs of this line; config.check = '' turns this check off")


def check_results(fn: UOp, args: Sequence[NDArray], results: Sequence[NDArray], check: str) -> None:
    """Raise if a result has a NaN.

    Raises:
        NotFiniteError: names the op that produced it, the line, iteration and index.
    """
    for i, value in enumerate(results):
        if is_bad(value, check).any():
            origin_ = find_origin(fn, args, i, check) or Origin(
                f"result {i}, but none when recomputed: it came from a callback or from "
                "rounding", *_first_bad(value, check))
            raise origin_.error(check, fn.arg.name)


def find_origin(fn: UOp, args: Sequence[NDArray], result: int, check: str) -> Origin | None:
    """Return the origin of the NaN in a result; None if recomputing gives no NaN."""
    with np.errstate(all="ignore"):
        result_origin = callbacks.suppress_effects(
            lambda: _Search(fn, args, check).find(fn.src[result]))
    if isinstance(result_origin, int):
        return Origin(f"argument {result_origin}", *_first_bad(args[result_origin], check))
    return result_origin


def _first_bad(value: NDArray, check: str) -> tuple[tuple[int, ...], float]:
    index = tuple([int(i) for i in np.argwhere(is_bad(value, check))[0]])
    return index, float(_decode_values(value)[index])


class _Search:
    """A search in one FUNCTION, evaluated on values."""

    def __init__(self, fn: UOp, args: Sequence[NDArray], check: str) -> None:
        self.check, self.args = check, [np.asarray(a) for a in args]
        order = toposort(fn.src, stop=lambda n: n.op is ops.KERNEL)
        nodes = [n for n in order if n.op.result != "void"]
        env = {p: self.args[i] for i, p in build.params(fn).items()}
        self.values: dict[UOp, NDArray] = dict(zip(nodes, interp.evaluate(nodes, env)))

    def is_bad_node(self, node: UOp) -> bool:
        return node in self.values and bool(is_bad(self.values[node], self.check).any())

    def find(self, node: UOp) -> Origin | int | None:
        """Return the origin of the NaN in a node, or the slot of the PARAM that it came from."""
        if not self.is_bad_node(node):
            return None
        while True:
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
                return self._origin_at(node)
            node = operand

    def _bad_operand(self, node: UOp) -> UOp | None:
        """Return an operand that the NaN came from, or None."""
        if node.op is ops.GETTUPLE:
            node = node.src[0]
        src = node.src
        if node.op is ops.WHERE:
            index, _ = _first_bad(self.values[node], self.check)
            src = (node.src[1 if self.values[node.src[0]][index] else 2],)
        return next((s for s in src if self.is_bad_node(s)), None)

    def _origin_at(self, node: UOp) -> Origin:
        call = node.src[0] if node.op is ops.GETTUPLE else node
        what = call.arg.name if node.op is ops.GETTUPLE else node.op.name.lower()
        loc = callbacks.handle_location(int(self.values[call.src[0]])) if call.op is ops.CALLBACK \
            else None
        return Origin(what, *_first_bad(self.values[node], self.check), loc=loc,
                      locs=node.locs or call.locs)

    def find_in_body(self, body: UOp, args: Sequence[NDArray], result: int) -> Origin | int | None:
        """Return the origin of the NaN in a result of a body, or the slot of its PARAM."""
        return _Search(body, args, self.check).find(body.src[result])

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
            if is_bad(outs[result], self.check).any():
                inner = self.find_in_body(body, step_args, result)
                if isinstance(inner, Origin):
                    loc = choose_location(call.locs)
                    lines = f" ({format_location(loc)})" if loc else ""
                    loop = (order[i], f"{call.op.name.lower()} of {call.arg.name}{lines}")
                    return Origin(inner.description, inner.index, inner.value, (*inner.loops, loop),
                                  inner.loc, inner.locs)
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
    value = search.values[build.results(call)[result]]
    return Origin(f"kernel {call.arg.name}", *_first_bad(value, search.check),
                  locs=call.locs)
