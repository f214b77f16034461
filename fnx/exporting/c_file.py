"""A C file and its header, with no dependencies but C's standard library.

    int scores(const float *x0, float *y0, void *work);        x0, y0: row-major; work: scores_WORK
                                                               bytes, aligned to 64

Captured arrays are constant data of the file. Kernels are functions with their loops; commands form
the body of the exported function, with loops and branches in C.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fnx.core.ir import accessors, ops
from fnx.core.ir.dtypes import DType, NDArray
from fnx.core.ir.uop import UOp, toposort
from fnx.core.rewriting.algebra import evaluate
from fnx.core.support.errors import ArgumentError
from fnx.core.support.target import Target
from fnx.exporting.graph_file import ExportedGraph
from fnx.exporting.names import sanitize_comment
from fnx.transforms.link import lower_for

TARGET = Target("c", kind="c", fma=False, has_host=False)
_TYPES = {"bool": "uint8_t", "float32": "float", "float64": "double",
          **{f"{u}int{bits}": f"{u}int{bits}_t" for u in ("", "u") for bits in (8, 16, 32, 64)}}


def _c_type(t: DType) -> str:
    name = _TYPES.get((t.storage or t).name)
    if name is None:
        raise ArgumentError(f"expected arguments and results of types that C has, got {t}")
    return name


def written(graph: ExportedGraph) -> dict[str, bytes]:
    """Return the C file and its header."""
    lowered = lower_for(graph.function, TARGET)
    body = _Body(graph, lowered)
    commands = body.commands(lowered.block.commands, 0, 1)
    headers: dict[str, None] = {}
    functions = []
    for text in body.texts.values():
        preamble, marker, rest = text.partition("static void fnx_")
        headers[preamble] = None
        functions.append(marker + rest)
    name = graph.name
    parameters = ", ".join([f"const {_c_type(a.dtype)} *x{i}" for i, a in enumerate(graph.ins)] +
                           [f"{_c_type(a.dtype)} *y{i}" for i, a in enumerate(graph.outs)] +
                           ["void *work"])
    comments = [f"   {kind}{i}: {a.dtype} {list(a.shape)}" for kind, avals in
                (("x", graph.ins), ("y", graph.outs)) for i, a in enumerate(avals)]
    work = max(lowered.block.arena + body.scratch, 64)
    header = "\n".join([
        f"#ifndef {name}_H", f"#define {name}_H", "#include <stdint.h>", "",
        "/* Arrays are row-major. work: memory of the call's own, aligned to 64 bytes.",
        *comments, "*/", f"#define {name}_WORK {work}", "#ifdef __cplusplus", 'extern "C" {',
        "#endif",
        f"void {name}({parameters});", "#ifdef __cplusplus", "}", "#endif", "#endif", ""])
    consts = [_array_definition(f"w{i}", value) for i, value in enumerate(graph.consts)]
    source = "\n".join([
        f"/* {name}: cc -std=c11 -O2 -ffp-contract=off -c {name}.c; link with -lm */",
        "#include <stdint.h>", "#include <string.h>", "typedef uint8_t uchar;", *headers,
        "#undef char", "#undef long", "", *consts, "#define char fnx_char",
        "#define long fnx_long", *functions, "#undef char", "#undef long",
        f'#include "{name}.h"', "", f"void {name}({parameters}) {{",
        "  uchar *a = (uchar *)work;",
        *[f"  int64_t i{d} = 0;" for d in range(body.depth)],  # read after their loops, too
        "  (void)a;", *commands, *body.copy_results(), "}", ""])
    return {f"{name}.c": source.encode(), f"{name}.h": header.encode()}


def _array_definition(name: str, value: NDArray) -> str:
    """Return the definition of constant data, as 64-bit words."""
    data = np.ascontiguousarray(value).tobytes()
    words = np.frombuffer(data + bytes(-len(data) % 8), np.uint64)
    lines = [", ".join([f"0x{w:x}u" for w in words[i:i + 6].tolist()])
             for i in range(0, len(words), 6)]
    return (f"static const _Alignas(64) uint64_t {name}[{max(len(words), 1)}] = {{\n  " +
            ",\n  ".join(lines or ["0"]) + "};")


class _Body:
    """Translate commands to C."""

    def __init__(self, graph: ExportedGraph, lowered: Any) -> None:
        self.graph, self.block, self.code = graph, lowered.block, lowered.code
        self.texts: dict[str, str] = {}
        self.scratch = self.depth = 0
        aliases = {slot: i for i, slot in self.block.over}
        assert not aliases
        self.first_results: dict[int, int] = {}  # the first result in each result buffer
        for r, (kind, i) in enumerate(self.block.results):
            if kind == "out":
                self.first_results.setdefault(i, r)

    def address(self, memory: UOp) -> str:
        """Return the address of a slot in the current loop iterations."""
        if memory.op is ops.SWAP:
            even, odd = map(self.address, memory.src)
            return f"(i{memory.arg} & 1 ? {odd} : {even})"
        slot = memory.arg
        base = self._argument(slot.index) if slot.kind == "in" else \
            "a" if slot.kind == "arena" else f"(uchar *)y{self.first_results[slot.index]}"
        loop_offsets = [f" + {s} * i{d}" for d, s in enumerate(slot.strides) if s]
        return f"({base} + {slot.offset}{''.join(loop_offsets)})"

    def _argument(self, i: int) -> str:
        n = len(self.graph.ins)
        return f"(uchar *)x{i}" if i < n else f"(uchar *)w{i - n}"

    def commands(self, node: UOp, depth: int, indent: int) -> list[str]:
        """Return the lines of COMMANDS at a loop depth."""
        return [line for command in node.src for line in _EMITTERS[command.op](
            self, command, depth, indent)]

    def exec(self, node: UOp, depth: int, indent: int) -> list[str]:
        """Return a kernel call."""
        kernel, *rest = node.src
        if kernel.op is ops.CALLBACK:
            raise ArgumentError("expected a function that calls no Python", loc=node.arg.locs[0])
        if kernel.op is ops.LINALG:
            raise ArgumentError("expected a function without LAPACK, which C files do not call, "
                                f"got {kernel.arg.routine}", loc=next(iter(node.arg.locs), None),
                                hint="cholesky, lu, qr, eigh, svd and what is made of them are "
                                     "exported; compute others before, or export to 'fnx'")
        code = self.code[kernel]
        self.texts.setdefault(code.symbol, code.text())
        scalars = [s.arg for s in rest if s.op is ops.CONST]
        signed = [v - (1 << 64) if v >> 63 else v for v in [s & (1 << 64) - 1 for s in scalars]]
        env: dict[UOp | int, int] = dict(enumerate(signed))
        nodes = toposort([code.program()])
        n_buffers, n_scalars = (accessors.count_slots(nodes, op) for op in (ops.REF, ops.VAR))
        self.scratch = max(self.scratch, evaluate(code.extents["scratch"], env))
        buffers = [s for s in rest if s.op is not ops.CONST][:n_buffers]
        arguments = ", ".join([*[f"{self.address(m)}, 0" for m in buffers],
                               *[str(v) for v in signed[:n_scalars]],
                               "0", str(evaluate(code.extents["parallel"], env)),
                               f"a + {self.block.arena}"])
        return [f"{'  ' * indent}{code.symbol}({arguments}); /* "
                f"{sanitize_comment(node.arg.label)} */"]

    def loop(self, node: UOp, depth: int, indent: int) -> list[str]:
        """Return a loop with a trip count, or one that runs while a flag is true."""
        indentation, counter = "  " * indent, f"i{depth}"
        self.depth = max(self.depth, depth + 1)
        trips = node.arg.trips
        if trips is not None:
            return [f"{indentation}for ({counter} = 0; {counter} < {trips}; ++{counter}) {{",
                    *self.commands(node.src[-1], depth + 1, indent + 1), f"{indentation}}}"]
        test, flag, body = node.src
        return [f"{indentation}for ({counter} = 0;; ++{counter}) {{",
                *self.commands(test, depth + 1, indent + 1),
                f"{indentation}  if (!*{self.address(flag)}) break;",
                *self.commands(body, depth + 1, indent + 1), f"{indentation}}}"]

    def branch(self, node: UOp, depth: int, indent: int) -> list[str]:
        """Return a switch over branches, with a clamped index."""
        which, *branches = node.src
        indentation, last = "  " * indent, len(branches) - 1
        lines = [f"{indentation}{{",
                 f"{indentation}  int32_t n = *(int32_t *){self.address(which)};",
                 f"{indentation}  switch (n < 0 ? 0 : n > {last} ? {last} : n) {{"]
        for k, commands in enumerate(branches):
            lines += [f"{indentation}  case {k}: {{", *self.commands(commands, depth, indent + 2),
                      f"{indentation}    break;", f"{indentation}  }}"]
        return [*lines, f"{indentation}  }}", f"{indentation}}}"]

    def copy_results(self) -> list[str]:
        """Copy results that are arguments, or other results."""
        lines = []
        for r, ((kind, i), aval) in enumerate(zip(self.block.results, self.graph.outs)):
            source = self._argument(i) if kind == "in" else f"y{self.first_results[i]}"
            nbytes = math.prod(aval.shape) * aval.dtype.itemsize
            if kind == "in" or self.first_results[i] != r:
                lines.append(f"  memcpy(y{r}, {source}, {nbytes});")
        return lines


_EMITTERS: dict[Any, Callable[[_Body, UOp, int, int], list[str]]] = {
    ops.EXEC: _Body.exec, ops.CMD_LOOP: _Body.loop, ops.BRANCH: _Body.branch}
