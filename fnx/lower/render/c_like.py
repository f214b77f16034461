"""Base of the renderers for C-like languages: lines, value names, loops and branches.

    FOR i = 0 .. n                   float p = a;
      p = PHI(a)                     for (long i = 0; i < n; ++i) {
      q = ADD(p, b)                    const float q = p + b;
    ENDFOR(q)                          p = q;
                                     }

A language defines how to declare a value, a variable and a counter; a renderer adds rows for
elementwise ops and for memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from fnx.core.ir import ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import KernelError

Inline = Mapping[Op, Callable[[Any, UOp], str]]  # operands without a line of their own


class CLikePrinter:
    """The text of the lines so far, and the names of the values they define.

    Attributes:
        value, variable, counter: declarations of a constant, of a mutable variable, and of a loop
            counter; {t} is the type, {name} and {x} name and value.
        sync: the barrier of a thread group.
    """

    value: ClassVar[str]
    variable: ClassVar[str]
    counter: ClassVar[str]
    sync: ClassVar[str]

    def __init__(self, inline: Inline) -> None:
        self.inline = inline
        self.out: list[str] = []
        self.first: list[str] = []  # lines before all others
        self.names: dict[UOp, str] = {}
        self.phis: dict[UOp, list[str]] = {}  # variables of a loop
        self.opened: dict[UOp, int] = {}  # index of the first line of a loop
        self.count = 0
        self.depth = 1

    def type_of(self, t: DType) -> str:
        """Return the language's name of the type of a value."""
        raise NotImplementedError

    def line(self, text: str) -> None:
        self.out.append("  " * self.depth + text)

    def define(self, node: UOp, text: str) -> None:
        self.line(self.value.format(t=self.type_of(node.dtype), name=self.name(node), x=text))

    def name(self, node: UOp) -> str:
        """Assign a new name to a node."""
        self.count += 1
        name = self.names[node] = f"v{self.count}"
        return name

    def operand(self, node: UOp) -> str:
        """Return the operand text of a node."""
        name = self.names.get(node)
        if name is None:
            row = self.inline.get(node.op)
            if row is None:
                raise KernelError(f"a line uses {node}, which no line before it defines")
            name = self.names[node] = row(self, node)
        return name

    def open(self, text: str) -> None:
        self.line(f"{text} {{")
        self.depth += 1

    def close(self) -> None:
        self.depth -= 1
        self.line("}")


def _for(p: CLikePrinter, node: UOp) -> None:
    start, stop = node.src
    low, high = p.operand(start), p.operand(stop)
    i = p.name(node)
    p.opened[node] = len(p.out)
    begin = p.counter.format(t=p.type_of(node.dtype), name=i, x=low)
    if start.op is ops.ID:  # one iteration, or none
        p.open(f"if ({low} < {high})")
        p.line(p.value.format(t=p.type_of(node.dtype), name=i, x=low))
    else:
        p.open(f"for ({begin}; {i} < {high}; {i}++)")
    p.phis[node] = []


def _phi(p: CLikePrinter, node: UOp) -> None:
    """Declare a variable before the loop, at the line where the loop begins."""
    loop, init = node.src
    first = p.operand(init)
    text = p.variable.format(t=p.type_of(node.dtype), name=p.name(node), x=first)
    p.out.insert(p.opened[loop], "  " * (p.depth - 1) + text)
    p.opened[loop] += 1
    p.phis[loop].append(p.names[node])


def _endfor(p: CLikePrinter, node: UOp) -> None:
    loop, *nexts = node.src
    updates = [(name, p.operand(n), p.type_of(n.dtype)) for name, n in zip(p.phis[loop], nexts)]
    changed = [(name, n, t) for name, n, t in updates if name != n]
    if len(changed) == 1:
        p.line(f"{changed[0][0]} = {changed[0][1]};")
    else:  # in parallel: one may be the next value of another
        for name, n, t in changed:
            p.line(p.value.format(t=t, name=f"{name}n", x=n))
        for name, _, _ in changed:
            p.line(f"{name} = {name}n;")
    p.close()


def _last(p: CLikePrinter, node: UOp) -> None:
    p.define(node, p.phis[node.src[0].src[0]][node.arg])


def _break(p: CLikePrinter, node: UOp) -> None:
    p.line(f"if ({p.operand(node.src[1])}) {{ break; }}")


def _if(p: CLikePrinter, node: UOp) -> None:
    p.open(f"if ({p.operand(node.src[0])})")


LOOPS: Mapping[Op, Callable[[Any, UOp], None]] = {
    ops.FOR: _for, ops.PHI: _phi, ops.ENDFOR: _endfor, ops.LOOP_RESULT: _last, ops.BREAK: _break,
    ops.IF: _if, ops.ENDIF: lambda p, node: p.close(), ops.SYNC: lambda p, node: p.line(p.sync),
}
