"""Index tokens: the integers by which fusion represents where a node is read.

A value read inside a kernel is read at one token per axis. A token is

    ZERO                        the axis has length 1
    int                         a loop of the kernel: its output axes are 0, 1, ...; reduction
                                loops have larger numbers
    ("join", ((token, n), ...)) mixed radix, outermost first
    ("part", token, d, n, m)    (token // d) % n of a token with extent m
    ("shift", token, k)         token + k; may be out of bounds, then the value is masked
    ("flip", token, n)          n - 1 - token
    ("window", ((token, k), ...), s)  the sum of all k * token, divided by s, rounded down
    ("data", index, n)          an index loaded from data, in bounds of an axis of length n

Movement ops only change tokens. Tokens are compared by value, so fusion needs no index
arithmetic; `index_node` turns them into nodes once a kernel is decided.

>>> from fnx.core.ir import build, dtypes
>>> x = build.param(0, dtypes.float32, (4, 6))
>>> source_index(build.permute(x, (1, 0)), 0, (7, 8))
(8, 7)
>>> source_index(build.reshape(x, (24,)), 0, (7,))
(('part', 7, 6, 4, 24), ('part', 7, 1, 6, 24))
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

from fnx.core.ir import build, ops
from fnx.core.ir.expr import Expr
from fnx.core.ir.uop import UOp

Token = Any  # int | tuple, see above
Tokens = tuple[Token, ...]
ZERO = -1


def identity_index(shape: ops.Shape) -> Tokens:
    """Return the tokens of a kernel's own results: its axes in order; axes of length 1 are ZERO."""
    axis = itertools.count()
    return tuple([ZERO if n == 1 else next(axis) for n in shape])


def squeeze(index: Tokens) -> Tokens:
    """Return the tokens without those of length-1 axes."""
    return tuple(t for t in index if t != ZERO)


def shift(token: Token, by: int) -> Token:
    """Return token + by; a shift by 0 is still distinct from the plain token."""
    if type(token) is tuple and token[0] == "shift":
        return ("shift", token[1], token[2] + by)
    return ("shift", token, by)


# ---- movement -----------------------------------------------------------------------------------


def source_index(node: UOp, i: int, index: Tokens) -> Tokens:
    """Return the index at which a node at ``index`` reads operand ``i``."""
    rule = _RULES.get(node.op)
    return index if rule is None else rule(node, i, index)


def _reshape(node: UOp, i: int, index: Tokens) -> Tokens:
    return reindex(node.shape, node.src[0].shape, index)


def _permute(node: UOp, i: int, index: Tokens) -> Tokens:
    out: list[Token] = [ZERO] * len(index)
    for position, axis in enumerate(node.arg):
        out[axis] = index[position]
    return tuple(out)


def _expand(node: UOp, i: int, index: Tokens) -> Tokens:
    return tuple([ZERO if n == 1 else t for n, t in zip(node.src[0].shape, index)])


def _pad(node: UOp, i: int, index: Tokens) -> Tokens:
    if i == 1:
        return ()
    return tuple([t if widths == (0, 0) else shift(t, -widths[0])
                  for t, widths in zip(index, node.arg)])


def _shrink(node: UOp, i: int, index: Tokens) -> Tokens:
    return tuple([t if (lo, hi) == (0, n) else shift(t, lo)
                  for t, (lo, hi), n in zip(index, node.arg, node.src[0].shape)])


def _flip(node: UOp, i: int, index: Tokens) -> Tokens:
    return tuple([("flip", t, n) if axis in node.arg else t
                  for axis, (t, n) in enumerate(zip(index, node.shape))])


def _concat(node: UOp, i: int, index: Tokens) -> Tokens:
    start = sum(s.shape[node.arg] for s in node.src[:i])
    return tuple([shift(t, -start) if axis == node.arg else t for axis, t in enumerate(index)])


def _unfold(node: UOp, i: int, index: Tokens) -> Tokens:
    w = node.arg
    return _at_axis(index, w.axis, ((index[w.axis], w.stride), (index[w.offset], w.dilation)), 1)


def _fold(node: UOp, i: int, index: Tokens) -> Tokens:
    w = node.arg
    return _at_axis(index, w.axis, ((index[w.axis], 1), (index[w.offset], -w.dilation)), w.stride)


def _at_axis(index: Tokens, axis: int, terms: tuple[tuple[Token, int], ...], divisor: int
             ) -> Tokens:
    terms = tuple([(t, k) for t, k in terms if t != ZERO])
    return (*index[:axis], ("window", terms, divisor), *index[axis + 1:])


_RULES: dict[ops.Op, Callable[[UOp, int, Tokens], Tokens]] = {
    ops.RESHAPE: _reshape, ops.PERMUTE: _permute, ops.EXPAND: _expand, ops.PAD: _pad,
    ops.SHRINK: _shrink, ops.FLIP: _flip, ops.CONCAT: _concat, ops.UNFOLD: _unfold,
    ops.FOLD: _fold,
}


