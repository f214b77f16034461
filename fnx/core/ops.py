"""The op table: an Op *is* its row. Every other fact about ops is derived from here.

A row says: at which levels the op is legal, its kind, how many operands it takes, which element
types, how shape and dtype of the result follow, what it means in NumPy, and how it prints.
Adding an elementwise op touches four places: its row here, its row in
transforms/derivatives.py, its row in lower/decompose.py or lower/llvm.py, its public function.

Levels: t tensor (whole arrays), k kernel (scalars over RANGEs), p program (a linear list with
explicit vectors), c command (what a queue executes).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fnx.core.dtypes import DType

if TYPE_CHECKING:
    from fnx.core.uop import UOp

Kind = Literal["source", "elementwise", "movement", "reduce", "gather", "scatter", "scope",
               "kernel", "program", "command"]
Shape = tuple[int, ...]
Array = np.ndarray[Any, Any]
ShapeRule = Callable[[tuple["UOp", ...], Any], Shape]
Meaning = Callable[..., Any]


class Op:
    """One operation. Compared by identity; registered under its name in ``OPS``.

    Attributes:
        levels: subset of "tkpc".
        arity: number of operands, or None where it varies.
        accepts: dtype kinds of the value operands ("f" float, "i" signed and unsigned and
            index, "b" bool).
        result: "same" as the operands, "bool", or "arg"/"any" where the constructor decides.
        shape: shape of the result from (src, arg). Elementwise: that of the operands.
        arg: the type of ``UOp.arg`` (NoneType where there is none).
        meaning: NumPy value from (node, *operand values). None: the interpreter walks it.
        symbol: how the pretty printer writes it, with {0} {1} ... for operands.
        commutative: operands may be swapped, bit for bit.
        identity: for a monoid, dtype -> the value that changes nothing.
    """

    __slots__ = ("name", "levels", "kind", "arity", "accepts", "result", "shape", "arg",
                 "meaning", "symbol", "commutative", "identity", "number")

    def __init__(self, name: str, levels: str, kind: Kind, arity: int | None, *,
                 accepts: str = "fib", result: str = "same", shape: ShapeRule | None = None,
                 arg: type | tuple[type, ...] = type(None), meaning: Meaning | None = None,
                 symbol: str = "", commutative: bool = False,
                 identity: Callable[[DType], Any] | None = None) -> None:
        self.name, self.levels, self.kind, self.arity = name, levels, kind, arity
        self.accepts, self.result, self.arg = accepts, result, arg
        self.shape = shape if shape is not None else _shape_of_first
        self.meaning, self.symbol = meaning, symbol
        self.commutative, self.identity = commutative, identity
        self.number = len(OPS)
        OPS[name] = self

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> Any:
        return (OPS.__getitem__, (self.name,))


OPS: dict[str, Op] = {}


# ---- args: what an op carries besides its operands ------------------------------------------


@dataclass(frozen=True)
class Param:
    """An input of a FUNCTION: its slot and shape."""

    slot: int
    shape: Shape


@dataclass(frozen=True)
class Leaf:
    """An input of a trace that is still open. ``id`` is unique in the process."""

    id: int
    shape: Shape


@dataclass(frozen=True)
class Buffer:
    """Memory of a concrete array. ``handle`` is compared by identity; its owner keeps it."""

    handle: Any
    shape: Shape


@dataclass(frozen=True)
class Reduce:
    """Fold ``axes`` (tensor level) or the ranges in src[1:] (kernel level) with ``monoid``.

    At kernel level ``axes`` is empty and the accumulator has dtype ``accumulator``.
    """

    monoid: Op
    axes: tuple[int, ...] = ()
    accumulator: DType | None = None


@dataclass(frozen=True)
class Function:
    """A closed graph: src are its outputs, PARAM(0..n_params-1) its inputs."""

    name: str
    n_params: int


@dataclass(frozen=True)
class Call:
    """A call of src[0] (a FUNCTION, or a hand-written KERNEL) with operands src[1:].

    ``outs`` are (shape, dtype) of the results, read by GET. ``schedule`` is for kernels.
    """

    name: str
    outs: tuple[tuple[Shape, DType], ...]
    schedule: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Range:
    """A loop of the kernel level. kind: GRID, THREAD, PAR, SEQ, UNROLL or VEC."""

    id: int
    kind: str
    name: str = ""


@dataclass(frozen=True)
class Ref:
    """A buffer argument of a kernel."""

    slot: int
    name: str = ""


@dataclass(frozen=True)
class Var:
    """A scalar argument of a kernel (a run-time extent, a lifted constant), with bounds."""

    slot: int
    low: int = 0
    high: int = 1 << 40
    name: str = ""


@dataclass(frozen=True)
class Stage:
    """A small buffer inside a kernel. space: REG, PRIV (a worker's own), SHARED or GLOBAL."""

    id: int
    space: str
    name: str = ""


@dataclass(frozen=True)
class Kernel:
    """A finished kernel: ``order`` lists range ids from the outermost loop inwards."""

    name: str
    order: tuple[int, ...] = ()


@dataclass(frozen=True)
class Slot:
    """Memory a command reads or writes.

    kind: "in" (argument ``index`` of the call), "out" (result ``index``), "arena" (bytes
    ``offset``..``offset + nbytes`` of the call's arena).
    """

    kind: str
    index: int
    offset: int
    nbytes: int


@dataclass(frozen=True)
class Exec:
    """Run a kernel. ``names`` are the user's lines or names for profiles and faults."""

    name: str


# ---- shape rules ----------------------------------------------------------------------------


def _shape_of_first(src: tuple[UOp, ...], arg: Any) -> Shape:
    return src[0].shape if src else ()


def _shape_of_arg(src: tuple[UOp, ...], arg: Any) -> Shape:
    return arg.shape  # type: ignore[no-any-return]


def _scalar(src: tuple[UOp, ...], arg: Any) -> Shape:
    return ()


def _reduced(src: tuple[UOp, ...], arg: Reduce) -> Shape:
    return tuple(n for i, n in enumerate(src[0].shape) if i not in arg.axes)


def _gathered(src: tuple[UOp, ...], arg: Any) -> Shape:
    return src[1].shape + src[0].shape[len(src) - 1:]


def _concatenated(src: tuple[UOp, ...], axis: int) -> Shape:
    first = src[0].shape
    return (*first[:axis], sum(s.shape[axis] for s in src), *first[axis + 1:])


def _gotten(src: tuple[UOp, ...], i: int) -> Shape:
    return src[0].arg.outs[i][0]  # type: ignore[no-any-return]


# ---- meanings -------------------------------------------------------------------------------


def _precise(f: Callable[[Array], Array]) -> Meaning:
    """float32 functions are computed in float64 and rounded once."""
    def meaning(node: UOp, x: Array) -> Array:
        if x.dtype == np.float32:
            return f(x.astype(np.float64)).astype(np.float32)
        return f(x)
    return meaning


def _plain(f: Callable[..., Array]) -> Meaning:
    def meaning(node: UOp, *xs: Array) -> Array:
        return f(*xs)
    return meaning


def _integer_division(node: UOp, a: Array, b: Array) -> Array:
    """Rounds to zero. x / 0 is -1 (all ones), INT_MIN / -1 is INT_MIN, as in JAX."""
    zero, minus = b == 0, (b == -1) & (a.dtype.kind == "i")
    safe = np.where(zero | minus, 1, b).astype(b.dtype)
    floored = a // safe
    inexact = floored * safe != a
    quotient = floored + (inexact & ((a < 0) != (safe < 0)))
    quotient = np.where(minus, np.subtract(0, a, dtype=a.dtype), quotient)
    ones = np.iinfo(a.dtype).max if a.dtype.kind == "u" else -1
    return np.where(zero, ones, quotient).astype(a.dtype)


def _remainder(node: UOp, a: Array, b: Array) -> Array:
    """Sign of the dividend. x rem 0 is x; float: C's fmod."""
    if a.dtype.kind == "f":
        return np.fmod(a, b)
    zero = b == 0
    one = np.where(zero | (b == -1), 1, b) if a.dtype.kind == "i" else np.where(zero, 1, b)
    return np.where(zero, a, np.fmod(a, one.astype(b.dtype))).astype(a.dtype)


def _maximum(node: UOp, a: Array, b: Array) -> Array:
    """IEEE 754-2019 maximum: NaN wins, and -0 < +0."""
    if a.dtype.kind != "f":
        return np.maximum(a, b)
    return np.where(a == b, np.where(np.signbit(a), b, a), np.maximum(a, b))


def _minimum(node: UOp, a: Array, b: Array) -> Array:
    """IEEE 754-2019 minimum: NaN wins, and -0 < +0."""
    if a.dtype.kind != "f":
        return np.minimum(a, b)
    return np.where(a == b, np.where(np.signbit(a), a, b), np.minimum(a, b))


def _power(node: UOp, a: Array, b: Array) -> Array:
    if a.dtype == np.float32:
        return np.power(a.astype(np.float64), b.astype(np.float64)).astype(np.float32)
    return np.power(a, b)


def _shift_left(node: UOp, a: Array, b: Array) -> Array:
    """Past the width: 0."""
    past = b.astype(np.uint64) >= node.dtype.bits
    return np.where(past, 0, np.left_shift(a, np.where(past, 0, b).astype(b.dtype))
                    ).astype(a.dtype)


def _shift_right(node: UOp, a: Array, b: Array) -> Array:
    """Arithmetic for signed types, logical for unsigned; past the width: all sign bits."""
    past = b.astype(np.uint64) >= node.dtype.bits
    last = np.asarray(node.dtype.bits - 1, b.dtype)
    shifted = np.right_shift(a, np.where(past, last, b).astype(b.dtype))
    return shifted if a.dtype.kind == "i" else np.where(past, 0, shifted).astype(a.dtype)


def _cast(node: UOp, x: Array) -> Array:
    """float -> integer rounds to zero and saturates, NaN is 0; anything -> bool is x != 0."""
    to = node.dtype.np
    if to.kind in "iu" and x.dtype.kind == "f":
        info = np.iinfo(to)
        wide = np.trunc(np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=np.inf,
                                      neginf=-np.inf))
        low, high = wide <= info.min, wide >= info.max
        middle = np.where(low | high, 0, wide).astype(to)
        return np.where(low, info.min, np.where(high, info.max, middle)).astype(to)
    return x != 0 if to.kind == "b" else x.astype(to)


