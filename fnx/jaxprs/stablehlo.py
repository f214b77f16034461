"""Ops of StableHLO that lowering rules of users build, as functions of arrays.

>>> from fnx.jaxprs import stablehlo as hlo
>>> hlo.AddOp(hlo.MulOp(2.0, 3.0), 1.0).result
Array(7., dtype=float32, weak_type=True)

Only elementwise ops are there; ``mlir.lower_fun`` makes a rule from any function.
"""

from __future__ import annotations

from typing import Any

from fnx.core.support.errors import NotBuiltError
from fnx.core.support.name_hints import suggestion
from fnx.jaxprs import op_rows
from fnx.jaxprs.primitive import built_in

_OPS = {
    "Abs": "abs", "Add": "add", "And": "and", "Cbrt": "cbrt", "Ceil": "ceil", "Cosine": "cos",
    "Div": "div", "Exp": "exp", "Expm1": "expm1", "Floor": "floor", "Log": "log", "Log1p": "log1p",
    "Max": "max", "Min": "min", "Mul": "mul", "Neg": "neg", "Not": "not", "Or": "or",
    "Pow": "pow", "Rem": "rem", "Sine": "sin", "Sqrt": "sqrt", "Subtract": "sub", "Tan": "tan",
    "Tanh": "tanh", "Xor": "xor"}
TABLE = op_rows  # which defines the primitives


class Op:
    """An op applied to operands, which are arrays or ops with one result.

    Attributes:
        result: its value.
        results: the list of its values.
    """

    primitive = ""
    result: Any

    def __init__(self, *operands: Any) -> None:
        values = [x.result if isinstance(x, Op) else x for x in operands]
        self.result = built_in(self.primitive).bind(*values)
        self.results = [self.result]


def __getattr__(name: str) -> Any:
    short = name.removesuffix("Op")
    if name.endswith("Op") and short in _OPS:
        op_class = globals()[name] = type(name, (Op,), {"primitive": _OPS[short]})
        return op_class
    if name.startswith("__"):
        raise AttributeError(name)
    raise NotBuiltError(f"StableHLO's {name}: fnx lowers to its own graph",
                        hint=suggestion(name, [f"{op}Op" for op in _OPS])
                        or "write the rule with mlir.lower_fun(f)")


def __dir__() -> list[str]:
    return [f"{op}Op" for op in _OPS]
