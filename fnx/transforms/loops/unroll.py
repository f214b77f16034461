"""Unroll a SCAN: run several steps in one, with a body that calls the original repeatedly.

    before  SCAN(f, 7 steps)(c, xs)
    after   SCAN(f3, 2 steps)(c, xs[:6] as 2 rows of 3), then f(c, xs[6])
            with f3 = FUNCTION(f, then f, then f)

>>> from fnx.core import dtypes
>>> c, x = (build.param(i, dtypes.float32, ()) for i in (0, 1))
>>> body = build.function([build.add(c, x), build.mul(c, x)], 2)
>>> twice = several(body, 2, [], [c], [build.iota(6, dtypes.float32)], reverse=False)
>>> [out.shape for out in twice.src]
[(), (2,)]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fnx.core import build, build_calls
from fnx.core.cache import CacheOf
from fnx.core.uop import UOp

MAX_UNROLLED = 8  # cached for each body
_several: CacheOf[UOp, tuple[Any, ...], UOp] = CacheOf("unrolled bodies", MAX_UNROLLED)


def unrolled_scan(body: UOp, length: int, consts: Sequence[UOp], carries: Sequence[UOp],
                  xs: Sequence[UOp], reverse: bool, unroll: int, checkpoint: int = 0
                  ) -> Sequence[UOp]:
    """Return the results of a SCAN unrolled by ``unroll`` steps; 0 unrolls all of them."""
    if unroll == 1 or length < 2:
        return build_calls.scan(body, length, consts, carries, xs, reverse, checkpoint=checkpoint)
    many, n = min(unroll or length, length), len(carries)
    block = several(body, many, consts, carries, xs, reverse)
    rounds, rest = divmod(length, many)
    whole = rounds * many

    def last_few(carries: Sequence[UOp]) -> Sequence[UOp]:
        rows = [rows_of(x, whole, length) for x in xs]
        return build_calls.scan(body, rest, consts, carries, rows, reverse)

    def blocks(carries: Sequence[UOp]) -> Sequence[UOp]:
        rows = [rows_of(x, 0, whole) for x in xs]
        if rounds == 1:
            return build_calls.call(block, [*consts, *carries, *rows])
        split = [build.reshape(x, (rounds, many, *x.shape[1:])) for x in rows]
        outs = build_calls.scan(block, rounds, consts, carries, split, reverse, body.arg.name,
                                -(-checkpoint // many))
        return [*outs[:n], *[build.reshape(y, (whole, *y.shape[2:])) for y in outs[n:]]]

    if not rest:
        return blocks(carries)
    if reverse:
        behind = last_few(carries)
        front = end = blocks(behind[:n])
    else:
        front = blocks(carries)
        behind = end = last_few(front[:n])
    return [*end[:n], *[build.concat([a, b], 0) for a, b in zip(front[n:], behind[n:])]]


def several(body: UOp, many: int, consts: Sequence[UOp], carries: Sequence[UOp],
            xs: Sequence[UOp], reverse: bool) -> UOp:
    """Repeat a body: a FUNCTION (consts, carries, rows of x) -> (carries, rows of y).

    ``many`` is the number of steps. ``consts``, ``carries`` and ``xs`` are the operands of the
    SCAN; only their types are used.
    """
    types = tuple([(x.dtype, x.shape) for x in (*consts, *carries)] +
                  [(x.dtype, (many, *x.shape[1:])) for x in xs])
    first, n = len(consts), len(carries)

    def make() -> UOp:
        params = [build.param(i, dtype, shape) for i, (dtype, shape) in enumerate(types)]
        carry: Sequence[UOp] = params[first:first + n]
        rows: list[Sequence[UOp]] = []
        for t in reversed(range(many)) if reverse else range(many):
            x = [build.reshape(rows_of(p, t, t + 1), p.shape[1:]) for p in params[first + n:]]
            outs = build_calls.call(body, [*params[:first], *carry, *x])
            carry = outs[:n]
            rows.append(outs[n:])
        ys = zip(*(reversed(rows) if reverse else rows))
        return build.function([*carry, *[_stacked(y) for y in ys]], len(types), body.arg.name)

    return _several.of(body).find((many, types, reverse), make)


def rows_of(x: UOp, start: int, stop: int) -> UOp:
    """Return x[start:stop]."""
    return build.shrink(x, [(start, stop), *((0, n) for n in x.shape[1:])])


def _stacked(rows: Sequence[UOp]) -> UOp:
    return build.concat([build.reshape(y, (1, *y.shape)) for y in rows], 0)