def _bitcast(node: UOp, x: Array) -> Array:
    return np.ascontiguousarray(x).view(node.dtype.np).reshape(x.shape)


def _multiply_add(node: UOp, a: Array, b: Array, c: Array) -> Array:
    """a * b + c with one rounding (float64: two, in the interpreter)."""
    if a.dtype == np.float32:
        return (a.astype(np.float64) * b + c).astype(np.float32)
    return a * b + c


_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def _threefry(node: UOp, k0: Array, k1: Array, c0: Array, c1: Array) -> Array:
    """Threefry-2x32, 20 rounds (Salmon et al., SC 2011); ``arg`` is the word returned."""
    keys = (k0, k1, k0 ^ k1 ^ np.uint32(0x1BD11BDA))
    x, y = c0 + keys[0], c1 + keys[1]
    for block in range(5):
        for r in _ROTATIONS[block % 2]:
            x = x + y
            y = ((y << np.uint32(r)) | (y >> np.uint32(32 - r))) ^ x
        x = x + keys[(block + 1) % 3]
        y = y + keys[(block + 2) % 3] + np.uint32(block + 1)
    return (x, y)[node.arg]


def _const(node: UOp) -> Array:
    return const_value(node)


def const_value(node: UOp) -> Array:
    """The 0-d NumPy value of a CONST, from its bit pattern."""
    np_dtype = node.dtype.np
    if np_dtype.kind == "b":
        return np.asarray(bool(node.arg))
    raw = int(node.arg).to_bytes(np_dtype.itemsize, "little")
    return np.frombuffer(raw, np_dtype.newbyteorder("<"))[0].astype(np_dtype)  # type: ignore


