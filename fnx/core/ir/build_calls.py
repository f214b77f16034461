"""Constructors of ops with several results, read by GETTUPLE: calls, control flow, effects, sorts.

>>> x = build.param(0, dtypes.int32, ())
>>> twice = build.function([build.add(x, x)], 1, "twice")
>>> call(twice, [build.const(3, dtypes.int32)])[0].dtype
int32
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fnx.core.ir import build, dtypes, op_args, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.ops import Shape
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import ArgumentError, ShapeError


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


def custom(functions: Sequence[UOp], arg: op_args.Custom, args: Sequence[UOp]) -> tuple[UOp, ...]:
    """Return the results of a function with rules, on captures and arguments (op_args.Custom)."""
    return build.results(UOp(ops.CUSTOM, dtypes.void, (*functions, *args), arg))


# ---- effects ----------------------------------------------------------------------------------


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
                         hint="sort parts of it, then what they have at the ends")
    if first.shape[-1] <= 1:
        return tuple([build.const(0, dtypes.int32, first.shape) if i < 0 else operands[i]
                      for i in (range(len(operands)) if outputs is None else outputs)])
    promoted = tuple(map(build.to_compute, operands))
    ins = tuple([(x.shape, x.dtype) for x in promoted])
    arg = op_args.Sort(name, n_keys, ins, tuple(range(len(ins)) if outputs is None else outputs))
    results = build.results(UOp(ops.SORT, dtypes.void, promoted, arg))
    return tuple([x if i < 0 else build.cast(x, operands[i].dtype)
                  for x, i in zip(results, arg.outputs)])
