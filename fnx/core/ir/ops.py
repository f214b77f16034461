"""The op table: each Op object is its own entry. Every other fact about ops is derived from it.

An entry holds the levels at which the op is legal, its kind, arity and operand types, how the
shape and dtype of the result follow, its meaning in NumPy, its cost, how it is batched, and how
it prints (core/ir/op.py). An elementwise op has its entry here, its rule in
transforms/autodiff/derivatives.py, its formula in lower/legalize/elementary (or its line in
lower/render/llvm.py; a composition of ops in core/formulas/formulas.py), its public function in
numpy/ufuncs.py, and its name in lax/elementwise.py.

Levels: t tensor (whole arrays), k kernel (scalars over RANGEs), p program (a linear instruction
list with explicit vectors), c command (what a queue executes).

The constructors in build.py check their operands with the functions at the end.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fnx.core.ir import kernel_args, op_args
from fnx.core.ir import numpy_semantics as m
from fnx.core.ir import op as r
from fnx.core.ir.dtypes import DType
from fnx.core.ir.numpy_semantics import const_value as const_value
from fnx.core.ir.op import OPS as OPS
from fnx.core.ir.op import Op as Op
from fnx.core.ir.op import Shape as Shape
from fnx.core.ir.op import op_by_name as op_by_name
from fnx.core.ir.op import scalar
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import (
    ArgumentError,
    AxisError,
    DTypeError,
    FnxError,
    OutOfBoundsError,
    ShapeError,
)

# ---- the table ------------------------------------------------------------------------------
# fmt: off

# sources
PARAM = Op("PARAM", "t", "source", 0, result="any", shape=r.arg_shape, arg=op_args.Param,
           source_key=r.slot_key)
LEAF = Op("LEAF", "t", "source", 0, result="any", shape=r.arg_shape, arg=op_args.Leaf,
          source_key=r.trace_key)
BUFFER = Op("BUFFER", "t", "source", 0, result="any", shape=r.arg_shape, arg=op_args.Buffer)
CONST = Op("CONST", "tkpc", "source", 0, result="any", shape=scalar, arg=int, meaning=m.const,
           source_key=r.last_key)
DIMENSION = Op("DIMENSION", "t", "source", 0, result="any", shape=scalar, arg=op_args.Dimension,
               source_key=r.dimension_key)
IOTA = Op("IOTA", "t", "source", 0, result="any", shape=lambda s, a: (a,),
          arg=(int, op_args.Dimension), meaning=m.iota)

# elementwise, one operand
NEG = Op("NEG", "tkp", "elementwise", 1, accepts="fic", symbol="-{0}",
         meaning=m.from_ufunc(np.negative))
ABS = Op("ABS", "tkp", "elementwise", 1, accepts="fi", meaning=m.from_ufunc(np.abs))
NOT = Op("NOT", "tkp", "elementwise", 1, accepts="ib", symbol="~{0}",
         meaning=m.from_ufunc(np.invert))
SQRT = Op("SQRT", "tkp", "elementwise", 1, accepts="fc", meaning=m.from_ufunc(np.sqrt), cost=5)
CBRT = Op("CBRT", "tkp", "elementwise", 1, accepts="f", exact=False,
          meaning=m.in_float64(np.cbrt), cost=20)
EXP = Op("EXP", "tkp", "elementwise", 1, accepts="fc", exact=False,
         meaning=m.in_float64(np.exp), cost=7)
EXPM1 = Op("EXPM1", "tkp", "elementwise", 1, accepts="fc", exact=False,
         meaning=m.in_float64(np.expm1), cost=7)
LOG = Op("LOG", "tkp", "elementwise", 1, accepts="fc", exact=False,
         meaning=m.in_float64(np.log), cost=10)
LOG1P = Op("LOG1P", "tkp", "elementwise", 1, accepts="fc", exact=False,
         meaning=m.in_float64(np.log1p), cost=13)
SIN = Op("SIN", "tkp", "elementwise", 1, accepts="fc", exact=False,
         meaning=m.in_float64(np.sin), cost=40)
COS = Op("COS", "tkp", "elementwise", 1, accepts="fc", exact=False,
         meaning=m.in_float64(np.cos), cost=40)
TAN = Op("TAN", "tkp", "elementwise", 1, accepts="fc", exact=False,
         meaning=m.in_float64(np.tan), cost=45)
ATAN = Op("ATAN", "tkp", "elementwise", 1, accepts="fc", exact=False,
          meaning=m.in_float64(np.arctan), cost=15)
ASIN = Op("ASIN", "tkp", "elementwise", 1, accepts="fc", exact=False,
          meaning=m.in_float64(np.arcsin), cost=20)
TANH = Op("TANH", "tkp", "elementwise", 1, accepts="fc", exact=False,
         meaning=m.in_float64(np.tanh), cost=11)
FLOOR = Op("FLOOR", "tkp", "elementwise", 1, accepts="f", meaning=m.from_ufunc(np.floor))
CEIL = Op("CEIL", "tkp", "elementwise", 1, accepts="f", meaning=m.from_ufunc(np.ceil))
TRUNC = Op("TRUNC", "tkp", "elementwise", 1, accepts="f", meaning=m.from_ufunc(np.trunc))
ROUND = Op("ROUND", "tkp", "elementwise", 1, accepts="f", meaning=m.from_ufunc(np.rint))
ERF = Op("ERF", "tkp", "elementwise", 1, accepts="f", exact=False,
         meaning=m.in_float64(m.from_formula("ERF")), cost=20)
ERFC = Op("ERFC", "tkp", "elementwise", 1, accepts="f", exact=False,
          meaning=m.in_float64(m.from_formula("ERFC")), cost=50)
LGAMMA = Op("LGAMMA", "tkp", "elementwise", 1, accepts="f", exact=False,
            meaning=m.in_float64(m.from_formula("LGAMMA")), cost=150)
DIGAMMA = Op("DIGAMMA", "tkp", "elementwise", 1, accepts="f", exact=False,
             meaning=m.in_float64(m.from_formula("DIGAMMA")), cost=150)
CAST = Op("CAST", "tkp", "elementwise", 1, accepts="fibck", result="any", meaning=m.cast)
BITCAST = Op("BITCAST", "tkp", "elementwise", 1, accepts="fik", result="any", meaning=m.bitcast)

# complex numbers; lower/tensor/complex_to_real.py makes pairs of real numbers of them
REAL = Op("REAL", "t", "elementwise", 1, accepts="c", result="real",
          meaning=lambda n, x: np.array(x.real))
IMAG = Op("IMAG", "t", "elementwise", 1, accepts="c", result="real",
          meaning=lambda n, x: np.array(x.imag))
COMPLEX = Op("COMPLEX", "t", "elementwise", 2, accepts="p", result="complex",
             meaning=m.complex_number)

# elementwise, two operands
AND = Op("AND", "tkp", "elementwise", 2, accepts="ib", symbol="({0} & {1})", commutative=True,
         meaning=m.from_ufunc(np.bitwise_and), ufunc=np.bitwise_and, identity=r.all_ones,
         fold="all")
OR = Op("OR", "tkp", "elementwise", 2, accepts="ib", symbol="({0} | {1})", commutative=True,
        meaning=m.from_ufunc(np.bitwise_or), ufunc=np.bitwise_or, identity=r.zero, fold="any")
XOR = Op("XOR", "tkp", "elementwise", 2, accepts="ib", symbol="({0} ^ {1})", commutative=True,
         meaning=m.from_ufunc(np.bitwise_xor), ufunc=np.bitwise_xor, identity=r.zero, fold="xor")
ADD = Op("ADD", "tkp", "elementwise", 2, accepts="fic", symbol="({0} + {1})", commutative=True,
         meaning=m.from_ufunc(np.add), ufunc=np.add, identity=r.zero, fold="sum", on_bool=OR)
SUB = Op("SUB", "tkp", "elementwise", 2, accepts="fic", symbol="({0} - {1})",
         meaning=m.from_ufunc(np.subtract))
MUL = Op("MUL", "tkp", "elementwise", 2, accepts="fic", symbol="({0} * {1})", commutative=True,
         meaning=m.from_ufunc(np.multiply), ufunc=np.multiply, identity=lambda t: 1, fold="prod",
         on_bool=AND)
DIV = Op("DIV", "tkp", "elementwise", 2, accepts="fc", symbol="({0} / {1})",
         meaning=m.from_ufunc(np.divide), cost=5)
IDIV = Op("IDIV", "tkp", "elementwise", 2, accepts="i", symbol="({0} // {1})",
          meaning=m.integer_divide, cost=5)
REM = Op("REM", "tkp", "elementwise", 2, accepts="fi", symbol="({0} % {1})", meaning=m.remainder,
         cost=120)
POW = Op("POW", "tkp", "elementwise", 2, accepts="fc", symbol="{0}**{1}",
         meaning=m.power, exact=False, cost=40)
MAX = Op("MAX", "tkp", "elementwise", 2, accepts="fi", commutative=True, meaning=m.maximum,
         ufunc=np.maximum, identity=r.min_value, fold="max", on_bool=OR,
         arg=(str, type(None)))
MIN = Op("MIN", "tkp", "elementwise", 2, accepts="fi", commutative=True, meaning=m.minimum,
         ufunc=np.minimum, identity=r.max_value, fold="min", on_bool=AND,
         arg=(str, type(None)))
LOGADDEXP = Op("LOGADDEXP", "tkp", "elementwise", 2, accepts="f", commutative=True, exact=False,
               meaning=m.in_float64(np.logaddexp), ufunc=np.logaddexp, identity=r.min_value,
               fold="logsumexp", cost=25)
CMPLT = Op("CMPLT", "tkp", "elementwise", 2, result="bool", symbol="({0} < {1})",
           meaning=m.from_ufunc(np.less))
CMPLE = Op("CMPLE", "tkp", "elementwise", 2, result="bool", symbol="({0} <= {1})",
           meaning=m.from_ufunc(np.less_equal))
CMPEQ = Op("CMPEQ", "tkp", "elementwise", 2, accepts="fibck", result="bool", symbol="({0} == {1})",
           commutative=True, meaning=m.from_ufunc(np.equal))
CMPNE = Op("CMPNE", "tkp", "elementwise", 2, accepts="fibck", result="bool", symbol="({0} != {1})",
           commutative=True, meaning=m.from_ufunc(np.not_equal))
SHL = Op("SHL", "tkp", "elementwise", 2, accepts="i", symbol="({0} << {1})", meaning=m.shift_left)
SHR = Op("SHR", "tkp", "elementwise", 2, accepts="i", symbol="({0} >> {1})", meaning=m.shift_right)

# elementwise, more operands
UNLIKELY = "UNLIKELY"  # arg of a WHERE whose condition is unlikely to hold
WHERE = Op("WHERE", "tkp", "elementwise", 3, accepts="fibck", result="where",
           meaning=m.from_ufunc(np.where), arg=(str, type(None)))
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
UNFOLD = Op("UNFOLD", "t", "movement", 1, arg=op_args.Window, shape=r.window_shape,
            meaning=m.unfold, content_key=r.window_key)
FOLD = Op("FOLD", "t", "movement", 1, arg=op_args.Window, shape=r.window_shape,
          meaning=m.fold_windows, content_key=r.window_key)
CONCAT = Op("CONCAT", "t", "movement", None, arg=int, shape=r.concat_shape,
            meaning=lambda n, *xs: np.concatenate(xs, n.arg))
BARRIER = Op("BARRIER", "t", "movement", None, meaning=lambda n, x, *after: x, batching="first")
STOP_GRADIENT = Op("STOP_GRADIENT", "t", "movement", 1, meaning=lambda n, x: x, batching="first")

# reductions, indexed reads and writes (REDUCE also at kernel level, over ranges). Only a REDUCE
# reads an ARG_PAIR (key, index): with MAX or MIN it returns the least index that has the extreme
# key
ARG_PAIR = Op("ARG_PAIR", "tk", "pair", 2, result="any", meaning=m.arg_pair, batching="elementwise",
              cost=1)
REDUCE = Op("REDUCE", "tk", "reduce", None, arg=op_args.Reduce, shape=r.reduce_shape,
            meaning=m.reduce, binds="tail", cost=1, content_key=r.reduce_key)
GATHER = Op("GATHER", "t", "gather", None, arg=op_args.Gather, shape=r.gather_shape,
            meaning=m.gather, content_key=r.gather_key)
SCATTER = Op("SCATTER", "t", "scatter", None, arg=op_args.Scatter,
             meaning=m.scatter, content_key=r.scatter_key)

SORT = Op("SORT", "tc", "sort", None, result="void", shape=scalar, arg=op_args.Sort,
          batching="body", cost=20)
LINALG = Op("LINALG", "tc", "linalg", None, result="void", shape=scalar, arg=op_args.Linalg,
            batching="body", cost=1)

# discrete Fourier transform of pairs (real, imaginary) along an axis, with a table of twiddles; the
# steps of its plan, which the compiler inserts
FFT = Op("FFT", "t", "fft", 2, accepts="f", arg=op_args.Fft, meaning=m.fft, exact=False, cost=40,
         shape=lambda s, a: a.result_shape(s[0].shape))
FFT_STEP = Op("FFT_STEP", "tc", "fft", None, result="void", shape=scalar, arg=op_args.FftStep,
              batching="body", cost=20)

# collectives over a named axis; batching over that axis eliminates all of them
ALL_GATHER = Op("ALL_GATHER", "t", "collective", 1, arg=op_args.Axis,
                shape=lambda s, a: (a.size, *s[0].shape))
AXIS_INDEX = Op("AXIS_INDEX", "t", "collective", 0, result="any", shape=scalar, arg=op_args.Axis)
# a value, and one that says whether it varies along the axis: broadcast where that one varies, or
# summed where it does not; each is the transpose of the other
PVARY_LIKE = Op("PVARY_LIKE", "t", "collective", 2, arg=op_args.Axis)
PSUM_LIKE = Op("PSUM_LIKE", "t", "collective", 2, arg=op_args.Axis)

# exchange between processes, which lower/partition inserts (core/ir/collectives.py)
COLLECTIVE = Op("COLLECTIVE", "t", "collective", None, result="void", shape=scalar,
                arg=op_args.Collective, batching="body")

# scopes
FUNCTION = Op("FUNCTION", "t", "scope", None, result="void", shape=scalar, arg=op_args.Function,
              is_isolated=True)
CALL = Op("CALL", "t", "scope", None, result="void", shape=scalar, arg=op_args.Call)
SCAN = Op("SCAN", "t", "scope", None, result="void", shape=scalar, arg=op_args.Scan)
WHILE = Op("WHILE", "t", "scope", None, result="void", shape=scalar, arg=op_args.While)
COND = Op("COND", "t", "scope", None, result="void", shape=scalar, arg=op_args.Cond)
CALLBACK = Op("CALLBACK", "tc", "host", None, result="void", shape=scalar, arg=op_args.Callback,
              batching="body")
CUSTOM = Op("CUSTOM", "t", "scope", None, result="void", shape=scalar, arg=op_args.Custom)
GETTUPLE = Op("GETTUPLE", "tk", "scope", 1, result="any", shape=r.gettuple_shape, arg=int)

# kernel level: scalars over ranges
RANGE = Op("RANGE", "k", "kernel", 1, arg=kernel_args.Range, source_key=r.id_key, binds="itself")
VAR = Op("VAR", "kp", "kernel", 0, result="any", arg=kernel_args.Var, source_key=r.slot_key)
REF = Op("REF", "kp", "kernel", None, result="any", arg=kernel_args.Ref, source_key=r.slot_key)
INDEX = Op("INDEX", "k", "kernel", None)
LOAD = Op("LOAD", "kp", "kernel", None, cost=1)
STORE = Op("STORE", "kp", "kernel", None, result="void",
           arg=(Op, str, type(None)), cost=1, content_key=r.combine_key)
MMA = Op("MMA", "kp", "kernel", None, result="any", arg=kernel_args.Mma, binds="tail", cost=1)
STAGE = Op("STAGE", "k", "kernel", None, arg=kernel_args.Stage, binds="tail")
SHUFFLE_XOR = Op("SHUFFLE_XOR", "kp", "kernel", None, arg=int, cost=1)
CARRY = Op("CARRY", "k", "kernel", None, result="any", arg=kernel_args.Carry,
           content_key=r.carry_key)
LOOP = Op("LOOP", "k", "kernel", None, result="void", arg=kernel_args.Loop, binds="head")
PER_ITERATION = Op("PER_ITERATION", "k", "kernel", 3)
KERNEL = Op("KERNEL", "kc", "kernel", None, result="void", arg=kernel_args.Kernel, binds="all")

# program level: instructions of a PROGRAM, in order (legality: lower/emit/emit.py)
PROGRAM = Op("PROGRAM", "p", "program", None, result="void",
             arg=(kernel_args.ThreadGroup, type(None)))
SCRATCH = Op("SCRATCH", "p", "program", 1, result="any", arg=kernel_args.Stage)
ADDRESS = Op("ADDRESS", "p", "program", 2, result="any", arg=(int, type(None)))
PARALLEL_RANGE = Op("PARALLEL_RANGE", "p", "program", 0, result="any", arg=int)
ID = Op("ID", "p", "program", 0, result="any", arg=str)
SYNC = Op("SYNC", "p", "program", 0, result="void")
ASYNC_COPY = Op("ASYNC_COPY", "p", "program", None, result="void")
ASYNC_WAIT = Op("ASYNC_WAIT", "p", "program", 0, result="void")
EXTERN_CALL = Op("EXTERN_CALL", "p", "program", None, result="void", arg=str)
FOR = Op("FOR", "p", "program", 2, result="any", arg=int)
PHI = Op("PHI", "p", "program", 2, result="any", arg=int)
ENDFOR = Op("ENDFOR", "p", "program", None, result="void")
LOOP_RESULT = Op("LOOP_RESULT", "p", "program", 1, result="any", arg=int)
BREAK = Op("BREAK", "p", "program", 2, result="void")
IF = Op("IF", "p", "program", 1, result="void", arg=int)
ENDIF = Op("ENDIF", "p", "program", 1, result="void")
SPLAT = Op("SPLAT", "p", "program", 1, result="any")
LANES = Op("LANES", "p", "program", 0, result="any")
LANE_MASK = Op("LANE_MASK", "p", "program", 1, result="any")
SHUFFLE = Op("SHUFFLE", "p", "program", 2, result="any", arg=tuple)
ALL_LANES = Op("ALL_LANES", "p", "program", 1, result="any")
VECTOR = Op("VECTOR", "p", "program", None, result="any")
EXTRACT = Op("EXTRACT", "p", "program", 1, result="any", arg=int)

# command level
SLOT = Op("SLOT", "c", "command", 0, result="void", arg=kernel_args.Slot)
SWAP = Op("SWAP", "c", "command", 2, result="void", arg=int)
LINKED = Op("LINKED", "c", "command", 0, result="void", arg=kernel_args.Linked)
EXEC = Op("EXEC", "c", "command", None, result="void", arg=kernel_args.Exec)
CMD_LOOP = Op("CMD_LOOP", "c", "command", None, result="void", arg=kernel_args.CmdLoop)
BRANCH = Op("BRANCH", "c", "command", None, result="void", arg=kernel_args.Branch)
COMMANDS = Op("COMMANDS", "c", "command", None, result="void")
# fmt: on

ELEMENTWISE = frozenset(op for op in OPS.values() if op.kind == "elementwise")
MONOIDS = frozenset(op for op in OPS.values() if op.identity is not None)
COMPARISONS = frozenset({CMPLT, CMPLE, CMPEQ, CMPNE})
HIGHER_ORDER = frozenset({CALL, SCAN, WHILE, COND, CUSTOM})  # src: FUNCTIONs, then operands
# ops whose results are read by GETTUPLEs
MULTI_RESULT = HIGHER_ORDER | {CALLBACK, SORT, FFT_STEP, LINALG, COLLECTIVE}


def ops_at_level(level: str) -> frozenset[Op]:
    """Return all ops that are legal at a level ("t", "k", "p" or "c")."""
    return frozenset(op for op in OPS.values() if level in op.levels)


# ---- operand checks -----------------------------------------------------------------------------


def operand_error(op: Op, src: tuple[UOp, ...]) -> FnxError:
    """Return the error that says why an elementwise op does not accept these operands."""
    values = src[1:] if op is WHERE else src
    if len(src) != op.arity:
        return ArgumentError(f"{op}: expected {op.arity} operands, got {len(src)}")
    if any(v.dtype is not values[0].dtype for v in values):
        return DTypeError(f"{op}: expected operands of one dtype, got "
                          f"{' and '.join(v.dtype.name for v in values)}",
                          hint="convert one of them with .astype(...)")
    if any(s.shape != src[0].shape for s in src):
        return ShapeError(f"{op}: expected operands of one shape, got "
                          f"{' and '.join(str(v.shape) for v in src)}")
    if not op.accepts_dtype(values[0].dtype):
        return DTypeError(f"{op} does not take {values[0].dtype}")
    return DTypeError(f"WHERE: expected a bool condition of shape {src[1].shape}, got "
                      f"{src[0].dtype} {src[0].shape}")


def check_window_axes(name: str, x: UOp, axis: int, offset: int, stride: int, dilation: int
                       ) -> tuple[int, int]:
    """Check the axes of windows, and return the lengths of both."""
    rank = len(x.shape)
    if not (0 <= axis < rank and 0 <= offset < rank) or axis == offset:
        raise AxisError(f"{name}: expected two axes of {x.shape}, got {axis} and {offset}")
    if stride < 1 or dilation < 1:
        raise ArgumentError(f"{name}: expected stride and dilation >= 1, got {stride} and "
                            f"{dilation}")
    return x.shape[axis], x.shape[offset]


def check_monoid(name: str, monoid: Op, dtype: DType) -> None:
    if monoid not in MONOIDS or not monoid.accepts_dtype(dtype):
        raise DTypeError(f"{name}: {monoid} does not fold {dtype}")


def check_updates(x: UOp, shape: Shape, updates: UOp, monoid: Op | None) -> None:
    if updates.shape != shape or updates.dtype is not x.dtype:
        raise ShapeError(f"scatter: expected updates {x.dtype}{list(shape)}, got "
                         f"{updates.dtype}{list(updates.shape)}")
    if monoid is not None:
        check_monoid("scatter", monoid, x.dtype)
        if x.dtype.is_complex and monoid is not ADD:
            raise DTypeError(f"scatter: expected real numbers to combine by {monoid}, got "
                             f"{x.dtype}",
                             hint="set, add, multiply, max and min take complex numbers")


def check_index_axes(x: UOp, index: Sequence[UOp], axes: Sequence[int] | None) -> tuple[int, ...]:
    """Check index arrays, and return the axes that they index; None: the leading ones."""
    if not 0 < len(index) <= len(x.shape):
        raise OutOfBoundsError(f"expected 1 to {len(x.shape)} indices, got {len(index)}")
    axes = range(len(index)) if axes is None else axes
    if len(axes) != len(index) or list(axes) != sorted(set(axes) & set(range(len(x.shape)))):
        raise AxisError(f"expected {len(index)} ascending axes of {x.shape}, one for each index, "
                        f"got {tuple(axes)}")
    for i in index:
        if not i.dtype.is_integer:
            raise DTypeError(f"expected integer indices, got {i.dtype}")
        if i.shape != index[0].shape:
            raise ShapeError(f"expected indices of one shape, got {index[0].shape}, {i.shape}")
    return tuple(axes)
