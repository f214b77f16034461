"""Constructors of ops with several results, read by GETTUPLE: calls, control flow, effects, sorts;
of the bodies of loops; and of the command level: memory slots and commands.

>>> x = build.param(0, dtypes.int32, ())
>>> twice = build.function([build.add(x, x)], 1, "twice")
>>> call(twice, [build.const(3, dtypes.int32)])[0].dtype
int32

Bodies of loops are built from Python functions of their PARAMs:

    (total, last), sums = build_scan(step, 8, [w], [zero, x0], [xs])

calls ``step([w], [total, last], [x])`` once, on PARAMs of the operands' types, and closes the
result. The step may read nothing but its operands.

>>> from fnx.core.ir import build, dtypes
>>> xs = build.param(0, dtypes.float32, (8,))
>>> (total,), () = build_scan(lambda consts, carries, x: ([build.add(carries[0], x[0])], []),
...                          8, [], [build.const(0, dtypes.float32)], [xs], name="sum")
>>> total
<GETTUPLE float32[] of 1, 0>

>>> nothing = commands([])
>>> cmd_loop(nothing, 3, "again").arg
CmdLoop(name='again', trips=3, locs=(), strip_length=0, may_overrun=False)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fnx.core.ir import build, dtypes, kernel_args, op_args, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.expr import Expr, clamp
from fnx.core.ir.ops import Shape
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import ArgumentError, Location, ShapeError
from fnx.core.support.line_visits import recording
from fnx.core.support.process import lazy_import

routines = lazy_import("fnx.core.ir.linalg")


def call(fn: UOp, args: Sequence[UOp], name: str = "", policy: Any = None) -> tuple[UOp, ...]:
    """Return the results of calling a FUNCTION (op_args.Call)."""
    if len(args) != fn.arg.n_params:
        raise ArgumentError(f"call: expected {fn.arg.n_params} operands, got {len(args)}")
    outs = tuple((o.shape, o.dtype) for o in fn.src)
    arg = op_args.Call(name or fn.arg.name, outs, policy=policy)
    return build.results(UOp(ops.CALL, dtypes.void, (fn, *args), arg))


def scan(body: UOp, length: int, consts: Sequence[UOp], carries: Sequence[UOp],
         xs: Sequence[UOp], reverse: bool = False, name: str = "", checkpoint: int = 0
         ) -> tuple[UOp, ...]:
    """Return the results of a SCAN: the final carries, then the ys (op_args.Scan)."""
    n = len(carries)
    outs = [(o.shape, o.dtype) for o in body.src]
    outs[n:] = [((length, *shape), dtype) for shape, dtype in outs[n:]]
    arg = op_args.Scan(name or body.arg.name, length, len(consts), n, reverse, tuple(outs),
                       checkpoint)
    return build.results(UOp(ops.SCAN, dtypes.void, (body, *consts, *carries, *xs), arg))


def while_(condition: UOp, body: UOp, consts: Sequence[UOp], carries: Sequence[UOp],
           name: str = "", max_trips: int = 0) -> tuple[UOp, ...]:
    """Return the results of a WHILE: the final carries (op_args.While)."""
    outs = tuple([(o.shape, o.dtype) for o in body.src])
    arg = op_args.While(name or body.arg.name, len(consts), outs, max_trips)
    return build.results(UOp(ops.WHILE, dtypes.void, (condition, body, *consts, *carries), arg))


def cond(branches: Sequence[UOp], which: UOp, args: Sequence[UOp], name: str = ""
         ) -> tuple[UOp, ...]:
    """Return the results of a COND: those of branch ``which``, clamped (op_args.Cond)."""
    outs = tuple([(o.shape, o.dtype) for o in branches[0].src])
    arg = op_args.Cond(name or branches[0].arg.name, len(branches), outs)
    return build.results(UOp(ops.COND, dtypes.void, (*branches, which, *args), arg))


def takes_branch(which: UOp, i: int, count: int) -> UOp:
    """Return the bool whether the clamped branch number is ``i``. Of two branches, each is taken
    where the other is not."""
    if count == 2:
        is_second = which.src[0] if which.op is ops.CAST and which.src[0].dtype.is_bool else \
            build.lt(build.const_like(which, 0), which)
        return is_second if i else build.logical_not(is_second)
    return clamp(Expr(which), 0, count - 1).eq(i).node


def custom(functions: Sequence[UOp], arg: op_args.Custom, args: Sequence[UOp]) -> tuple[UOp, ...]:
    """Return the results of a function with rules, on captures and arguments (op_args.Custom)."""
    return build.results(UOp(ops.CUSTOM, dtypes.void, (*functions, *args), arg))


# ---- effects ------------------------------------------------------------------------------------


TOKEN = ((0,), dtypes.bool_)  # type of the tokens that order effects: arrays without elements


def initial_token() -> UOp:
    """Return the token for the first effect."""
    return build.const(False, dtypes.bool_, (0,))


def is_token(node: UOp) -> bool:
    return node.dtype is dtypes.bool_ and node.shape == (0,)


def callback(name: str, handle: UOp, token: UOp | None, operands: Sequence[UOp],
             outs: Iterable[tuple[Shape, DType]], method: str = "") -> tuple[UOp, ...]:
    """Return the results of a CALLBACK, preceded by the next token if there is one
    (op_args.Host)."""
    effect = token is not None
    arg = op_args.Callback(name, effect, tuple([(x.shape, x.dtype) for x in operands]),
                           ((TOKEN,) if effect else ()) + tuple(outs), method=method)
    src = (handle, *operands) if token is None else (handle, token, *operands)
    return build.results(UOp(ops.CALLBACK, dtypes.void, src, arg))


def sort(operands: Sequence[UOp], n_keys: int, outputs: Iterable[int] | None = None,
         name: str = "sort") -> tuple[UOp, ...]:
    """Sort operands along the last axis by the first ``n_keys`` of them (op_args.Sort).

    ``outputs`` are the indices of the operands to return, -1 for the permutation; None: all
    operands.
    """
    first = operands[0]
    if any(x.shape != first.shape for x in operands) or not first.shape:
        raise ShapeError("sort: expected operands of one shape with an axis, got "
                         f"{', '.join(str(x.shape) for x in operands)}")
    if not 1 <= n_keys <= len(operands):
        raise ArgumentError(f"sort: expected 1 to {len(operands)} keys, got {n_keys}")
    if any(x.dtype.kind == "key" for x in operands[:n_keys]):
        raise dtypes.random_key_error()
    if first.shape[-1] >= 1 << 31:
        raise ShapeError(f"sort: expected less than 2**31 elements, got {first.shape[-1]}",
                         hint="sort parts of it and merge them")
    if first.shape[-1] in (0, 1):
        return tuple([build.const(0, dtypes.int32, first.shape) if i < 0 else operands[i]
                      for i in (range(len(operands)) if outputs is None else outputs)])
    promoted = tuple(map(build.to_compute, operands))
    ins = tuple([(x.shape, x.dtype) for x in promoted])
    arg = op_args.Sort(name, n_keys, ins, tuple(range(len(ins)) if outputs is None else outputs))
    results = build.results(UOp(ops.SORT, dtypes.void, promoted, arg))
    return tuple([x if i < 0 else build.cast(x, operands[i].dtype)
                  for x, i in zip(results, arg.outputs)])


def fft(x: UOp, table: UOp, axis: int, inverse: bool = False, scale: float = 1.0,
        real: bool = False) -> UOp:
    """Return the discrete Fourier transform of pairs (op_args.Fft), with the table of its plan."""
    return UOp(ops.FFT, x.dtype, (x, table), op_args.Fft(axis, inverse, scale, real))


def fft_step(x: UOp, table: UOp, arg: op_args.FftStep) -> UOp:
    """Return one step of a discrete Fourier transform of x[outer, n, inner, 2]."""
    return build.results(UOp(ops.FFT_STEP, dtypes.void, (x, table), arg))[0]


def linalg_arg(routine: str, operands: Sequence[UOp], options: Sequence[str]) -> op_args.Linalg:
    """Return the arg of a LINALG with these operands."""
    ins, chosen = tuple([(x.shape, x.dtype) for x in operands]), tuple(sorted(options))
    return op_args.Linalg(routine, routine, chosen, ins,
                          routines.result_types(routine, chosen, ins))


def linalg(routine: str, operands: Sequence[UOp], options: Sequence[str] = ()
           ) -> tuple[UOp, ...]:
    """Return the results of a routine for each matrix of a batch (op_args.Linalg).

    Operands of storage-only dtypes are computed in their compute dtypes.
    """
    promoted = tuple(map(build.to_compute, operands))
    arg = linalg_arg(routine, promoted, options)
    if any(0 in shape for shape, _ in arg.ins):
        empty: tuple[UOp, ...] = routines.empty_results(routine, arg.options, arg.outs)
        return empty
    results = build.results(UOp(ops.LINALG, dtypes.void, promoted, arg))
    dtype = operands[0].dtype
    return tuple([build.cast(x, dtype) if x.dtype is promoted[0].dtype else x for x in results])


# ---- bodies of loops, from Python functions -----------------------------------------------------


Nodes = Sequence[UOp]
StepFn = Callable[[Nodes, Nodes, Nodes], tuple[Nodes, Nodes]]  # consts, carries, x -> carries, y


def build_function(f: Callable[[Nodes], Iterable[UOp]], like: Nodes, name: str) -> UOp:
    """Return the FUNCTION of ``f`` for operands of the types of ``like``."""
    return body_function(lambda: f(params_like(like)), len(like), name)


def body_function(build_outs: Callable[[], Iterable[UOp]], n_params: int, name: str) -> UOp:
    """Return the FUNCTION of what ``build_outs`` builds of PARAMs and by inlining others."""
    recorder = recording.recorder
    if recorder is None:
        return build.function(build_outs(), n_params, name)
    outer = recorder.enter_body()
    function = build.function(build_outs(), n_params, name)
    recorder.leave_body(outer, function)
    return function


def derived_function(function: UOp, of: UOp, slots: Mapping[int, int] | None = None, *,
                     rule: str = "") -> UOp:
    """Return a FUNCTION that has the parameters and nodes, so also the lines, of another.

    Args:
        slots: the new slots of parameters, if they differ.
        rule: "jvp" or "bwd", if it is a derivative rule of the user's.
    """
    if recording.recorder is not None and (function is not of or rule):
        recording.recorder.derived(function, of, slots, rule)
    return function


def label(node: UOp, name: str) -> UOp:
    """Return a value by way of a CALL of an identity with this name."""
    return call(build.function(params_like([node]), 1, name), [node])[0]


def params_like(nodes: Nodes) -> list[UOp]:
    """Return PARAM 0, 1, ... with the types of some nodes."""
    return [build.param(i, x.dtype, x.shape) for i, x in enumerate(nodes)]


def build_scan(step: StepFn, length: int, consts: Nodes, carries: Nodes, xs: Nodes, *,
               reverse: bool = False, checkpoint: int = 0, name: str = "step"
               ) -> tuple[tuple[UOp, ...], tuple[UOp, ...]]:
    """Return the final carries and the stacked ys of a SCAN."""
    carry_start, x_start = len(consts), len(consts) + len(carries)
    elements = [build.param(0, x.dtype, x.shape[1:]) for x in xs]
    params = params_like([*consts, *carries, *elements])
    body = body_function(lambda: itertools.chain(*step(
        params[:carry_start], params[carry_start:x_start], params[x_start:])), len(params), name)
    results = scan(body, length, consts, carries, xs, reverse, name, checkpoint)
    return results[:len(carries)], results[len(carries):]


def build_while(condition: Callable[[Nodes, Nodes], UOp],
                step: Callable[[Nodes, Nodes], Nodes], consts: Nodes, carries: Nodes, *,
                name: str = "step", max_trips: int = 0) -> tuple[UOp, ...]:
    """Return the final carries of a WHILE; both functions take consts and carries.

    ``max_trips`` is an upper bound of the trip count (0: unknown).
    """
    n, params = len(consts), params_like([*consts, *carries])
    stop = body_function(lambda: [condition(params[:n], params[n:])], len(params),
                         f"{name}.goes_on")
    body = body_function(lambda: step(params[:n], params[n:]), len(params), name)
    return while_(stop, body, consts, carries, name, max_trips)


# ---- commands -----------------------------------------------------------------------------------


def slot(kind: str, index: int, offset: int, nbytes: int, strides: Iterable[int] = ()) -> UOp:
    """Return memory of a call: argument or result ``index`` ("in", "out"), or arena bytes."""
    moves = tuple(strides)
    while moves and not moves[-1]:
        moves = moves[:-1]
    return UOp(ops.SLOT, dtypes.void, (), kernel_args.Slot(kind, index, offset, nbytes, moves))


def swap(even: UOp, odd: UOp, loop: int) -> UOp:
    """Return memory that is one SLOT in even iterations of a loop, and another in odd ones.

    ``loop`` counts from the outermost loop around the command. After a loop, the parity is that
    of its trip count.
    """
    return UOp(ops.SWAP, dtypes.void, (even, odd), loop)


def exec_(fn: UOp, slots: Iterable[UOp], scalars: Iterable[UOp], name: str,
          locs: tuple[Location, ...] = ()) -> UOp:
    """Run a KERNEL, with a SLOT per REF slot and a CONST per VAR slot, or another callee."""
    return UOp(ops.EXEC, dtypes.void, (fn, *slots, *scalars), kernel_args.Exec(name, locs))


def callee(call: UOp) -> UOp:
    """Return the callee of the command of a CALLBACK (which takes handle, operands and results), a
    SORT or a LINALG (operands and results), or an FFT_STEP (array, table and result): ``exec_``."""
    return UOp(call.op, dtypes.void, (), call.arg)


def linked_callee(arg: kernel_args.Linked) -> UOp:
    """Return the callee for a kernel whose object file is known (``exec_``)."""
    return UOp(ops.LINKED, dtypes.void, (), arg)


def cmd_loop(body: UOp, trips: int, name: str, locs: tuple[Location, ...] = ()) -> UOp:
    """Run COMMANDS ``trips`` times."""
    return UOp(ops.CMD_LOOP, dtypes.void, (body,), kernel_args.CmdLoop(name, trips, locs))


def cmd_while(test: UOp, flag: UOp, body: UOp, name: str,
              locs: tuple[Location, ...] = ()) -> UOp:
    """Repeat: run COMMANDS ``test``, which write a bool to ``flag``; if it is true run ``body``."""
    return UOp(ops.CMD_LOOP, dtypes.void, (test, flag, body), kernel_args.CmdLoop(name, None, locs))


def branch(which: UOp, branches: Iterable[UOp], name: str, locs: tuple[Location, ...] = ()) -> UOp:
    """Run the COMMANDS that the int32 in the SLOT ``which`` selects, clamped."""
    return UOp(ops.BRANCH, dtypes.void, (which, *branches), kernel_args.Branch(name, locs))


def commands(run: Iterable[UOp]) -> UOp:
    """Return a list of EXECs, CMD_LOOPs and BRANCHes in the order they run."""
    return UOp(ops.COMMANDS, dtypes.void, tuple(run))