def _iota(node: UOp) -> Array:
    return np.arange(node.arg, dtype=node.dtype.np)


def _expand(node: UOp, x: Array) -> Array:
    return np.broadcast_to(x, node.arg)


def _pad(node: UOp, x: Array, fill: Array) -> Array:
    out = np.full(node.shape, fill, x.dtype)
    out[tuple(slice(lo, lo + n) for (lo, _), n in zip(node.arg, x.shape))] = x
    return out


def _shrink(node: UOp, x: Array) -> Array:
    return x[tuple(slice(lo, hi) for lo, hi in node.arg)]


def _reduce(node: UOp, x: Array) -> Array:
    arg: Reduce = node.arg
    if not arg.axes:
        return x
    ufunc = {"ADD": np.add, "MUL": np.multiply, "AND": np.bitwise_and, "OR": np.bitwise_or,
             "MAX": np.maximum, "MIN": np.minimum}[arg.monoid.name]
    assert arg.monoid.identity is not None
    start = np.asarray(arg.monoid.identity(node.dtype), x.dtype)
    if arg.monoid.name == "ADD" and x.dtype.kind == "f":
        return np.asarray(np.sum(x, axis=arg.axes, dtype=x.dtype))
    out = np.asarray(ufunc.reduce(x, axis=arg.axes, dtype=x.dtype, initial=start))
    if arg.monoid.name in ("MAX", "MIN") and x.dtype.kind == "f":  # the sign of a zero result
        zeros = np.signbit(x) if arg.monoid.name == "MAX" else ~np.signbit(x)
        all_zeros = np.all(zeros | (x != 0), axis=arg.axes)
        sign = np.where(all_zeros, -0.0, 0.0) if arg.monoid.name == "MAX" else \
            np.where(all_zeros, 0.0, -0.0)
        out = np.where(out == 0, sign.astype(x.dtype), out)
    return out.astype(x.dtype)


