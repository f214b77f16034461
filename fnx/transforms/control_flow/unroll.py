"""Unroll a SCAN: run several steps in one, with a body that calls the original repeatedly.

    before  SCAN(f, 7 steps)(c, xs)
    after   SCAN(f3, 2 steps)(c, xs[:6] as 2 rows of 3), then f(c, xs[6])
            with f3 = FUNCTION(f, then f, then f)

>>> from fnx.core.ir import dtypes
>>> c, x = (build.param(i, dtypes.float32, ()) for i in (0, 1))
>>> body = build.function([build.add(c, x), build.mul(c, x)], 2)
>>> twice = repeat_body(body, 2, [], [c], [build.iota(6, dtypes.float32)], reverse=False)
>>> [out.shape for out in twice.src]
[(), (2,)]
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core.ir import build, build_calls
from fnx.core.ir.derivations import derived_forms
from fnx.core.ir.uop import UOp


def unrolled_scan(body: UOp, length: int, consts: Sequence[UOp], carries: Sequence[UOp],
                  xs: Sequence[UOp], reverse: bool, unroll: int, checkpoint: int = 0,
                  name: str = "") -> Sequence[UOp]:
    """Return the results of a SCAN unrolled by ``unroll`` steps; 0 unrolls all of them. Its name is
    by default that of its body."""
    name = name or body.arg.name
    if unroll == 1 or length < 2:
        return build_calls.scan(body, length, consts, carries, xs, reverse, name, checkpoint)
    factor, n = min(unroll or length, length), len(carries)
    block = repeat_body(body, factor, consts, carries, xs, reverse)
    rounds, remainder = divmod(length, factor)
    unrolled_length = rounds * factor

    def scan_remainder(carries: Sequence[UOp]) -> Sequence[UOp]:
        rows = [slice_rows(x, unrolled_length, length) for x in xs]
        return build_calls.scan(body, remainder, consts, carries, rows, reverse, name)

    def scan_blocks(carries: Sequence[UOp]) -> Sequence[UOp]:
        rows = [slice_rows(x, 0, unrolled_length) for x in xs]
        if rounds == 1:
            return build_calls.call(block, [*consts, *carries, *rows])
        split = [build.reshape(x, (rounds, factor, *x.shape[1:])) for x in rows]
        outs = build_calls.scan(block, rounds, consts, carries, split, reverse, name,
                                -(-checkpoint // factor))
        return [*outs[:n], *[build.reshape(y, (unrolled_length, *y.shape[2:])) for y in outs[n:]]]

    if not remainder:
        return scan_blocks(carries)
    if reverse:
        last_rows = scan_remainder(carries)
        first_rows = end = scan_blocks(last_rows[:n])
    else:
        first_rows = scan_blocks(carries)
        last_rows = end = scan_remainder(first_rows[:n])
    return [*end[:n], *[build.concat([a, b], 0) for a, b in zip(first_rows[n:], last_rows[n:])]]


def repeat_body(body: UOp, factor: int, consts: Sequence[UOp], carries: Sequence[UOp],
                xs: Sequence[UOp], reverse: bool) -> UOp:
    """Repeat a body: a FUNCTION (consts, carries, rows of x) -> (carries, rows of y).

    ``factor`` is the number of steps. ``consts``, ``carries`` and ``xs`` are the operands of the
    SCAN; only their types are used.
    """
    types = tuple([(x.dtype, x.shape) for x in (*consts, *carries)] +
                  [(x.dtype, (factor, *x.shape[1:])) for x in xs])
    first, n = len(consts), len(carries)

    def make() -> UOp:
        params = [build.param(i, dtype, shape) for i, (dtype, shape) in enumerate(types)]
        carry: Sequence[UOp] = params[first:first + n]
        rows: list[Sequence[UOp]] = []
        for t in reversed(range(factor)) if reverse else range(factor):
            x = [build.reshape(slice_rows(p, t, t + 1), p.shape[1:]) for p in params[first + n:]]
            outs = build_calls.call(body, [*params[:first], *carry, *x])
            carry = outs[:n]
            rows.append(outs[n:])
        ys = zip(*(reversed(rows) if reverse else rows))
        return build.function([*carry, *[_stack_rows(y) for y in ys]], len(types), body.arg.name)

    fn: UOp = derived_forms(body).get_or_make((repeat_body, factor, types, reverse), make)
    return fn


def slice_rows(x: UOp, start: int, stop: int) -> UOp:
    """Return x[start:stop]."""
    return build.shrink(x, [(start, stop), *((0, n) for n in x.shape[1:])])


def _stack_rows(rows: Sequence[UOp]) -> UOp:
    return build.concat([build.reshape(y, (1, *y.shape)) for y in rows], 0)
