"""Format expressions like Python: operators with few parentheses, short numbers.

>>> x, y = (build.param(i, dtypes.float32, ()) for i in range(2))
>>> total = format_op(build.add(x, y), [Text("a"), Text("b")])
>>> format_op(build.mul(x, y), [total, Text("c")]).text
'(a + b) * c'
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp
from fnx.core.rewriting import symbolic
from fnx.core.support.errors import Location, short_file_name
from fnx.core.support.record import Record

# Operators by increasing precedence on numbers; ``_LOGIC`` has those on bools.
_PRECEDENCE: tuple[tuple[Op, ...], ...] = (
    (ops.CMPLT, ops.CMPLE, ops.CMPEQ, ops.CMPNE), (ops.OR,), (ops.XOR,), (ops.AND,),
    (ops.SHL, ops.SHR), (ops.ADD, ops.SUB), (ops.MUL, ops.DIV, ops.IDIV, ops.REM),
    (ops.NEG, ops.NOT), (ops.POW,))
_PRECEDENCE_OF = {op: 3 + i for i, row in enumerate(_PRECEDENCE) for op in row}
_LOGIC = {ops.OR: ("{0} or {1}", 0), ops.AND: ("{0} and {1}", 1), ops.NOT: ("not {0}", 2)}
_ATOM_PRECEDENCE = 100


class Text(Record):
    """The text of an expression, and the precedence of its outermost operator."""

    text: str
    precedence: int = _ATOM_PRECEDENCE

    def parenthesize(self, binds: int) -> str:
        """Return the text as an operand of an operator of some precedence."""
        return self.text if self.precedence >= binds else f"({self.text})"


def format_const(node: UOp) -> Text:
    """Format a CONST with the fewest digits that read back as the same number."""
    value = build.const_of(node)
    if node.dtype.is_float:
        short = str(node.dtype.compute.np.type(value)) if math.isfinite(value) else str(value)
        return Text(short.removesuffix(".0"),
                    _ATOM_PRECEDENCE if value >= 0 else _PRECEDENCE_OF[ops.NEG])
    if node.dtype.is_complex:
        return Text(f"({value.real!r}{value.imag:+}j)", _ATOM_PRECEDENCE)
    return Text(str(value), _ATOM_PRECEDENCE if value >= 0 else _PRECEDENCE_OF[ops.NEG])


def format_op(node: UOp, operands: Sequence[Text]) -> Text:
    """Format an elementwise node, given the texts of its operands."""
    op = node.op
    if op is ops.CAST:
        return operands[0] if node.dtype is dtypes.index else \
            Text(f"{node.dtype}({operands[0].text})")
    if op in _LOGIC and node.dtype.scalar is dtypes.bool_:
        symbol, level = _LOGIC[op]
    elif op.symbol:
        symbol, level = op.symbol.strip("()"), _PRECEDENCE_OF[op]
    else:
        extra = [] if node.arg is None else [str(node.arg)]
        if op is ops.BITCAST:
            extra = [node.dtype.name]
        arguments = ", ".join([*[x.text for x in operands], *extra])
        return Text(f"{op.name.lower()}({arguments})")
    if len(operands) == 1:
        return Text(symbol.format(operands[0].parenthesize(level)), level)
    first, *rest = operands
    if op.commutative and first.text[0].isdigit():  # t + 1 rather than 1 + t
        first, rest = rest[0], [first]
    first_level = level + (op in ops.COMPARISONS)  # a < b < c would mean something else
    return Text(symbol.format(first.parenthesize(first_level),
                              *[x.parenthesize(level + 1) for x in rest]),
                level)


def combine_statement(monoid: Op, target: str, value: str) -> str:
    """Return the statement that combines a value with a variable.

    >>> combine_statement(ops.ADD, "s", "x[i]"), combine_statement(ops.MAX, "s", "x[i]")
    ('s += x[i]', 's = max(s, x[i])')
    """
    if monoid.symbol:
        return f"{target} {monoid.symbol[5:-5]}= {value}"
    return f"{target} = {monoid.fold}({target}, {value})"


def format_polynomial(terms: Mapping[tuple[UOp, ...], int], constant: int,
                      atom: Mapping[UOp, Text]) -> Text:
    """Format an index expression such as ``20*io + 10*ir + i - 1``, large strides first."""
    if len(terms) == 1 and not constant:
        (monomial, c), = terms.items()
        if c == 1 and len(monomial) == 1:
            return atom[monomial[0]]
    terms_text: list[tuple[int, str]] = []
    for monomial, c in sorted(terms.items(), key=lambda t: -abs(t[1])):
        factors = "*".join(atom[a].parenthesize(_PRECEDENCE_OF[ops.NEG]) for a in monomial)
        terms_text.append((c, factors if abs(c) == 1 else f"{abs(c)}*{factors}"))
    if constant or not terms_text:
        terms_text.append((constant, str(abs(constant))))
    terms_text.sort(key=lambda part: part[0] < 0)
    text = "".join((" + " if c >= 0 else " - ") + part for c, part in terms_text)
    text = text[3:] if terms_text[0][0] >= 0 else "-" + text[3:]
    return Text(text, _PRECEDENCE_OF[ops.ADD if len(terms_text) > 1 else
                                     ops.MUL if "*" in text or "-" in text else ops.POW])


def format_locations(locs: Iterable[Location]) -> str:
    """Format the user's lines, each file once: ``m.py:12, 14``."""
    files: dict[str, list[int]] = {}
    for file, line in dict.fromkeys(locs):
        files.setdefault(short_file_name(file), []).append(line)
    return ", ".join(f"{file}:{', '.join(map(str, sorted(lines)))}"
                     for file, lines in files.items())


class Names:
    """Generator of short, unique names.

    >>> names = Names()
    >>> names.fresh("t"), names.fresh("t"), names.unique("o"), names.unique("o")
    ('t0', 't1', 'o', 'o_2')
    """

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def unique(self, wanted: str) -> str:
        """Return the wanted name, with a number appended if it is taken."""
        name, count = wanted, 2
        while name in self._taken:
            name, count = f"{wanted}_{count}", count + 1
        self._taken.add(name)
        return name

    def letter(self, letters: str = "ijklmnqruv") -> str:
        """Return the first free letter."""
        free = [c for c in letters if c not in self._taken]
        return self.unique(free[0] if free else "r")

    def fresh(self, stem: str) -> str:
        """Return the stem with the first free number."""
        count = self._next.get(stem, 0)
        while f"{stem}{count}" in self._taken:
            count += 1
        self._next[stem] = count + 1
        return self.unique(f"{stem}{count}")


def format_index(node: UOp, texts: dict[UOp, Text]) -> Text:
    """Format an index expression; ``texts`` holds its ranges, and caches the other atoms."""
    terms, constant = symbolic.linear_terms(node)
    for monomial in terms:
        for atom in monomial:
            if atom not in texts:
                texts[atom] = format_op(atom, [format_index(s, texts) for s in atom.src])
    return format_polynomial(terms, constant, texts)
