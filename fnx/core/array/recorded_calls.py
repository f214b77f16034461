"""Calls that jaxprs show as one equation, by their names: ``pallas_call``, ``linear_call`` ...

The graph has what the call consists of; the record of its result says which call it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fnx.core.array import tree
from fnx.core.array.array import Array
from fnx.core.ir.uop import set_composite


class RecordedFunction:
    """The function of a recorded call, of arrays to one array; it prints as its name."""

    def __init__(self, f: Callable[..., Any], name: str) -> None:
        self.f, self.name = f, name

    def __call__(self, *args: Any) -> Any:
        return self.f(*args)

    def __repr__(self) -> str:
        return self.name


def record_call(primitive: str, f: Callable[..., Any], name: str, operands: Sequence[Array],
                out: Any, **params: Any) -> Any:
    """Record that a result, if it is one array, is that of a call, and return it.

    Args:
        primitive: the name of the equation.
        f: the function of the operands, which returns a tree like the result.
        name: the name of the function.
        operands: the arrays.
        out: the result.
        params: further params of the equation.
    """
    leaves = tree.leaves(out)
    if len(leaves) == 1 and type(leaves[0]) is Array:
        function = RecordedFunction(lambda *args: tree.leaves(f(*args))[0], name)
        set_composite(leaves[0]._node, primitive, _call_again, [x._node for x in operands],
                      name=name, call=function, **params)
    return out


def _call_again(*args: Any, call: RecordedFunction, **_: Any) -> Any:
    return call(*args)