def _gather(node: UOp, x: Array, *index: Array) -> Array:
    """Indices are clamped into their axis; a caller that wants another mode masks."""
    inside = tuple(np.clip(i.astype(np.int64), 0, max(n - 1, 0)) for i, n in zip(index, x.shape))
    return x[inside]


def _scatter(node: UOp, x: Array, *rest: Array) -> Array:
    """Updates at an index outside are dropped; duplicates apply in index order."""
    index, updates = rest[:-1], rest[-1]
    out = np.array(x)
    inside = np.ones(index[0].shape, bool)
    for i, n in zip(index, x.shape):
        inside &= (i.astype(np.int64) >= 0) & (i.astype(np.int64) < n)
    at = tuple(i[inside] for i in index)
    if node.arg == "set":
        for row, update in zip(zip(*at), updates[inside]):
            out[row] = update
    else:
        {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[
            node.arg].at(out, at, updates[inside])
    return out


# ---- identities of monoids ------------------------------------------------------------------


def lowest(t: DType) -> Any:
    """The smallest value of a type: the identity of MAX."""
    return -np.inf if t.is_float else False if t.is_bool else int(np.iinfo(t.np).min)


def highest(t: DType) -> Any:
    """The largest value of a type: the identity of MIN."""
    return np.inf if t.is_float else True if t.is_bool else int(np.iinfo(t.np).max)


def _all_ones(t: DType) -> Any:
    return True if t.is_bool else -1 if t.kind in ("int", "index") else (1 << t.bits) - 1


# ---- the table ------------------------------------------------------------------------------
# fmt: off

# sources
PARAM = Op("PARAM", "t", "source", 0, result="any", shape=_shape_of_arg, arg=Param)
LEAF = Op("LEAF", "t", "source", 0, result="any", shape=_shape_of_arg, arg=Leaf)
BUFFER = Op("BUFFER", "t", "source", 0, result="any", shape=_shape_of_arg, arg=Buffer)
CONST = Op("CONST", "tkp", "source", 0, result="any", shape=_scalar, arg=int, meaning=_const)
IOTA = Op("IOTA", "t", "source", 0, result="any", shape=lambda s, a: (a,), arg=int, meaning=_iota)

# elementwise, one operand
NEG = Op("NEG", "tkp", "elementwise", 1, accepts="fi", symbol="-{0}", meaning=_plain(np.negative))
ABS = Op("ABS", "tkp", "elementwise", 1, accepts="fi", meaning=_plain(np.abs))
NOT = Op("NOT", "tkp", "elementwise", 1, accepts="ib", symbol="~{0}", meaning=_plain(np.invert))
SQRT = Op("SQRT", "tkp", "elementwise", 1, accepts="f", meaning=_plain(np.sqrt))
EXP = Op("EXP", "tkp", "elementwise", 1, accepts="f", meaning=_precise(np.exp))
EXPM1 = Op("EXPM1", "tkp", "elementwise", 1, accepts="f", meaning=_precise(np.expm1))
LOG = Op("LOG", "tkp", "elementwise", 1, accepts="f", meaning=_precise(np.log))
LOG1P = Op("LOG1P", "tkp", "elementwise", 1, accepts="f", meaning=_precise(np.log1p))
SIN = Op("SIN", "tkp", "elementwise", 1, accepts="f", meaning=_precise(np.sin))
COS = Op("COS", "tkp", "elementwise", 1, accepts="f", meaning=_precise(np.cos))
TANH = Op("TANH", "tkp", "elementwise", 1, accepts="f", meaning=_precise(np.tanh))
FLOOR = Op("FLOOR", "tkp", "elementwise", 1, accepts="f", meaning=_plain(np.floor))
CEIL = Op("CEIL", "tkp", "elementwise", 1, accepts="f", meaning=_plain(np.ceil))
TRUNC = Op("TRUNC", "tkp", "elementwise", 1, accepts="f", meaning=_plain(np.trunc))
ROUND = Op("ROUND", "tkp", "elementwise", 1, accepts="f", meaning=_plain(np.rint))
CAST = Op("CAST", "tkp", "elementwise", 1, result="any", meaning=_cast)
BITCAST = Op("BITCAST", "tkp", "elementwise", 1, accepts="fi", result="any", meaning=_bitcast)

# elementwise, two operands
ADD = Op("ADD", "tkp", "elementwise", 2, accepts="fi", symbol="({0} + {1})", commutative=True,
         meaning=_plain(np.add), identity=lambda t: 0)
SUB = Op("SUB", "tkp", "elementwise", 2, accepts="fi", symbol="({0} - {1})",
         meaning=_plain(np.subtract))
MUL = Op("MUL", "tkp", "elementwise", 2, accepts="fi", symbol="({0} * {1})", commutative=True,
         meaning=_plain(np.multiply), identity=lambda t: 1)
DIV = Op("DIV", "tkp", "elementwise", 2, accepts="f", symbol="({0} / {1})",
         meaning=_plain(np.divide))
IDIV = Op("IDIV", "tkp", "elementwise", 2, accepts="i", symbol="({0} // {1})",
          meaning=_integer_division)
REM = Op("REM", "tkp", "elementwise", 2, accepts="fi", symbol="({0} % {1})", meaning=_remainder)
POW = Op("POW", "tkp", "elementwise", 2, accepts="f", symbol="{0}**{1}", meaning=_power)
MAX = Op("MAX", "tkp", "elementwise", 2, accepts="fi", commutative=True, meaning=_maximum,
         identity=lowest)
MIN = Op("MIN", "tkp", "elementwise", 2, accepts="fi", commutative=True, meaning=_minimum,
         identity=highest)
CMPLT = Op("CMPLT", "tkp", "elementwise", 2, result="bool", symbol="({0} < {1})",
           meaning=_plain(np.less))
CMPLE = Op("CMPLE", "tkp", "elementwise", 2, result="bool", symbol="({0} <= {1})",
           meaning=_plain(np.less_equal))
CMPEQ = Op("CMPEQ", "tkp", "elementwise", 2, result="bool", symbol="({0} == {1})",
           commutative=True, meaning=_plain(np.equal))
CMPNE = Op("CMPNE", "tkp", "elementwise", 2, result="bool", symbol="({0} != {1})",
           commutative=True, meaning=_plain(np.not_equal))
AND = Op("AND", "tkp", "elementwise", 2, accepts="ib", symbol="({0} & {1})", commutative=True,
         meaning=_plain(np.bitwise_and), identity=_all_ones)
OR = Op("OR", "tkp", "elementwise", 2, accepts="ib", symbol="({0} | {1})", commutative=True,
        meaning=_plain(np.bitwise_or), identity=lambda t: False if t.is_bool else 0)
XOR = Op("XOR", "tkp", "elementwise", 2, accepts="ib", symbol="({0} ^ {1})", commutative=True,
         meaning=_plain(np.bitwise_xor), identity=lambda t: False if t.is_bool else 0)
SHL = Op("SHL", "tkp", "elementwise", 2, accepts="i", symbol="({0} << {1})", meaning=_shift_left)
SHR = Op("SHR", "tkp", "elementwise", 2, accepts="i", symbol="({0} >> {1})", meaning=_shift_right)

# elementwise, more operands
WHERE = Op("WHERE", "tkp", "elementwise", 3, result="where", meaning=_plain(np.where))
MULACC = Op("MULACC", "tkp", "elementwise", 3, accepts="f", meaning=_multiply_add)
THREEFRY = Op("THREEFRY", "tkp", "elementwise", 4, accepts="i", arg=int, meaning=_threefry)

# movement
RESHAPE = Op("RESHAPE", "t", "movement", 1, shape=lambda s, a: a, arg=tuple,
             meaning=lambda n, x: np.reshape(x, n.arg))
PERMUTE = Op("PERMUTE", "t", "movement", 1, arg=tuple,
             shape=lambda s, a: tuple(s[0].shape[i] for i in a),
             meaning=lambda n, x: np.transpose(x, n.arg))
EXPAND = Op("EXPAND", "t", "movement", 1, shape=lambda s, a: a, arg=tuple, meaning=_expand)
PAD = Op("PAD", "t", "movement", 2, arg=tuple, meaning=_pad,
         shape=lambda s, a: tuple(n + lo + hi for n, (lo, hi) in zip(s[0].shape, a)))
SHRINK = Op("SHRINK", "t", "movement", 1, arg=tuple, meaning=_shrink,
            shape=lambda s, a: tuple(hi - lo for lo, hi in a))
FLIP = Op("FLIP", "t", "movement", 1, arg=tuple, meaning=lambda n, x: np.flip(x, n.arg))
CONCAT = Op("CONCAT", "t", "movement", None, arg=int, shape=_concatenated,
            meaning=lambda n, *xs: np.concatenate(xs, n.arg))
BARRIER = Op("BARRIER", "t", "movement", 1, arg=int, meaning=lambda n, x: x)

# reductions, indexed reads and writes (REDUCE also at kernel level, over ranges)
REDUCE = Op("REDUCE", "tk", "reduce", None, arg=Reduce, shape=_reduced, meaning=_reduce)
GATHER = Op("GATHER", "t", "gather", None, result="any", shape=_gathered, meaning=_gather)
SCATTER = Op("SCATTER", "t", "scatter", None, result="any", arg=str, meaning=_scatter)

# scopes
FUNCTION = Op("FUNCTION", "tc", "scope", None, result="any", shape=_scalar, arg=Function)
CALL = Op("CALL", "t", "scope", None, result="any", shape=_scalar, arg=Call)
GET = Op("GET", "t", "scope", 1, result="any", shape=_gotten, arg=int)

# kernel level: scalars over ranges
RANGE = Op("RANGE", "kp", "kernel", 1, shape=_scalar, arg=Range)
VAR = Op("VAR", "kp", "kernel", 0, result="any", shape=_scalar, arg=Var)
REF = Op("REF", "kp", "kernel", None, result="any", shape=_scalar, arg=Ref)
INDEX = Op("INDEX", "kp", "kernel", None, result="any", shape=_scalar)
LOAD = Op("LOAD", "kp", "kernel", None, result="any", shape=_scalar)
STORE = Op("STORE", "kp", "kernel", None, result="any", shape=_scalar,
           arg=(Op, type(None)))
STAGE = Op("STAGE", "kp", "kernel", None, result="any", shape=_scalar, arg=Stage)
KERNEL = Op("KERNEL", "kc", "kernel", None, result="any", shape=_scalar, arg=Kernel)

# command level
SLOT = Op("SLOT", "c", "command", 0, result="any", shape=_scalar, arg=Slot)
EXEC = Op("EXEC", "c", "command", None, result="any", shape=_scalar, arg=Exec)
COMMANDS = Op("COMMANDS", "c", "command", None, result="any", shape=_scalar)
# fmt: on

ELEMENTWISE = frozenset(op for op in OPS.values() if op.kind == "elementwise")
MOVEMENT = frozenset(op for op in OPS.values() if op.kind == "movement")
COMMUTATIVE = frozenset(op for op in OPS.values() if op.commutative)
MONOIDS = frozenset(op for op in OPS.values() if op.identity is not None)
COMPARISONS = frozenset({CMPLT, CMPLE, CMPEQ, CMPNE})


def at_level(level: str) -> frozenset[Op]:
    """All ops that are legal at a level ("t", "k", "p" or "c")."""
    return frozenset(op for op in OPS.values() if level in op.levels)
