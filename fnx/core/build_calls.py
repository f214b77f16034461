"""Constructors of what runs bodies, and of what has effects; results by GET.

>>> x = build.param(0, dtypes.int32, ())
>>> twice = build.function([build.add(x, x)], 1, "twice")
>>> call(twice, [build.const(3, dtypes.int32)])[0].dtype
int32
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fnx.core import build, dtypes, op_args, ops
from fnx.core.dtypes import DType
from fnx.core.errors import ArgumentError
from fnx.core.ops import Shape
from fnx.core.uop import UOp


def call(fn: UOp, args: Sequence[UOp], name: str = "", policy: Any = None) -> tuple[UOp, ...]:
    """The results of calling a FUNCTION (op_args.Call)."""
    if len(args) != fn.arg.n_params:
        raise ArgumentError(f"call: expected {fn.arg.n_params} operands, got {len(args)}")
    outs = tuple((o.shape, o.dtype) for o in fn.src)
    arg = op_args.Call(name or fn.arg.name, outs, policy=policy)
    return build.results(UOp(ops.CALL, dtypes.void, (fn, *args), arg))


def scan(body: UOp, length: int, consts: Sequence[UOp], carries: Sequence[UOp],
         xs: Sequence[UOp], reverse: bool = False, name: str = "", checkpoint: int = 0
         ) -> tuple[UOp, ...]:
    """The results of a SCAN: the last carries, then the ys (op_args.Scan)."""
    n = len(carries)
    outs = [(o.shape, o.dtype) for o in body.src]
    outs[n:] = [((length, *shape), dtype) for shape, dtype in outs[n:]]
    arg = op_args.Scan(name or body.arg.name, length, len(consts), n, reverse, tuple(outs),
                       checkpoint)
    return build.results(UOp(ops.SCAN, dtypes.void, (body, *consts, *carries, *xs), arg))


def while_(condition: UOp, body: UOp, consts: Sequence[UOp], carries: Sequence[UOp],
           name: str = "", most: int = 0) -> tuple[UOp, ...]:
    """The results of a WHILE: the last carries (op_args.While)."""
    outs = tuple([(o.shape, o.dtype) for o in body.src])
    arg = op_args.While(name or body.arg.name, len(consts), outs, most)
    return build.results(UOp(ops.WHILE, dtypes.void, (condition, body, *consts, *carries), arg))


def cond(branches: Sequence[UOp], which: UOp, args: Sequence[UOp], name: str = ""
         ) -> tuple[UOp, ...]:
    """The results of a COND: those of branch ``which``, clamped (op_args.Cond)."""
    outs = tuple([(o.shape, o.dtype) for o in branches[0].src])
    arg = op_args.Cond(name or branches[0].arg.name, len(branches), outs)
    return build.results(UOp(ops.COND, dtypes.void, (*branches, which, *args), arg))


def custom(functions: Sequence[UOp], arg: op_args.Custom, args: Sequence[UOp]) -> tuple[UOp, ...]:
    """The results of a function with rules, on captures and arguments (op_args.Custom)."""
    return build.results(UOp(ops.CUSTOM, dtypes.void, (*functions, *args), arg))


# ---- effects ----------------------------------------------------------------------------------


TOKEN = ((0,), dtypes.bool_)  # the type of what orders effects: an array without elements


def first_token() -> UOp:
    """What the first of all effects follows."""
    return build.const(False, dtypes.bool_, (0,))


def is_token(node: UOp) -> bool:
    return node.dtype is dtypes.bool_ and node.shape == (0,)


def host(name: str, handle: UOp, token: UOp | None, operands: Sequence[UOp],
         outs: Iterable[tuple[Shape, DType]], method: str = "") -> tuple[UOp, ...]:
    """The results of a HOST; with a token, the next one comes before them (op_args.Host)."""
    effect = token is not None
    arg = op_args.Host(name, effect, tuple([(x.shape, x.dtype) for x in operands]),
                       ((TOKEN,) if effect else ()) + tuple(outs), method=method)
    src = (handle, *operands) if token is None else (handle, token, *operands)
    return build.results(UOp(ops.HOST, dtypes.void, src, arg))
