"""The verifier: the legality rules of each level, as data.

``check`` tests every node against every rule of its op, operands first. The rules that the op
table implies come first (``_GENERIC``: the op belongs to the level; number of operands, type of
arg, dtype and shape), then the rules of the level. A violation is a bug of a pass, so the error
names the level, the rule, the node and its line in the user's code.

>>> from fnx.core.ir import build
>>> x = build.param(0, dtypes.float32, (3,))
>>> check([build.neg(x)], "tensor")
>>> check([UOp(ops.NEG, dtypes.int32, (x,))], "tensor")
Traceback (most recent call last):
    ...
fnx.core.support.errors.SpecError: ...: tensor level: expected the dtype that NEG's row derives; got
...
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from fnx.core.ir import accessors, build, build_calls, collectives, dtypes, linalg, ops
from fnx.core.ir.cache import memoized
from fnx.core.ir.op import gather_shape
from fnx.core.ir.ops import Op, Shape
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels import spec_command, spec_kernel, spec_program
from fnx.core.support.errors import SpecError
from fnx.core.support.process import lazy_import
from fnx.core.support.record import Record

fft_plan = lazy_import("fnx.core.formulas.fft_plan")


class SpecRule(Record):
    """A rule: ``holds(node)`` is true for every legal node whose op is in ``ops``."""

    ops: Collection[Op]
    expected: str
    holds: Callable[[UOp], bool]


class Level(Record):
    """A level: its letter in the op table, its rules, those for each op, and ops that contain
    another level."""

    letter: str
    rules: tuple[SpecRule, ...]
    rules_by_op: Mapping[Op, Sequence[SpecRule]]
    scopes: Mapping[Op, str] = {}


def check(roots: Iterable[UOp], level: str) -> None:
    """Check whole graphs, including the bodies of their FUNCTIONs and KERNELs, each once.

    A pass leaves most nodes as they are, so only nodes that no earlier check has seen are checked.

    Args:
        roots: the graphs.
        level: "tensor", "kernel", "program" or "command".

    Raises:
        SpecError: names the rule and the node that breaks it.
    """
    scopes, legal = LEVELS[level].scopes, _legal[level]
    if len(legal) > _MAX_LEGAL:
        legal.clear()
    for node in toposort(roots, into_functions=True,
                         stop=lambda n: n.number in legal or n.op in scopes):
        if node.number in legal:
            continue
        if node.op in scopes:
            check([node], scopes[node.op])
        else:
            _check_node(node, level)
        legal.add(node.number)


def _check_node(node: UOp, level: str) -> None:
    for rule in LEVELS[level].rules_by_op[node.op]:
        if not rule.holds(node):
            raise SpecError(
                f"{level} level: expected {rule.expected.replace('OP', node.op.name)}; got "
                f"{node} with operands {', '.join(map(repr, node.src)) or 'none'}",
                hint="a pass of fnx made this node; config.check_spec finds which",
                loc=node.loc)


def rules(roots: Iterable[UOp], level: str) -> Iterator[tuple[str, SpecRule, UOp]]:
    """Yield each node of whole graphs with each rule for it, operands first."""
    scopes = LEVELS[level].scopes
    for node in toposort(roots, into_functions=True, stop=lambda n: n.op in scopes):
        if node.op in scopes:
            yield from rules([node], scopes[node.op])
        else:
            yield from ((level, rule, node) for rule in LEVELS[level].rules_by_op[node.op])


# ---- rules implied by the op table ------------------------------------------------------------


def _dtype_derived(node: UOp) -> bool:
    result, src = node.op.result, node.src
    if result == "void":
        return node.dtype is dtypes.void
    if result == "bool":
        return node.dtype.scalar is dtypes.bool_
    if result == "where":
        return node.dtype is src[1].dtype is src[2].dtype
    if result in ("real", "complex"):
        return node.dtype is (src[0].dtype.real if result == "real" else
                              dtypes.complex_of(src[0].dtype))
    if result == "same":
        return node.dtype is src[0].dtype and node.dtype is not dtypes.void
    return node.dtype is not dtypes.void


_ALL = tuple(ops.OPS.values())
_GENERIC = (
    SpecRule(_ALL, "as many operands as OP's row says",
             lambda n: n.op.arity is None or len(n.src) == n.op.arity),
    SpecRule(_ALL, "the arg that OP's row says", lambda n: isinstance(n.arg, n.op.arg)
             and not isinstance(n.arg, bool)),
    SpecRule(_ALL, "the dtype that OP's row derives", _dtype_derived),
)
_SCALAR = SpecRule(_ALL, "a scalar dtype", lambda n: n.dtype.lanes == 1)
_REAL = SpecRule(_ALL, "a real dtype (below the tensor level, complex numbers are pairs)",
                 lambda n: not n.dtype.is_complex)

_SAME_TYPE_OPS = ops.ELEMENTWISE - {ops.WHERE}


def _same_types(node: UOp) -> bool:
    first, *others = node.src
    for s in others:
        if s.dtype is not first.dtype or s.shape != first.shape:
            return False
    return node.op.accepts_dtype(first.dtype)


def _where(node: UOp) -> bool:
    condition, a, b = node.src
    return condition.dtype.scalar is dtypes.bool_ and condition.dtype.lanes == a.dtype.lanes \
        and condition.shape == a.shape == b.shape


def _bitcast(node: UOp) -> bool:
    a, b = node.dtype, node.src[0].dtype
    return a.bits == b.bits and a.lanes == b.lanes and not a.is_bool and not b.is_bool


_BITS = SpecRule((ops.CONST,), "a bit pattern no wider than its dtype",
                 lambda n: 0 <= n.arg < 1 << n.dtype.bits)
VALUES = (
    SpecRule(_SAME_TYPE_OPS, "operands of one shape and one dtype that OP takes", _same_types),
    SpecRule((ops.WHERE,), "a bool condition and two values of one shape", _where),
    SpecRule((ops.WHERE,), "whether its condition hardly ever holds",
             lambda n: n.arg in (None, ops.UNLIKELY)),
    SpecRule((ops.BITCAST,), "two dtypes of equal width, neither of them bool", _bitcast),
    SpecRule((ops.THREEFRY,), "the word 0 or 1 as arg", lambda n: n.arg in (0, 1)),
    SpecRule((ops.ARG_PAIR,), "a key and a whole number of one shape", spec_kernel.is_arg_pair),
    SpecRule((ops.REDUCE,), "of pairs the largest or the smallest key", spec_kernel.is_arg_reduce),
    SpecRule(tuple(op for op in ops.OPS.values() if op is not ops.REDUCE and op.arity != 0),
             "no pair as an operand: only REDUCE folds pairs",
             lambda n: all(s.op is not ops.ARG_PAIR for s in n.src)),
    _BITS,
    SpecRule((ops.VAR,), "bounds low <= high", lambda n: n.arg.low <= n.arg.high),
)


# ---- tensor level -----------------------------------------------------------------------------


def _is_int_tuple(arg: Any) -> bool:
    return isinstance(arg, tuple) and all(type(i) is int and i >= 0 for i in arg)


def _is_pair_per_axis(node: UOp) -> bool:
    return len(node.arg) == len(node.src[0].shape) and all(
        _is_int_tuple(pair) and len(pair) == 2 for pair in node.arg)


def _expand(node: UOp) -> bool:
    old = node.src[0].shape
    return _is_int_tuple(node.arg) and len(old) == len(node.arg) and \
        all(n in (1, m) for n, m in zip(old, node.arg))


def _shrink(node: UOp) -> bool:
    return _is_pair_per_axis(node) and all(lo <= hi <= n
                                           for (lo, hi), n in zip(node.arg, node.src[0].shape))


def _windows(node: UOp) -> bool:
    """Return whether the axes are valid, and all windows lie inside the axis they slide over."""
    w, shape = node.arg, node.src[0].shape
    if not (_is_int_tuple((w.axis, w.offset, w.length)) and w.axis != w.offset
            and max(w.axis, w.offset) < len(shape) and min(w.stride, w.dilation) >= 1):
        return False
    count, length = (w.length, shape[w.axis]) if node.op is ops.UNFOLD else \
        (shape[w.axis], w.length)
    size = shape[w.offset]
    return 0 in (count, size) or (count - 1) * w.stride + (size - 1) * w.dilation < length


def _concat(node: UOp) -> bool:
    shapes = [s.shape for s in node.src]
    axis = node.arg
    return bool(shapes) and 0 <= axis < len(shapes[0]) and all(
        s.dtype is node.dtype and len(s.shape) == len(shapes[0])
        and s.shape[:axis] + s.shape[axis + 1:] == shapes[0][:axis] + shapes[0][axis + 1:]
        for s in node.src)


def _axes(node: UOp, axes: tuple[int, ...]) -> bool:
    return _is_int_tuple(axes) and list(axes) == sorted(set(axes)) and \
        all(a < len(node.src[0].shape) for a in axes)


def _reduce(node: UOp) -> bool:
    return len(node.src) == 1 and spec_kernel.accepts_monoid(node.arg.monoid, node.dtype) and \
        node.arg.axes != () and _axes(node, node.arg.axes)


def _indices(node: UOp, index: Sequence[UOp]) -> bool:
    axes, rank = node.arg.axes, len(node.src[0].shape)
    return _is_int_tuple(axes) and 0 < len(axes) == len(index) and \
        list(axes) == sorted(set(axes)) and axes[-1] < rank and \
        all(i.dtype.is_integer and i.shape == index[0].shape for i in index)


def _gather(node: UOp) -> bool:
    x, *index = node.src
    return _indices(node, index) and (
        0 not in [x.shape[a] for a in node.arg.axes] or 0 in node.shape)


def _scatter(node: UOp) -> bool:
    x, *index, updates = node.src
    return len(node.src) >= 3 and _indices(node, index) and updates.dtype is x.dtype and \
        updates.shape == gather_shape(node.src[:-1], node.arg) and \
        (node.arg.monoid is None or spec_kernel.accepts_monoid(node.arg.monoid, x.dtype))


def _closed(fn: UOp) -> bool:
    by_slot: dict[int, UOp] = {}
    for node in toposort(fn.src, stop=lambda n: n.op is ops.KERNEL):
        if node.op in (ops.LEAF, ops.BUFFER):
            return False
        if node.op is ops.PARAM and (node.arg.slot >= fn.arg.n_params
                                     or by_slot.setdefault(node.arg.slot, node) is not node):
            return False
    return True


def _call(node: UOp) -> bool:
    if not node.src or node.src[0].op not in (ops.FUNCTION, ops.KERNEL):
        return False
    body, args = node.src[0], node.src[1:]
    if body.op is ops.KERNEL:
        dtypes_given = [a.dtype for a in args] + [dtype for _, dtype in node.arg.outs]
        return all(slot < len(dtypes_given) and dtypes_given[slot] is dtype
                   for slot, dtype in _refs(body))
    return _takes(body, _types(args)) and node.arg.outs == _types(body.src)


def _takes(body: UOp, args: Sequence[tuple[Shape, dtypes.DType]]) -> bool:
    return body.op is ops.FUNCTION and body.arg.n_params == len(args) and all(
        args[i] == (p.shape, p.dtype) for i, p in build.params(body).items())


@memoized
def _refs(kernel: UOp) -> list[tuple[int, dtypes.DType]]:
    return [(ref.arg.slot, ref.dtype) for ref in toposort([kernel]) if ref.op is ops.REF]


def _types(nodes: Iterable[UOp]) -> tuple[tuple[Shape, dtypes.DType], ...]:
    return tuple([(n.shape, n.dtype) for n in nodes])


def _scan(node: UOp) -> bool:
    body, *args = node.src
    arg, types = node.arg, _types(args)
    x_start = arg.n_consts + arg.n_carries
    fixed, xs = types[:x_start], types[x_start:]
    body_types = _types(body.src)
    ys = [((arg.length, *shape), dtype) for shape, dtype in body_types[arg.n_carries:]]
    return arg.length >= 0 and all(shape[:1] == (arg.length,) for shape, _ in xs) and \
        _takes(body, [*fixed, *((shape[1:], dtype) for shape, dtype in xs)]) and \
        body_types[:arg.n_carries] == fixed[arg.n_consts:] and \
        arg.outs == (*fixed[arg.n_consts:], *ys)


def _while(node: UOp) -> bool:
    condition, body, *args = node.src
    types = _types(args)
    return _takes(condition, types) and _takes(body, types) and \
        _types(condition.src) == (((), dtypes.bool_),) and \
        _types(body.src) == types[node.arg.n_consts:] == node.arg.outs


def _cond(node: UOp) -> bool:
    n = node.arg.n_branches
    branches, which, types = node.src[:n], node.src[n], _types(node.src[n + 1:])
    return n > 0 and _types([which]) == (((), dtypes.int32),) and all(
        _takes(b, types) and _types(b.src) == node.arg.outs for b in branches)


def _host(node: UOp) -> bool:
    arg, types = node.arg, _types(node.src)
    ins = ((HANDLE, build_calls.TOKEN) if arg.effect else (HANDLE,)) + arg.ins
    lanes = tuple([n for n, _ in arg.batch_levels])
    return types == ins and (not arg.effect or arg.outs[0] == build_calls.TOKEN) and \
        all(len(batched) == len(arg.ins) for _, batched in arg.batch_levels) and \
        all(shape[:len(lanes)] == lanes for shape, _ in arg.outs[arg.effect:])


def _custom(node: UOp) -> bool:
    arg, fns, args = node.arg, accessors.bodies(node), _types(accessors.operands(node))
    captures, floats = args[:arg.n_captures], [t for t in args[arg.n_captures:] if t[1].is_inexact]
    if len(fns) != 1 + len(arg.rules) or not _takes(fns[0], args) or \
            _types(fns[0].src) != arg.outs:
        return False
    n, tangents = len(arg.outs), tuple([t for t in arg.outs if t[1].is_inexact])
    by_rule = dict(zip(arg.rules, fns[1:]))
    residuals: tuple[Any, ...] = ()
    if "jvp" in by_rule and not (_takes(by_rule["jvp"], [*args, *floats])
                                 and _types(by_rule["jvp"].src) == (*arg.outs, *tangents)):
        return False
    if "fwd" in by_rule:
        rule_types = _types(by_rule["fwd"].src)
        residuals = rule_types[n:]
        if not _takes(by_rule["fwd"], args) or rule_types[:n] != arg.outs:
            return False
    tokens, arg_types = [build_calls.TOKEN] * arg.effects, args[arg.n_captures:]
    for name, bwd in by_rule.items():
        if name.startswith("bwd"):
            rule_types = _types(bwd.src)
            if not _takes(bwd, [*captures, *tokens, *residuals, *tangents]) or \
                    rule_types[:len(tokens)] != tuple(tokens) or \
                    len(arg.cotangent_indices) != len(arg_types) or \
                    any(i >= 0 and rule_types[i] != t
                        for i, t in zip(arg.cotangent_indices, arg_types)):
                return False
    return True


def _sort(node: UOp) -> bool:
    arg = node.arg
    return _types(node.src) == arg.ins and 1 <= arg.n_keys <= len(arg.ins) and \
        len({shape for shape, _ in arg.ins}) == 1 and len(arg.ins[0][0]) > 0 and \
        all(-1 <= i < len(arg.ins) for i in arg.outputs) and \
        (not arg.selects or arg.n_keys == 1 and 0 < arg.count <= arg.ins[0][0][-1])


def _fft(node: UOp) -> bool:
    """The native program of a step reads the table without bounds checks."""
    x, table = node.src
    arg = node.arg
    if x.shape[-1:] != (2,) or not 0 <= arg.axis < len(x.shape) - 1 or \
            not x.dtype is table.dtype is node.dtype:
        return False
    n, inner = arg.length(x.shape), math.prod(x.shape[arg.axis + 1:-1])
    return 0 in x.shape or n > 0 and table.shape == (fft_plan.table_size(n, inner, arg.real),)


def _fft_step(node: UOp) -> bool:
    x, table = node.src
    arg = node.arg
    return x.shape == arg.shape and len(table.shape) == 1 and \
        x.dtype is table.dtype is arg.dtype and set(arg.radices) <= set(arg.kinds) and \
        math.prod(arg.radices) == arg.lengths[1] and fft_plan.fits(arg, table.shape[0])


def _linalg(node: UOp) -> bool:
    arg, of = node.arg, node.arg.of_complex
    if of is not None:
        return bool(_types(node.src) == arg.ins == linalg.interleaved(of.ins)
                    and arg.outs == linalg.interleaved(of.outs)
                    and linalg.result_types(of.routine, of.options, of.ins) == of.outs)
    return _types(node.src) == arg.ins and arg.routine in linalg.ROUTINES and \
        linalg.result_types(arg.routine, arg.options, arg.ins) == arg.outs


def _get(node: UOp) -> bool:
    call = node.src[0]
    return call.op in (*ops.MULTI_RESULT, ops.LOOP) and 0 <= node.arg < len(call.arg.outs) and \
        node.dtype is call.arg.outs[node.arg][1]


HANDLE = ((), dtypes.uint32)
_SOURCES = (ops.PARAM, ops.LEAF, ops.BUFFER)
_NOT_ARRAYS = (*ops.MULTI_RESULT, ops.FUNCTION, ops.KERNEL)

TENSOR = (
    SpecRule(tuple(ops.ops_at_level("t")), "a dtype of the user's level",
             lambda n: n.dtype in (*dtypes.USER, dtypes.key_fry, dtypes.void)),
    SpecRule(tuple(ops.ops_at_level("t") - ops.HIGHER_ORDER - {ops.GETTUPLE}), "arrays as operands",
             lambda n: all(s.op not in _NOT_ARRAYS for s in n.src)),
    SpecRule(_SOURCES, "a shape of lengths >= 0", lambda n: _is_int_tuple(n.arg.shape)),
    SpecRule((ops.PARAM,), "a slot >= 0", lambda n: n.arg.slot >= 0),
    SpecRule((ops.IOTA,), "a length >= 0 and a numeric dtype",
             lambda n: n.arg >= 0 and not n.dtype.is_bool),
    SpecRule((ops.RESHAPE,), "a shape of as many elements",
             lambda n: _is_int_tuple(n.arg) and math.prod(n.arg) == math.prod(n.src[0].shape)),
    SpecRule((ops.PERMUTE,), "each axis once",
             lambda n: _is_int_tuple(n.arg) and sorted(n.arg) == list(range(len(n.src[0].shape)))),
    SpecRule((ops.EXPAND,), "a shape of equal rank that differs only where the length was 1",
             _expand),
    SpecRule((ops.PAD,), "a pair of widths >= 0 per axis", _is_pair_per_axis),
    SpecRule((ops.PAD,), "a 0-d fill of the operand's dtype",
             lambda n: n.src[1].dtype is n.dtype and n.src[1].shape == ()),
    SpecRule((ops.SHRINK,), "bounds 0 <= lo <= hi <= length for each axis", _shrink),
    SpecRule((ops.FLIP,), "distinct axes in order", lambda n: _axes(n, n.arg)),
    SpecRule((ops.UNFOLD, ops.FOLD), "two axes, and windows that lie inside", _windows),
    SpecRule((ops.CONCAT,), "one dtype, and shapes that agree except along the axis", _concat),
    SpecRule((ops.BARRIER,), "an operand, and what it waits for", lambda n: len(n.src) > 0),
    SpecRule((ops.REDUCE,), "one operand, axes in order, and a monoid that takes it", _reduce),
    SpecRule((ops.GATHER,), "integer indices of one shape, one for each of its axes, which have "
             "elements", _gather),
    SpecRule((ops.SCATTER,), "indices of one shape, one for each of its axes, updates of the shape "
             "they select, a monoid that takes them or none", _scatter),
    SpecRule((ops.ALL_GATHER, ops.AXIS_INDEX, ops.PVARY_LIKE, ops.PSUM_LIKE),
             "an axis of a size >= 0", lambda n: n.arg.size >= 0),
    SpecRule((ops.AXIS_INDEX,), "an int32", lambda n: n.dtype is dtypes.int32),
    SpecRule((ops.FUNCTION,), "a closed body: no LEAF, no BUFFER, one PARAM a slot < n_params",
             _closed),
    SpecRule((ops.CALL,), "operands and results as the body's PARAMs and outputs", _call),
    SpecRule((ops.SCAN,), "a body (consts, carries, x) -> (carries, y), and xs of the length",
             _scan),
    SpecRule((ops.WHILE,), "a condition and a body (consts, carries) -> carries", _while),
    SpecRule((ops.COND,), "branches of one signature, the int32 number of one, operands", _cond),
    SpecRule((ops.CUSTOM,), "a function, rules that fit it, and operands that both take", _custom),
    SpecRule(tuple(ops.HIGHER_ORDER), "FUNCTIONs, then arrays as operands",
             lambda n: all(s.op not in _NOT_ARRAYS for s in accessors.operands(n))),
    SpecRule((ops.CALLBACK,), "a handle, a token where it has an effect, operands as its arg says",
             _host),
    SpecRule((ops.SORT,), "operands of one shape with an axis, as its arg says", _sort),
    SpecRule((ops.FFT,), "pairs in the last axis, an axis before it, and a table", _fft),
    SpecRule((ops.FFT_STEP,), "matrices of pairs of the lengths in its arg, and a table",
             _fft_step),
    SpecRule((ops.LINALG,), "matrices with equal batch axes, as its arg says", _linalg),
    SpecRule((ops.COLLECTIVE,), "operands that fit the routine, the axes and the grid of its arg",
             lambda n: _types(n.src) == n.arg.ins and collectives.is_legal(n.arg)),
    SpecRule((ops.GETTUPLE,), "a result of a structural node, with its dtype", _get),
)


# ---- kernel, program and command level --------------------------------------------------------

KERNEL = tuple(SpecRule(*row) for row in spec_kernel.RULES)
PROGRAM = tuple(SpecRule(*row) for row in spec_program.RULES)
COMMAND = (_BITS, *(SpecRule(*row) for row in spec_command.RULES))


def _level(letter: str, rules: tuple[SpecRule, ...], scopes: Mapping[Op, str] = {}) -> Level:
    """Return the level with a letter in the op table; the rules that the table implies come
    first."""
    implied = [*_GENERIC, *[_SCALAR] * (letter != "p"), *[_REAL] * (letter != "t")]
    return Level(letter, rules, {
        op: [*implied, *[rule for rule in rules if op in rule.ops]] if letter in op.levels else
        [SpecRule((op,), f"an op of this level, not {op}", lambda node: False)]
        for op in _ALL}, scopes)


LEVELS = {
    "tensor": _level("t", (*VALUES, *TENSOR), {ops.KERNEL: "kernel"}),
    "kernel": _level("k", (*VALUES, *KERNEL)),
    "program": _level("p", (*VALUES, *PROGRAM)),
    "command": _level("c", COMMAND, {ops.KERNEL: "kernel"}),
}

_legal: dict[str, set[int]] = {level: set() for level in LEVELS}  # numbers of nodes, with operands
_MAX_LEGAL = 1 << 18
