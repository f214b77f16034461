"""Kernels with the kernel ABI, as nodes and as LLVM IR, for tests of devices."""

from __future__ import annotations

import hashlib

import numpy as np

from fnx.core.ir import build, dtypes, kernel_args, ops
from fnx.core.ir.uop import UOp

# o[i] = x[i] after {repeats} times v -> v * 0.9999 + a; a is scalar 0.
SCALED = """define void @{symbol}(ptr %b, ptr %s, i64 %lo, i64 %hi, ptr %scratch) {{
entry:
  %x = load ptr, ptr %b
  %q = getelementptr ptr, ptr %b, i64 1
  %o = load ptr, ptr %q
  %abits = load i64, ptr %s
  %a32 = trunc i64 %abits to i32
  %a = bitcast i32 %a32 to float
  %any = icmp slt i64 %lo, %hi
  br i1 %any, label %loop, label %exit
loop:
  %i = phi i64 [ %lo, %entry ], [ %i1, %next ]
  %px = getelementptr float, ptr %x, i64 %i
  %v = load float, ptr %px
  br label %again
again:
  %t = phi i64 [ 0, %loop ], [ %t1, %again ]
  %w = phi float [ %v, %loop ], [ %w2, %again ]
  %w1 = fmul float %w, 0x3FEFFF2E40000000
  %w2 = fadd float %w1, %a
  %t1 = add i64 %t, 1
  %more = icmp slt i64 %t1, {repeats}
  br i1 %more, label %again, label %next
next:
  %po = getelementptr float, ptr %o, i64 %i
  store float %w2, ptr %po
  %i1 = add i64 %i, 1
  %c = icmp slt i64 %i1, %hi
  br i1 %c, label %loop, label %exit
exit:
  ret void
}}
"""


class Code:
    """The part of a kernel's code that an encoder uses; counts how often its text is requested."""

    is_library_call = False

    def __init__(self, symbol: str, text: str, parallel: int, scratch: int = 0) -> None:
        self.symbol, self._text, self.asked = symbol, text, 0
        self.key = hashlib.sha256(text.encode()).digest()
        self.extents = {"parallel": build.index_const(parallel),
                        "scratch": build.index_const(scratch)}

    def text(self) -> str:
        self.asked += 1
        return self._text


def scaled(n: int, repeats: int = 1, name: str = "scaled") -> tuple[UOp, Code]:
    """Return a kernel as a node and as the code above.

    With more than 8 repeats, the node only has the right amount of work (a loop of that length),
    not the computation: such a kernel is not for the interpreter.
    """
    i = build.range_(n, 0, "PAR")
    x, o = build.ref(0, dtypes.float32, (n,)), build.ref(1, dtypes.float32, (n,))
    a = build.var(0, dtypes.float32, name="a")
    factor = build.const(0.9999, dtypes.float32)
    if repeats <= 8:
        value = build.load(build.index_into(x, i))
        for _ in range(repeats):
            value = build.add(build.mul(value, factor), a)
    else:
        r = build.range_(repeats, 1, "SEQ")
        value = build.reduce_ranges(
            build.mul(build.add(build.load(build.index_into(x, i)),
                                build.cast(r, dtypes.float32)), a), ops.ADD, (r,))
    kernel = build.kernel([build.store(build.index_into(o, i), value)], name, (0,))
    symbol = f"{name}_{n}_{repeats}"
    return kernel, Code(symbol, SCALED.format(symbol=symbol, repeats=repeats), n)


def expected(x: np.ndarray, a: float, repeats: int = 1) -> np.ndarray:
    for _ in range(repeats):
        x = x * np.float32(0.9999) + np.float32(a)
    return x


def slot(kind: str, index: int, nbytes: int, offset: int = 0) -> UOp:
    return UOp(ops.SLOT, dtypes.void, (), kernel_args.Slot(kind, index, offset, nbytes))


def execute(kernel: UOp, slots: list[UOp], *scalars: UOp, name: str = "") -> UOp:
    return UOp(ops.EXEC, dtypes.void, (kernel, *slots, *scalars),
               kernel_args.Exec(name or kernel.arg.name))


def commands(*execs: UOp) -> UOp:
    return UOp(ops.COMMANDS, dtypes.void, execs)


def chain(n: int, length: int = 1, repeats: int = 1, a: float = 0.25) -> tuple[UOp, dict, int]:
    """Encode in 0 -> arena -> arena ... -> out 0, each step ``scaled``; return the code and the
    arena size too."""
    kernel, code = scaled(n, repeats)
    size = -(-4 * n // 64) * 64
    places = [slot("in", 0, 4 * n)]
    places += [slot("arena", 0, 4 * n, size * (i % 2)) for i in range(length - 1)]
    places += [slot("out", 0, 4 * n)]
    scalar = build.const(a, dtypes.float32)
    execs = [execute(kernel, [places[i], places[i + 1]], scalar) for i in range(length)]
    return commands(*execs), {kernel: code}, 2 * size if length > 1 else 0
