"""The op table: an Op *is* its row. Every other fact about ops is derived from here.

A row says: at which levels the op is legal, its kind, how many operands it takes, which element
types, how shape and dtype of the result follow, what it means in NumPy, what it costs, how it is
batched, and how it prints (core/op.py).
Adding an elementwise op touches five files: its row here, its row in
transforms/ad/derivatives.py, its formula in lower/program/elementary (or its line in
lower/render/llvm.py), its public function in numpy, and its name in lax.

Levels: t tensor (whole arrays), k kernel (scalars over RANGEs), p program (a linear list with
explicit vectors), c command (what a queue executes).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core import numpy_semantics as m
from fnx.core import row_parts as r
from fnx.core.dtypes import DType
from fnx.core.numpy_semantics import const_value as const_value
from fnx.core.op import OPS as OPS
from fnx.core.op import Op as Op
from fnx.core.op import Shape as Shape
from fnx.core.op import named as named
from fnx.core.op import scalar
from fnx.core.record import Record

# ---- args: what an op carries besides its operands ------------------------------------------


class Param(Record):
    """An input of a FUNCTION: its slot and shape."""

    slot: int
    shape: Shape


class Leaf(Record):
    """An input of a trace that is still open. ``id`` is unique in the process."""

    id: int
    shape: Shape


class Buffer(Record):
    """Memory of a concrete array. ``handle`` is compared by identity; its owner keeps it."""

    handle: Any
    shape: Shape


class Reduce(Record):
    """Fold ``axes`` (tensor level) or the ranges in src[1:] (kernel level) with ``monoid``.

    At kernel level ``axes`` is empty and the accumulator has dtype ``accumulator``. Of several
    elements that are the extreme all share its derivative, or the ``first`` in row-major order has
    it.
    """

    monoid: Op
    axes: tuple[int, ...] = ()
    accumulator: DType | None = None
    first: bool = False


class Window(Record):
    """Windows along ``axis``, whose elements are along the axis ``offset``.

    Element j of window i stands at i * stride + j * dilation. ``length`` is that of the axis in
    the result: how many windows (UNFOLD), or how long what they look at is (FOLD).
    """

    axis: int
    offset: int
    stride: int
    dilation: int
    length: int


class Scatter(Record):
    """Updates are combined with what is there by ``monoid``; None: the last one stays."""

    monoid: Op | None = None


class Sort(Record):
    """Elements along the last axis in the order of the first ``n_keys`` operands; stable.

    ``ins`` are (shape, dtype) of the operands, which have one shape. Results: those operands that
    are ``kept``, in that order; -1: an int32 that says where each element came from.
    """

    name: str
    n_keys: int
    ins: tuple[tuple[Shape, DType], ...]
    kept: tuple[int, ...]

    @property
    def outs(self) -> tuple[tuple[Shape, DType], ...]:
        shape = self.ins[0][0]
        return tuple([(shape, dtypes.int32) if i < 0 else self.ins[i] for i in self.kept])


class Axis(Record):
    """A named axis, of a vmap that is being traced.

    ``depth`` counts the axes of that name which were open around it, so that a name that is
    given again inside is another axis.
    """

    name: Hashable
    size: int
    depth: int = 0


class Function(Record):
    """A closed graph: src are its outputs, PARAM(0..n_params-1) its inputs."""

    name: str
    n_params: int


class Call(Record):
    """A call of src[0] (a FUNCTION, or a hand-written KERNEL) with operands src[1:].

    ``outs`` are (shape, dtype) of the results, read by GET. ``schedule`` is for kernels,
    ``policy`` says what a checkpointed FUNCTION keeps for its backward pass.
    """

    name: str
    outs: tuple[tuple[Shape, DType], ...]
    schedule: tuple[Any, ...] = ()
    policy: Any = None


class Scan(Record):
    """``length`` steps of src[0], a FUNCTION (consts, carries, x) -> (carries, y).

    Operands: ``n_consts`` arrays that each step reads, ``n_carries`` that it hands to the next,
    and arrays of which step t reads x[t] (from the last to the first if ``reverse``). Results:
    the last carries, and for each y an array whose [t] is that of step t. Reverse mode saves the
    carries of every ``checkpoint``-th step and computes the steps between again; 0: it saves
    what it reads of each step.
    """

    name: str
    length: int
    n_consts: int
    n_carries: int
    reverse: bool
    outs: tuple[tuple[Shape, DType], ...]
    checkpoint: int = 0


class While(Record):
    """As long as src[0] (consts, carries) -> bool: carries = src[1](consts, carries).

    Both FUNCTIONs take all operands, of which the first ``n_consts`` do not change. Results: the
    last carries.
    """

    name: str
    n_consts: int
    outs: tuple[tuple[Shape, DType], ...]


class Cond(Record):
    """One of the FUNCTIONs in front on the operands: the one that an int32 says, clamped.

    src: ``n_branches`` FUNCTIONs of one signature, the number of the branch, the operands.
    """

    name: str
    n_branches: int
    outs: tuple[tuple[Shape, DType], ...]


class Host(Record):
    """A call of a Python function, which the handle src[0] names, with the operands behind it.

    With an ``effect`` src[1] is a token and result 0 the next one, so that effects stay, each for
    itself, in their order; without one it is pure. Once for each of ``lanes``, in order: of each
    batch axis, the outermost first, its length and which operands have it (all results but the
    token do). Where ``masked``, operand 0 is a bool: false, and there is no call, and zeros.
    ``ins`` and ``outs`` are the types of operands and results; ``method`` says how a pure one is
    batched.
    """

    name: str
    effect: bool
    ins: tuple[tuple[Shape, DType], ...]
    outs: tuple[tuple[Shape, DType], ...]
    lanes: tuple[tuple[int, tuple[bool, ...]], ...] = ()
    masked: bool = False
    method: str = ""


class Custom(Record):
    """A function with derivatives of its own: src[0] on the operands, under ``rules``.

    src: the function and one FUNCTION for each of the rules, ``n_captures`` arrays that all of
    them take first (what the user's functions closed over), and the arguments.

        src[0]  (captures, arguments) -> results
        "jvp"   (captures, arguments, tangents of floats among them) -> results, tangents of
                the floats among them
        "fwd"   (captures, arguments) -> results, residuals
        "bwd"   (captures, residuals, cotangents of float results) -> cotangents; ``pulled``
                says for each argument which of these is its own, or -1: zero

    Where there is a "jvp", it is the first rule. ``again``: a rule that calls its own function. The
    node stands for the CUSTOM in whose rule it is, that many rules further out (-1: it does not),
    and has no rules: they would not end (core/again.py). ``lanes`` has a rule for a batch:
    ``function(size, batched, n_captures)`` is what src[0] becomes. With ``effects`` the first
    argument and the first result are tokens, of rules too ("bwd": behind the captures, and in
    front of the cotangents), so that also what only a backward pass does has its place in the
    order of the program.
    """

    name: str
    outs: tuple[tuple[Shape, DType], ...]
    rules: tuple[str, ...]
    n_captures: int
    pulled: tuple[int, ...] = ()
    again: int = -1
    lanes: Any = None
    effects: bool = False


class Range(Record):
    """A loop of the kernel level. kind: GRID, THREAD, PAR, SEQ, UNROLL or VEC."""

    id: int
    kind: str
    name: str = ""


class Ref(Record):
    """A buffer argument of a kernel, at a multiple of ``alignment`` bytes."""

    slot: int
    name: str = ""
    alignment: int = 64


class Var(Record):
    """A scalar argument of a kernel (a run-time extent, a lifted constant), with bounds."""

    slot: int
    low: int = 0
    high: int = 1 << 40
    name: str = ""


class Stage(Record):
    """A small buffer inside a kernel. space: REG, PRIV (a worker's own), SHARED or GLOBAL."""

    id: int
    space: str
    name: str = ""


class Carry(Record):
    """Value ``i`` that the ITER with this id hands from one iteration to the next."""

    id: int
    i: int


class Iter(Record):
    """A loop with carried values; ``outs`` are (shape, dtype) of these, read by GET."""

    id: int
    outs: tuple[tuple[Shape, DType], ...]


class Kernel(Record):
    """A finished kernel: ``order`` lists range ids from the outermost loop inwards."""

    name: str
    order: tuple[int, ...] = ()


class Slot(Record):
    """Memory a command reads or writes.

    kind: "in" (argument ``index`` of the call), "out" (result ``index``), "arena"; of it, bytes
    ``offset``..``offset + nbytes``. Each iteration of the loops around the command moves it on
    by ``strides`` bytes (outermost first; a loop that is not listed does not move it).
    """

    kind: str
    index: int
    offset: int
    nbytes: int
    strides: tuple[int, ...] = ()


class Exec(Record):
    """Run a kernel. ``names`` are the user's lines or names for profiles and faults."""

    name: str


class Loop(Record):
    """Run commands ``trips`` times; None: for as long as a condition holds."""

    name: str
    trips: int | None


class Branch(Record):
    """Run one of several lists of commands."""

    name: str


# ---- the table ------------------------------------------------------------------------------
# fmt: off

# sources
PARAM = Op("PARAM", "t", "source", 0, result="any", shape=r.shape_of_arg, arg=Param,
           place=r.slot)
LEAF = Op("LEAF", "t", "source", 0, result="any", shape=r.shape_of_arg, arg=Leaf,
          place=r.in_trace)
BUFFER = Op("BUFFER", "t", "source", 0, result="any", shape=r.shape_of_arg, arg=Buffer)
CONST = Op("CONST", "tkpc", "source", 0, result="any", shape=scalar, arg=int, meaning=m.const,
           place=r.last)
IOTA = Op("IOTA", "t", "source", 0, result="any", shape=lambda s, a: (a,), arg=int, meaning=m.iota)

# elementwise, one operand
NEG = Op("NEG", "tkp", "elementwise", 1, accepts="fi", symbol="-{0}", meaning=m.plain(np.negative))
ABS = Op("ABS", "tkp", "elementwise", 1, accepts="fi", meaning=m.plain(np.abs))
NOT = Op("NOT", "tkp", "elementwise", 1, accepts="ib", symbol="~{0}", meaning=m.plain(np.invert))
SQRT = Op("SQRT", "tkp", "elementwise", 1, accepts="f", meaning=m.plain(np.sqrt), cost=5)
CBRT = Op("CBRT", "tkp", "elementwise", 1, accepts="f", exact=False,
          meaning=m.precise(np.cbrt), cost=20)
EXP = Op("EXP", "tkp", "elementwise", 1, accepts="f", exact=False,
         meaning=m.precise(np.exp), cost=7)
EXPM1 = Op("EXPM1", "tkp", "elementwise", 1, accepts="f", exact=False,
         meaning=m.precise(np.expm1), cost=7)
LOG = Op("LOG", "tkp", "elementwise", 1, accepts="f", exact=False,
         meaning=m.precise(np.log), cost=10)
LOG1P = Op("LOG1P", "tkp", "elementwise", 1, accepts="f", exact=False,
         meaning=m.precise(np.log1p), cost=13)
SIN = Op("SIN", "tkp", "elementwise", 1, accepts="f", exact=False,
         meaning=m.precise(np.sin), cost=40)
COS = Op("COS", "tkp", "elementwise", 1, accepts="f", exact=False,
         meaning=m.precise(np.cos), cost=40)
ATAN = Op("ATAN", "tkp", "elementwise", 1, accepts="f", exact=False,
          meaning=m.precise(np.arctan), cost=15)
TANH = Op("TANH", "tkp", "elementwise", 1, accepts="f", exact=False,
         meaning=m.precise(np.tanh), cost=11)
FLOOR = Op("FLOOR", "tkp", "elementwise", 1, accepts="f", meaning=m.plain(np.floor))
CEIL = Op("CEIL", "tkp", "elementwise", 1, accepts="f", meaning=m.plain(np.ceil))
TRUNC = Op("TRUNC", "tkp", "elementwise", 1, accepts="f", meaning=m.plain(np.trunc))
ROUND = Op("ROUND", "tkp", "elementwise", 1, accepts="f", meaning=m.plain(np.rint))
CAST = Op("CAST", "tkp", "elementwise", 1, result="any", meaning=m.cast)
BITCAST = Op("BITCAST", "tkp", "elementwise", 1, accepts="fi", result="any", meaning=m.bitcast)

# elementwise, two operands
ADD = Op("ADD", "tkp", "elementwise", 2, accepts="fi", symbol="({0} + {1})", commutative=True,
         meaning=m.plain(np.add), ufunc=np.add, identity=r.zero)
SUB = Op("SUB", "tkp", "elementwise", 2, accepts="fi", symbol="({0} - {1})",
         meaning=m.plain(np.subtract))
MUL = Op("MUL", "tkp", "elementwise", 2, accepts="fi", symbol="({0} * {1})", commutative=True,
         meaning=m.plain(np.multiply), ufunc=np.multiply, identity=lambda t: 1)
DIV = Op("DIV", "tkp", "elementwise", 2, accepts="f", symbol="({0} / {1})",
         meaning=m.plain(np.divide), cost=5)
IDIV = Op("IDIV", "tkp", "elementwise", 2, accepts="i", symbol="({0} // {1})",
          meaning=m.integer_division, cost=5)
REM = Op("REM", "tkp", "elementwise", 2, accepts="fi", symbol="({0} % {1})", meaning=m.remainder,
         cost=5)
POW = Op("POW", "tkp", "elementwise", 2, accepts="f", symbol="{0}**{1}", meaning=m.power,
         exact=False, cost=40)
MAX = Op("MAX", "tkp", "elementwise", 2, accepts="fi", commutative=True, meaning=m.maximum,
         ufunc=np.maximum, identity=r.lowest)
MIN = Op("MIN", "tkp", "elementwise", 2, accepts="fi", commutative=True, meaning=m.minimum,
         ufunc=np.minimum, identity=r.highest)
CMPLT = Op("CMPLT", "tkp", "elementwise", 2, result="bool", symbol="({0} < {1})",
           meaning=m.plain(np.less))
CMPLE = Op("CMPLE", "tkp", "elementwise", 2, result="bool", symbol="({0} <= {1})",
           meaning=m.plain(np.less_equal))
CMPEQ = Op("CMPEQ", "tkp", "elementwise", 2, result="bool", symbol="({0} == {1})",
           commutative=True, meaning=m.plain(np.equal))
CMPNE = Op("CMPNE", "tkp", "elementwise", 2, result="bool", symbol="({0} != {1})",
           commutative=True, meaning=m.plain(np.not_equal))
AND = Op("AND", "tkp", "elementwise", 2, accepts="ib", symbol="({0} & {1})", commutative=True,
         meaning=m.plain(np.bitwise_and), ufunc=np.bitwise_and, identity=r.all_ones)
OR = Op("OR", "tkp", "elementwise", 2, accepts="ib", symbol="({0} | {1})", commutative=True,
        meaning=m.plain(np.bitwise_or), ufunc=np.bitwise_or, identity=r.zero)
XOR = Op("XOR", "tkp", "elementwise", 2, accepts="ib", symbol="({0} ^ {1})", commutative=True,
         meaning=m.plain(np.bitwise_xor), ufunc=np.bitwise_xor, identity=r.zero)
SHL = Op("SHL", "tkp", "elementwise", 2, accepts="i", symbol="({0} << {1})", meaning=m.shift_left)
SHR = Op("SHR", "tkp", "elementwise", 2, accepts="i", symbol="({0} >> {1})", meaning=m.shift_right)

# elementwise, more operands
WHERE = Op("WHERE", "tkp", "elementwise", 3, result="where", meaning=m.plain(np.where))
MULACC = Op("MULACC", "tkp", "elementwise", 3, accepts="f", meaning=m.multiply_add,
            exact=False)
THREEFRY = Op("THREEFRY", "tkp", "elementwise", 4, accepts="w", arg=int, meaning=m.threefry,
              cost=100)

# movement
RESHAPE = Op("RESHAPE", "t", "movement", 1, shape=lambda s, a: a, arg=tuple,
             meaning=lambda n, x: np.reshape(x, n.arg))
PERMUTE = Op("PERMUTE", "t", "movement", 1, arg=tuple,
             shape=lambda s, a: tuple(s[0].shape[i] for i in a),
             meaning=lambda n, x: np.transpose(x, n.arg))
EXPAND = Op("EXPAND", "t", "movement", 1, shape=lambda s, a: a, arg=tuple, meaning=m.expand)
PAD = Op("PAD", "t", "movement", 2, arg=tuple, meaning=m.pad,
         shape=lambda s, a: tuple(n + lo + hi for n, (lo, hi) in zip(s[0].shape, a)))
SHRINK = Op("SHRINK", "t", "movement", 1, arg=tuple, meaning=m.shrink,
            shape=lambda s, a: tuple(hi - lo for lo, hi in a))
FLIP = Op("FLIP", "t", "movement", 1, arg=tuple, meaning=lambda n, x: np.flip(x, n.arg))
UNFOLD = Op("UNFOLD", "t", "movement", 1, arg=Window, shape=r.windowed, meaning=m.unfold,
            content=r.window)
FOLD = Op("FOLD", "t", "movement", 1, arg=Window, shape=r.windowed, meaning=m.fold_windows,
          content=r.window)
CONCAT = Op("CONCAT", "t", "movement", None, arg=int, shape=r.concatenated,
            meaning=lambda n, *xs: np.concatenate(xs, n.arg))
BARRIER = Op("BARRIER", "t", "movement", None, meaning=lambda n, x, *after: x, batching="first")
STOP = Op("STOP", "t", "movement", 1, meaning=lambda n, x: x, batching="first")

# reductions, indexed reads and writes (REDUCE also at kernel level, over ranges)
REDUCE = Op("REDUCE", "tk", "reduce", None, arg=Reduce, shape=r.reduced, meaning=m.reduce,
            binds="tail", cost=1, content=r.fold)
GATHER = Op("GATHER", "t", "gather", None, shape=r.gathered, meaning=m.gather)
SCATTER = Op("SCATTER", "t", "scatter", None, arg=Scatter,
             meaning=m.scatter, content=r.monoid)

SORT = Op("SORT", "tc", "sort", None, result="void", shape=scalar, arg=Sort, batching="body",
          cost=20)

# lanes of a named axis: batching over it takes both away
ALL_GATHER = Op("ALL_GATHER", "t", "collective", 1, arg=Axis,
                shape=lambda s, a: (a.size, *s[0].shape))
AXIS_INDEX = Op("AXIS_INDEX", "t", "collective", 0, result="any", shape=scalar, arg=Axis)

# scopes
FUNCTION = Op("FUNCTION", "t", "scope", None, result="void", shape=scalar, arg=Function,
              closed=True)
CALL = Op("CALL", "t", "scope", None, result="void", shape=scalar, arg=Call)
SCAN = Op("SCAN", "t", "scope", None, result="void", shape=scalar, arg=Scan)
WHILE = Op("WHILE", "t", "scope", None, result="void", shape=scalar, arg=While)
COND = Op("COND", "t", "scope", None, result="void", shape=scalar, arg=Cond)
HOST = Op("HOST", "tc", "host", None, result="void", shape=scalar, arg=Host,
          batching="body")
CUSTOM = Op("CUSTOM", "t", "scope", None, result="void", shape=scalar, arg=Custom)
GET = Op("GET", "tk", "scope", 1, result="any", shape=r.gotten, arg=int)

# kernel level: scalars over ranges
RANGE = Op("RANGE", "k", "kernel", 1, arg=Range, place=r.own_id, binds="itself")
VAR = Op("VAR", "kp", "kernel", 0, result="any", arg=Var, place=r.slot)
REF = Op("REF", "kp", "kernel", None, result="any", arg=Ref, place=r.slot)
INDEX = Op("INDEX", "k", "kernel", None)
LOAD = Op("LOAD", "kp", "kernel", None, cost=1)
STORE = Op("STORE", "kp", "kernel", None, result="void",
           arg=(Op, type(None)), cost=1, content=r.combine)
STAGE = Op("STAGE", "k", "kernel", None, arg=Stage, binds="tail")
CARRY = Op("CARRY", "k", "kernel", None, result="any", arg=Carry, content=r.carried)
ITER = Op("ITER", "k", "kernel", None, result="void", arg=Iter, binds="head")
STEP = Op("STEP", "k", "kernel", 3)
KERNEL = Op("KERNEL", "kc", "kernel", None, result="void", arg=Kernel, binds="all")

# program level: lines of a PROGRAM, in order (lower/program/linearize.py says what is legal)
PROGRAM = Op("PROGRAM", "p", "program", None, result="void")
SCRATCH = Op("SCRATCH", "p", "program", 1, result="any", arg=Stage)
ADDRESS = Op("ADDRESS", "p", "program", 2, result="any", arg=(int, type(None)))
PART = Op("PART", "p", "program", 0, result="any", arg=int)
FOR = Op("FOR", "p", "program", 2, result="any", arg=int)
PHI = Op("PHI", "p", "program", 2, result="any", arg=int)
ENDFOR = Op("ENDFOR", "p", "program", None, result="void")
LAST = Op("LAST", "p", "program", 1, result="any", arg=int)
BREAK = Op("BREAK", "p", "program", 2, result="void")
IF = Op("IF", "p", "program", 1, result="void", arg=int)
ENDIF = Op("ENDIF", "p", "program", 1, result="void")
SPLAT = Op("SPLAT", "p", "program", 1, result="any")
LANES = Op("LANES", "p", "program", 0, result="any")
LANESBELOW = Op("LANESBELOW", "p", "program", 1, result="any")
SHUFFLE = Op("SHUFFLE", "p", "program", 2, result="any", arg=tuple)
EVERY = Op("EVERY", "p", "program", 1, result="any")
EXTRACT = Op("EXTRACT", "p", "program", 1, result="any", arg=int)

# command level
SLOT = Op("SLOT", "c", "command", 0, result="void", arg=Slot)
SWAP = Op("SWAP", "c", "command", 2, result="void", arg=int)
EXEC = Op("EXEC", "c", "command", None, result="void", arg=Exec)
LOOP = Op("LOOP", "c", "command", None, result="void", arg=Loop)
BRANCH = Op("BRANCH", "c", "command", None, result="void", arg=Branch)
COMMANDS = Op("COMMANDS", "c", "command", None, result="void")
# fmt: on

ELEMENTWISE = frozenset(op for op in OPS.values() if op.kind == "elementwise")
MONOIDS = frozenset(op for op in OPS.values() if op.identity is not None)
COMPARISONS = frozenset({CMPLT, CMPLE, CMPEQ, CMPNE})
STRUCTURAL = frozenset({CALL, SCAN, WHILE, COND, CUSTOM})  # FUNCTIONs, then operands; read by GET
SEVERAL = STRUCTURAL | {HOST, SORT}  # no array, but several, which GETs read


def at_level(level: str) -> frozenset[Op]:
    """All ops that are legal at a level ("t", "k", "p" or "c")."""
    return frozenset(op for op in OPS.values() if level in op.levels)