def reindex(shape: ops.Shape, source: ops.Shape, index: Tokens) -> Tokens:
    """Return the tokens of the same row-major element under another shape."""
    flat: list[tuple[Token, int]] = []
    for t, n in zip(index, shape):
        if type(t) is tuple and t[0] == "join" and math.prod(m for _, m in t[1]) == n:
            flat.extend(t[1])
        elif n != 1:
            flat.append((t, n))
    queue = _merge_parts(flat)[::-1]
    return tuple([ZERO if n == 1 else _take_extent(queue, n) for n in source])


def _take_extent(queue: list[tuple[Token, int]], n: int) -> Token:
    """Consume tokens with total extent ``n`` from the end of ``queue`` (outermost last)."""
    taken: list[tuple[Token, int]] = []
    taken_extent = 1
    while taken_extent < n:
        token, m = queue.pop()
        needed = n // taken_extent
        if taken_extent * m <= n and n % (taken_extent * m) == 0:
            taken.append((token, m))
            taken_extent *= m
        elif m % needed == 0 and taken_extent * needed == n:
            inner_extent = m // needed
            taken.append((_make_part(token, inner_extent, needed, m), needed))
            queue.append((_make_part(token, 1, inner_extent, m), inner_extent))
            taken_extent = n
        else:  # misaligned: use the flat offset of everything remaining
            queue.append((token, m))
            remaining = (*taken, *queue[::-1])
            total = math.prod(k for _, k in remaining)
            flat = ("join", remaining) if len(remaining) > 1 else remaining[0][0]
            inner_extent = total // n
            queue[:] = [(_make_part(flat, 1, inner_extent, total),
                         inner_extent)] if inner_extent > 1 else []
            return _make_part(flat, inner_extent, n, total)
    return taken[0][0] if len(taken) == 1 else ("join", tuple(_merge_parts(taken)))


def _make_part(token: Token, d: int, n: int, whole: int) -> Token:
    if type(token) is tuple and token[0] == "part":
        return ("part", token[1], token[2] * d, n, token[4])
    return ("part", token, d, n, whole)


def _merge_parts(flat: list[tuple[Token, int]]) -> list[tuple[Token, int]]:
    """Merge adjacent parts: (t // 6) % 4 followed by t % 6 is t if t has extent 24."""
    out: list[tuple[Token, int]] = []
    for t, n in flat:
        if out and type(t) is tuple and t[0] == "part":
            u, m = out[-1]
            if type(u) is tuple and u[0] == "part" and u[1] == t[1] and u[2] == t[2] * n:
                merged = ("part", t[1], t[2], m * n, t[4])
                out[-1] = (t[1] if t[2] == 1 and m * n == t[4] else merged, m * n)
                continue
        out.append((t, n))
    return out


# ---- tokens -> nodes ----------------------------------------------------------------------------


def index_node(token: Token, ranges: Mapping[int, UOp], memo: dict[Token, UOp]) -> UOp:
    """Build the index expression of a token; ``ranges`` maps loops to RANGE nodes."""
    if token == ZERO:
        return build.index_const(0)
    if type(token) is int:
        return ranges[token]
    node = memo.get(token)
    if node is None:
        node = memo[token] = _node(token, ranges, memo)
    return node


def _node(token: Token, ranges: Mapping[int, UOp], memo: dict[Token, UOp]) -> UOp:
    kind = token[0]
    if kind == "join":
        (first, _), *rest = token[1]
        total = Expr(index_node(first, ranges, memo))
        for t, n in rest:
            total = total * n + Expr(index_node(t, ranges, memo))
        return total.node
    if kind == "window":
        _, terms, divisor = token
        offset = Expr(build.index_const(0))
        for t, k in terms:
            offset = offset + Expr(index_node(t, ranges, memo)) * k
        quotient: Expr = offset if divisor == 1 else offset // divisor
        return quotient.node
    if kind == "part":
        return _part_node(token, ranges, memo)
    if kind == "data":
        index: UOp = token[1]
        return index
    inner = Expr(index_node(token[1], ranges, memo))
    out: Expr = inner + token[2] if kind == "shift" else inner.like(token[2] - 1) - inner
    return out.node


def _part_node(token: Token, ranges: Mapping[int, UOp], memo: dict[Token, UOp]) -> UOp:
    """Build a "part". A shift by a multiple of its period only changes masked elements, so it is
    dropped: the rest is known to be >= 0."""
    _, inner_token, d, n, _ = token
    if type(inner_token) is tuple and inner_token[0] == "shift" and inner_token[2] % (d * n) == 0:
        inner_token = inner_token[1]
    inner = Expr(index_node(inner_token, ranges, memo))
    digits: Expr = (inner if d == 1 else inner // d) % n
    return digits.node
