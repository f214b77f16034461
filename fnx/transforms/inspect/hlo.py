"""A FUNCTION as text in the format of XLA's HLO, for tests of libraries that search or compare it.

    HloModule jit_f, entry_computation_layout={(f32[3]{0})->f32[3]{0}}

    ENTRY f {
      parameter.1 = f32[3]{0} parameter(0)
      ROOT multiply.2 = f32[3]{0} multiply(parameter.1, parameter.1)
    }

The instructions are ops of the graph: by XLA's names where it has the op, else by fnx's. Attributes
are those of the graph. XLA does not read this text.

>>> from fnx.core.ir import dtypes
>>> x = build.param(0, dtypes.float32, (3,))
>>> print(HloModule(build.function([build.mul(x, x)], 1, "f")).as_hlo_text().splitlines()[-2])
  ROOT multiply.2 = f32[3]{0} multiply(parameter.1, parameter.1)
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from fnx.core.ir import build, ops
from fnx.core.ir.uop import UOp, toposort
from fnx.core.support.record import Record

_NAMES = {
    ops.MUL: "multiply", ops.SUB: "subtract", ops.DIV: "divide", ops.IDIV: "divide",
    ops.REM: "remainder", ops.NEG: "negate", ops.EXP: "exponential",
    ops.EXPM1: "exponential-minus-one", ops.LOG1P: "log-plus-one", ops.SIN: "sine",
    ops.COS: "cosine", ops.POW: "power", ops.MAX: "maximum", ops.MIN: "minimum",
    ops.WHERE: "select", ops.CAST: "convert", ops.BITCAST: "bitcast-convert",
    ops.ROUND: "round-nearest-even", ops.SHL: "shift-left", ops.SHR: "shift-right-logical",
    ops.EXPAND: "broadcast", ops.PERMUTE: "transpose", ops.SHRINK: "slice", ops.FLIP: "reverse",
    ops.CONCAT: "concatenate", ops.PARAM: "parameter", ops.CONST: "constant",
    ops.SCAN: "while", ops.COND: "conditional", ops.GETTUPLE: "get-tuple-element",
    ops.CALLBACK: "custom-call", ops.LINALG: "custom-call", ops.ALL_GATHER: "all-gather",
    **dict.fromkeys(ops.COMPARISONS, "compare")}
_DIRECTIONS = {ops.CMPLT: "LT", ops.CMPLE: "LE", ops.CMPEQ: "EQ", ops.CMPNE: "NE"}
_LETTERS = {"float": "f", "int": "s", "uint": "u", "complex": "c"}


class HloModule(Record):
    """A FUNCTION whose text has the format of XLA's HLO."""

    function: UOp

    def as_hlo_text(self) -> str:
        """Return the text: the functions that others call, and at the end the one of a call."""
        inner = [n for n in toposort([self.function], into_functions=True)
                 if n.op is ops.FUNCTION and n is not self.function]
        numbers = itertools.count(1)
        names = {fn: f"{fn.arg.name or 'body'}.{next(numbers)}" for fn in inner}
        names[self.function] = self.function.arg.name
        texts = ["\n".join([f"{'ENTRY ' * (fn is self.function)}{name} {{",
                            *_instructions(fn, names, numbers), "}"])
                 for fn, name in names.items()]
        params = sorted(build.params(self.function).values(), key=lambda n: n.arg.slot)
        types = f"({', '.join(map(_type, params))})->{_result_type(self.function)}"
        name = re.sub(r"[^a-zA-Z0-9_]+", "_", self.function.arg.name).rstrip("_")
        return "\n\n".join([f"HloModule jit_{name}, entry_computation_layout={{{types}}}",
                            *texts]) + "\n"

    __str__ = as_hlo_text


def _instructions(fn: UOp, functions: dict[UOp, str], numbers: Iterator[int]) -> Iterator[str]:
    """Yield the lines of a FUNCTION, each a node; the last one is the result."""
    names: dict[UOp, str] = {}
    nodes = [n for n in toposort(fn.src) if n.op is not ops.FUNCTION]
    for node in nodes:
        kind = _NAMES.get(node.op) or node.op.name.lower().replace("_", "-")
        names[node] = f"{kind}.{next(numbers)}"
        root = "ROOT " * (fn.src == (node,) and node is nodes[-1])
        yield f"  {root}{names[node]} = {_type(node)} {kind}({_operands(node, names)})" \
            + _attributes(node, functions)
    if fn.src != tuple(nodes[-1:]):
        results = ", ".join(names[n] for n in fn.src)
        yield f"  ROOT tuple.{next(numbers)} = {_result_type(fn)} tuple({results})"


def _result_type(fn: UOp) -> str:
    types = ", ".join(map(_type, fn.src))
    return types if len(fn.src) == 1 else f"({types})"


def _operands(node: UOp, names: dict[UOp, str]) -> str:
    if node.op is ops.PARAM:
        return str(node.arg.slot)
    if node.op is ops.CONST:
        return str(build.const_of(node))
    return ", ".join(names[s] for s in node.src if s.op is not ops.FUNCTION)


def _attributes(node: UOp, functions: dict[UOp, str]) -> str:
    called = ", ".join(functions[s] for s in node.src if s.op is ops.FUNCTION)
    if called:
        return f", calls={{{called}}}"
    if node.op in _DIRECTIONS:
        return f", direction={_DIRECTIONS[node.op]}"
    return "" if node.arg is None or node.op in (ops.PARAM, ops.CONST, ops.RESHAPE, ops.EXPAND) \
        else f", attributes={{{node.arg}}}"


def _type(node: UOp) -> str:
    t = node.dtype
    if node.op in ops.MULTI_RESULT:
        return f"({', '.join(map(_type, build.results(node)))})"
    letter = _LETTERS.get(t.kind)
    name = "pred" if t.is_bool else "bf16" if t.name == "bfloat16" else \
        f"{letter}{t.itemsize * 8}" if letter else t.name
    layout = ",".join(map(str, reversed(range(len(node.shape)))))
    return f"{name}[{','.join(map(str, node.shape))}]" + f"{{{layout}}}" * bool(node.shape)
