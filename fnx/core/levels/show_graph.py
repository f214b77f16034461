"""Print tensor graphs as formulas for one element of each value, with movements in its index.

    function layer(x0: float32[50, 20], x1: float32[20, 30], x2: float32[30])
      t0[i, j] = sum(k < 20: x0[i, k] * x1[k, j]) + x2[j]      # float32[50, 30]  m.py:5
      t1[i, j] = where(t0[i, j] <= 0, 0, t0[i, j])             # float32[50, 30]  m.py:6
      return t1

Values that are read twice, or are long, get a name; i, j, k ... are the axes of the value that a
line defines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fnx.core import build, ops, parts
from fnx.core.errors import Site
from fnx.core.expr import Expr
from fnx.core.levels.show_text import Names, Text, index_text, lines_of, number, operation
from fnx.core.rewriting import symbolic
from fnx.core.row_parts import interleaved
from fnx.core.uop import UOp, toposort

_BIG = 10  # maximum number of nodes on one line
_SCOPES = (ops.FUNCTION, ops.KERNEL)
_WHOLE = (*ops.SEVERAL, ops.CONCAT, ops.SCATTER)  # printed with whole arrays as operands
_SOURCES = (ops.PARAM, ops.LEAF, ops.BUFFER)
_ZERO = build.index_const(0)

IndexNodes = tuple[UOp, ...]


def type_of(node: UOp) -> str:
    """``float32[50, 30]``"""
    return f"{node.dtype}{list(node.shape)}"


def graph_lines(roots: Sequence[UOp], names: Mapping[UOp, str],
                sites: Callable[[UOp], tuple[Site, ...]]) -> tuple[list[str], list[str]]:
    """Return the lines that define roots, and the name of each root; ``names`` are predefined."""
    printer = _GraphPrinter(roots, names, sites)
    return printer.lines(), [printer.called(r) for r in roots]


class _GraphPrinter:
    def __init__(self, roots: Sequence[UOp], names: Mapping[UOp, str],
                 sites: Callable[[UOp], tuple[Site, ...]]) -> None:
        self.roots, self.sites = roots, sites
        self.nodes = toposort(roots, stop=lambda n: n.op is ops.KERNEL or n in names)
        self.taken = Names()
        self.names: dict[UOp, str] = dict(names)
        for name in names.values():
            self.taken.plain(name)
        for node in self.nodes:
            if node.op in _SOURCES and node not in self.names:
                self.names[node] = self.taken.fresh(
                    "x" if node.op is ops.PARAM else node.op.name.lower())
        self.named = self._named()

    # ---- nodes with a line of their own

    def _named(self) -> set[UOp]:
        """Return the nodes that get a name.

        These are read twice, are operands that must be whole arrays, or make a line too long.
        """
        reads = dict.fromkeys(self.nodes, 0)
        named = {r for r in self.roots if r.op not in (*_SOURCES, ops.CONST)
                 and r not in self.names}
        for n in reversed(self.nodes):
            if n.op in _SCOPES or n in self.names:
                continue
            for s in n.src:
                reads[s] += reads[n] if n.op.kind == "movement" and n.op is not ops.CONCAT else 1
            forced = n.src if n.op in _WHOLE else n.src[:1] if n.op is ops.GATHER else \
                n.src[1:] if n.op is ops.BARRIER else ()
            named.update(s for s in forced if s.op not in (*_SOURCES, *_SCOPES, ops.CONST)
                         and s not in self.names)
        size: dict[UOp, int] = {}
        for n in self.nodes:
            inside = () if n.op in (*_SCOPES, ops.GET) or n in self.names else n.src
            total = 1 + sum(size[s] for s in inside)
            while total > _BIG and (most := max(size[s] for s in inside)) > 1:
                large = base = next(s for s in inside if size[s] == most)
                while base.op in _MOVED and base.src[0].op not in (*_SOURCES, ops.CONST):
                    base = base.src[0]
                named.add(base)
                size[large] = size[base] = 0
                total = 1 + sum(size[s] for s in inside)
            if n in self.names:
                size[n] = 0
                continue
            if n.op in _WHOLE or (reads[n] > 1 and n.src and n.op.kind != "movement"
                                  and n.op is not ops.GET):
                named.add(n)
            size[n] = 0 if n in named or not n.src else total
        return named

    # ---- lines

    def lines(self) -> list[str]:
        out: list[str] = []
        for node in self.nodes:
            if node in self.names:
                continue
            if node.op in ops.SEVERAL:
                out.append(self._call(node))
            elif node in self.named and node.op is not ops.GET:
                name = self.names[node] = self.taken.fresh("t")
                out.append(self._with_comment(self._definition(node, name), node))
        return out

    def called(self, root: UOp) -> str:
        """Return the name of a root; a call has none, but a line."""
        if root in self.names:
            return self.names[root]
        return "_" if root.op in ops.SEVERAL else number(root).text

    def _with_comment(self, line: str, node: UOp) -> str:
        where = lines_of(self.sites(node))
        return f"{line:<60}  # {type_of(node)}{'  ' + where if where else ''}"

    def _call(self, node: UOp) -> str:
        gets = {n.arg: n for n in self.nodes if n.op is ops.GET and n.src[0] is node}
        for n in gets.values():
            self.names[n] = self.taken.fresh("t")
        to = ", ".join(self.names[gets[i]] if i in gets else "_"
                       for i in range(len(node.arg.outs)))
        if node.op is ops.HOST:
            return f"{to} = host[{node.arg.name}]({', '.join(self.called(s) for s in node.src)})"
        if node.op is ops.SORT:
            given = ", ".join(self.called(s) for s in node.src)
            return f"{to} = sort({given}, keys={node.arg.n_keys}, kept={node.arg.kept})"
        fns = [self.names.get(fn, node.arg.name or "kernel")
               for fn in parts.bodies(node) or node.src[:1]]
        inside = ", ".join(self.called(s) for s in parts.operands(node))
        if node.op is ops.CUSTOM:
            rules = ", ".join(["again"] if node.arg.again >= 0 else node.arg.rules)
            return f"{to} = custom[{fns[0]}: {rules}]({inside})"
        if node.op is ops.CALL:
            return f"{to} = {fns[0]}({inside})"
        how = f", length={node.arg.length}" if node.op is ops.SCAN else ""
        how += ", reverse=True" if node.op is ops.SCAN and node.arg.reverse else ""
        every = node.arg.checkpoint if node.op is ops.SCAN else 0
        how += f", checkpoint={every}" if every else ""
        return f"{to} = {node.op.name.lower()}[{', '.join(fns)}{how}]({inside})"

    def _definition(self, node: UOp, name: str) -> str:
        if node.op is ops.CONCAT:
            parts = ", ".join(self.called(s) for s in node.src)
            return f"{name} = concat([{parts}], axis={node.arg})"
        if node.op is ops.SCATTER:
            x, *index, updates = [self.called(s) for s in node.src]
            monoid = node.arg.monoid
            update = "set" if monoid is None else monoid.name.lower()
            whole = [":"] * (len(node.shape) - len(index))
            at = ", ".join(interleaved(node.arg.axes, index, whole)[:node.arg.axes[-1] + 1])
            return f"{name} = {x}.at[{at}].{update}({updates})"
        line = _Line(self, node)
        letters = ", ".join(line.letter(i) for i in line.index)
        value = line.value(node, line.index, whole=True).text
        return f"{name}[{letters}] = {value}" if node.shape else f"{name} = {value}"


class _Line:
    """The formula of one element, with a RANGE for each axis of the value."""

    def __init__(self, printer: _GraphPrinter, node: UOp) -> None:
        self.printer = printer
        self.letters = Names()
        self.texts: dict[UOp, Text] = {}
        self.count = 0
        self.index = tuple([self._range(n) for n in node.shape])

    def _range(self, n: int) -> UOp:
        if n == 1:
            return _ZERO
        r = build.range_(n, self.count)
        self.count += 1
        self.texts[r] = Text(self.letters.letter())
        return r

    def letter(self, i: UOp) -> str:
        return index_text(i, self.texts).text

    def value(self, node: UOp, index: IndexNodes, whole: bool = False) -> Text:
        """Return the text of an element of a node; ``whole``: the formula even if it has a name."""
        name = self.printer.names.get(node)
        if name is not None and not whole:
            return Text(f"{name}[{', '.join(self.letter(i) for i in index)}]" if index else name)
        if name is None and node.op is ops.CONST:
            return number(node)
        rule = _RULES.get(node.op)
        if rule is not None:
            return rule(self, node, index)
        return operation(node, [self.value(s, index) for s in node.src])

    def moved(self, node: UOp, index: IndexNodes) -> Text:
        return self.value(node.src[0], _MOVED[node.op](node, index))

    def marked(self, node: UOp, index: IndexNodes) -> Text:
        name = "stop_gradient" if node.op is ops.STOP else "barrier"
        after = "".join([f", after {self.printer.called(s)}" for s in node.src[1:]])
        return Text(f"{name}({self.value(node.src[0], index).text}{after})")

    def pad(self, node: UOp, index: IndexNodes) -> Text:
        x, fill = node.src
        inner = tuple([symbolic.simplify(build.sub(i, build.index_const(lo)))
                       for i, (lo, _) in zip(index, node.arg)])
        inside = " and ".join(
            f"{lo} <= {self.letter(i)} < {lo + n}" for i, n, (lo, hi)
            in zip(index, x.shape, node.arg) if (lo, hi) != (0, 0))
        return Text(f"{self.value(x, inner).inside(1)} if {inside} else "
                    f"{self.value(fill, ()).text}", 0)

    def all_gather(self, node: UOp, index: IndexNodes) -> Text:
        value = self.value(node.src[0], index[1:]).text
        return Text(f"all_gather({value}, {node.arg.name!r})[{self.letter(index[0])}]")

    def axis_index(self, node: UOp, index: IndexNodes) -> Text:
        return Text(f"axis_index({node.arg.name!r})")

    def fold(self, node: UOp, index: IndexNodes) -> Text:
        w, count = node.arg, node.src[0].shape[node.arg.axis]
        at = symbolic.simplify((Expr(index[w.axis]) - Expr(index[w.offset]) * w.dilation).node)
        inner = symbolic.simplify((Expr(at) // w.stride).node)
        inside = f"0 <= {self.letter(inner)} < {count}"
        if w.stride > 1:
            inside = f"{index_text(at, self.texts).inside(5)} % {w.stride} == 0 and {inside}"
        value = self.value(node.src[0], (*index[:w.axis], inner, *index[w.axis + 1:]))
        return Text(f"{value.inside(1)} if {inside} else 0", 0)

    def reduce(self, node: UOp, index: IndexNodes) -> Text:
        rest = iter(index)
        x = node.src[0]
        inner = [self._range(n) if a in node.arg.axes else next(rest)
                 for a, n in enumerate(x.shape)]
        loops = [(inner[a], x.shape[a]) for a in node.arg.axes if x.shape[a] != 1]
        heads = ", ".join(f"{self.letter(r)} < {n}" for r, n in loops)
        value = self.value(x, tuple(inner))
        return Text(f"{node.arg.monoid.fold}({heads}: {value.text})") if loops else value

    def iota(self, node: UOp, index: IndexNodes) -> Text:
        return index_text(index[0], self.texts)

    def gather(self, node: UOp, index: IndexNodes) -> Text:
        x, *rest = node.src
        count = len(rest[0].shape)
        first = [self.value(s, index[:count]).text for s in rest]
        at = interleaved(node.arg.axes, first, map(self.letter, index[count:]))
        return Text(f"{self.printer.called(x)}[{', '.join(at)}]")


def _reshaped(node: UOp, index: IndexNodes) -> IndexNodes:
    x = node.src[0]
    long = [(i, n) for i, n in zip(index, node.shape) if n != 1]
    dims = [n for n in x.shape if n != 1]
    if 0 in x.shape:
        found = [_ZERO] * len(dims)
    elif [n for _, n in long] == dims:
        found = [i for i, _ in long]
    else:
        flat = symbolic.ravel([i for i, _ in long], [n for _, n in long])
        found = list(symbolic.unravel(flat, dims))
    rest = iter(found)
    return tuple([next(rest) if n != 1 else _ZERO for n in x.shape])


def _permuted(node: UOp, index: IndexNodes) -> IndexNodes:
    return tuple([index[node.arg.index(a)] for a in range(len(index))])


def _expanded(node: UOp, index: IndexNodes) -> IndexNodes:
    return tuple([_ZERO if n == 1 else i for i, n in zip(index, node.src[0].shape)])


def _shrunk(node: UOp, index: IndexNodes) -> IndexNodes:
    return tuple([symbolic.simplify(build.add(i, build.index_const(lo)))
                  for i, (lo, _) in zip(index, node.arg)])


def _flipped(node: UOp, index: IndexNodes) -> IndexNodes:
    return tuple([symbolic.simplify(build.sub(build.index_const(n - 1), i))
                  if a in node.arg else i
                  for a, (i, n) in enumerate(zip(index, node.shape))])


def _unfolded(node: UOp, index: IndexNodes) -> IndexNodes:
    w = node.arg
    at = Expr(index[w.axis]) * w.stride + Expr(index[w.offset]) * w.dilation
    return (*index[:w.axis], symbolic.simplify(at.node), *index[w.axis + 1:])


_MOVED: dict[ops.Op, Callable[[UOp, IndexNodes], IndexNodes]] = {
    ops.RESHAPE: _reshaped, ops.PERMUTE: _permuted, ops.EXPAND: _expanded, ops.SHRINK: _shrunk,
    ops.FLIP: _flipped, ops.UNFOLD: _unfolded,
}
_RULES: dict[ops.Op, Callable[[_Line, UOp, IndexNodes], Text]] = {
    **dict.fromkeys(_MOVED, _Line.moved), ops.PAD: _Line.pad, ops.REDUCE: _Line.reduce,
    ops.FOLD: _Line.fold, ops.IOTA: _Line.iota, ops.GATHER: _Line.gather, ops.STOP: _Line.marked,
    ops.BARRIER: _Line.marked, ops.ALL_GATHER: _Line.all_gather,
    ops.AXIS_INDEX: _Line.axis_index,
}
