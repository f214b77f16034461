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

from fnx.core.ir import accessors, build, ops
from fnx.core.ir.expr import Expr
from fnx.core.ir.op import merge_by_axis
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels.show_text import (
    Names,
    Text,
    format_const,
    format_index,
    format_locations,
    format_op,
)
from fnx.core.rewriting import symbolic
from fnx.core.support.errors import Location

_MAX_NODES = 10  # maximum number of nodes on one line
_SCOPES = (ops.FUNCTION, ops.KERNEL)
# printed with whole arrays as operands
_WHOLE_ARRAY_OPS = (*ops.MULTI_RESULT, ops.CONCAT, ops.SCATTER)
_SOURCES = (ops.PARAM, ops.LEAF, ops.BUFFER)
_ZERO = build.index_const(0)

IndexNodes = tuple[UOp, ...]


def format_type(node: UOp) -> str:
    """``float32[50, 30]``"""
    return f"{node.dtype}{list(node.shape)}"


def graph_lines(roots: Sequence[UOp], names: Mapping[UOp, str],
                locs: Callable[[UOp], tuple[Location, ...]]) -> tuple[list[str], list[str]]:
    """Return the lines that define roots, and the name of each root; ``names`` are predefined."""
    printer = _GraphPrinter(roots, names, locs)
    return printer.lines(), [printer.name_of(r) for r in roots]


class _GraphPrinter:
    def __init__(self, roots: Sequence[UOp], names: Mapping[UOp, str],
                 locs: Callable[[UOp], tuple[Location, ...]]) -> None:
        self.roots, self.locs = roots, locs
        self.nodes = toposort(roots, stop=lambda n: n.op is ops.KERNEL or n in names)
        self.taken = Names()
        self.names: dict[UOp, str] = dict(names)
        for name in names.values():
            self.taken.unique(name)
        for node in self.nodes:
            if node.op in _SOURCES and node not in self.names:
                self.names[node] = self.taken.fresh(
                    "x" if node.op is ops.PARAM else node.op.name.lower())
        self.named = self._find_named()

    # ---- nodes with a line of their own

    def _find_named(self) -> set[UOp]:
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
            forced = n.src if n.op in _WHOLE_ARRAY_OPS else n.src[:1] if n.op is ops.GATHER else \
                n.src[1:] if n.op is ops.BARRIER else ()
            named.update(s for s in forced if s.op not in (*_SOURCES, *_SCOPES, ops.CONST)
                         and s not in self.names)
        size: dict[UOp, int] = {}
        for n in self.nodes:
            operands = () if n.op in (*_SCOPES, ops.GETTUPLE) or n in self.names else n.src
            total = 1 + sum(size[s] for s in operands)
            while total > _MAX_NODES and (largest := max(size[s] for s in operands)) > 1:
                large = base = next(s for s in operands if size[s] == largest)
                while base.op in _INDEX_RULES and base.src[0].op not in (*_SOURCES, ops.CONST):
                    base = base.src[0]
                named.add(base)
                size[large] = size[base] = 0
                total = 1 + sum(size[s] for s in operands)
            if n in self.names:
                size[n] = 0
                continue
            if n.op in _WHOLE_ARRAY_OPS or (reads[n] > 1 and n.src and n.op.kind != "movement"
                                            and n.op is not ops.GETTUPLE):
                named.add(n)
            size[n] = 0 if n in named or not n.src else total
        return named

    # ---- lines

    def lines(self) -> list[str]:
        out: list[str] = []
        for node in self.nodes:
            if node in self.names:
                continue
            if node.op in ops.MULTI_RESULT:
                out.append(self._call(node))
            elif node in self.named and node.op is not ops.GETTUPLE:
                name = self.names[node] = self.taken.fresh("t")
                out.append(self._with_comment(self._definition(node, name), node))
        return out

    def name_of(self, root: UOp) -> str:
        """Return the name of a root; a call has none, but a line."""
        if root in self.names:
            return self.names[root]
        return "_" if root.op in ops.MULTI_RESULT else format_const(root).text

    def _with_comment(self, line: str, node: UOp) -> str:
        where = format_locations(self.locs(node))
        return f"{line:<60}  # {format_type(node)}{'  ' + where if where else ''}"

    def _call(self, node: UOp) -> str:
        gets = {n.arg: n for n in self.nodes if n.op is ops.GETTUPLE and n.src[0] is node}
        for n in gets.values():
            self.names[n] = self.taken.fresh("t")
        targets = ", ".join(self.names[gets[i]] if i in gets else "_"
                            for i in range(len(node.arg.outs)))
        if node.op is ops.CALLBACK:
            return f"{targets} = host[{node.arg.name}]" \
                f"({', '.join(self.name_of(s) for s in node.src)})"
        if node.op is ops.SORT:
            operands = ", ".join(self.name_of(s) for s in node.src)
            selects = f", {node.arg.selects}={node.arg.count}" if node.arg.selects else ""
            return f"{targets} = sort({operands}, keys={node.arg.n_keys}, " \
                f"kept={node.arg.outputs}{selects})"
        if node.op is ops.FFT_STEP:
            operands = "".join([f"{self.name_of(s)}, " for s in node.src])
            return f"{targets} = fft_step({operands}radices={node.arg.radices})"
        if node.op is ops.LINALG:
            operands = ", ".join(self.name_of(s) for s in node.src)
            options = "".join(f", {option}=True" for option in node.arg.options)
            return f"{targets} = linalg.{node.arg.routine}({operands}{options})"
        if node.op is ops.COLLECTIVE:
            over = ", ".join(map(str, node.arg.names))
            return f"{targets} = {node.arg.name}[{over}]" \
                f"({', '.join(self.name_of(s) for s in node.src)})"
        fns = [self.names.get(fn, node.arg.name or "kernel")
               for fn in accessors.bodies(node) or node.src[:1]]
        arguments = ", ".join(self.name_of(s) for s in accessors.operands(node))
        if node.op is ops.CUSTOM:
            rules = ", ".join(["again"] if node.arg.recursion_depth >= 0 else node.arg.rules)
            return f"{targets} = custom[{fns[0]}: {rules}]({arguments})"
        if node.op is ops.CALL:
            return f"{targets} = {fns[0]}({arguments})"
        how = f", length={node.arg.length}" if node.op is ops.SCAN else ""
        how += ", reverse=True" if node.op is ops.SCAN and node.arg.reverse else ""
        every = node.arg.checkpoint if node.op is ops.SCAN else 0
        how += f", checkpoint={every}" if every else ""
        return f"{targets} = {node.op.name.lower()}[{', '.join(fns)}{how}]({arguments})"

    def _definition(self, node: UOp, name: str) -> str:
        if node.op is ops.CONCAT:
            pieces = ", ".join(self.name_of(s) for s in node.src)
            return f"{name} = concat([{pieces}], axis={node.arg})"
        if node.op is ops.SCATTER:
            x, *index, updates = [self.name_of(s) for s in node.src]
            monoid = node.arg.monoid
            update = "set" if monoid is None else monoid.name.lower()
            colons = [":"] * (len(node.shape) - len(index))
            subscript = ", ".join(merge_by_axis(node.arg.axes, index,
                                                colons)[:node.arg.axes[-1] + 1])
            return f"{name} = {x}.at[{subscript}].{update}({updates})"
        line = _ElementFormula(self, node)
        letters = ", ".join(line.letter(i) for i in line.index)
        value = line.value(node, line.index, expand=True).text
        return f"{name}[{letters}] = {value}" if node.shape else f"{name} = {value}"


class _ElementFormula:
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
        return format_index(i, self.texts).text

    def value(self, node: UOp, index: IndexNodes, expand: bool = False) -> Text:
        """Return the text of an element of a node; ``expand``: the formula even if it has a
        name."""
        name = self.printer.names.get(node)
        if name is not None and not expand:
            return Text(f"{name}[{', '.join(self.letter(i) for i in index)}]" if index else name)
        if name is None and node.op is ops.CONST:
            return format_const(node)
        rule = _RULES.get(node.op)
        if rule is not None:
            return rule(self, node, index)
        return format_op(node, [self.value(s, index) for s in node.src])

    def movement(self, node: UOp, index: IndexNodes) -> Text:
        return self.value(node.src[0], _INDEX_RULES[node.op](node, index))

    def wrapper(self, node: UOp, index: IndexNodes) -> Text:
        name = "stop_gradient" if node.op is ops.STOP_GRADIENT else "barrier"
        after = "".join([f", after {self.printer.name_of(s)}" for s in node.src[1:]])
        return Text(f"{name}({self.value(node.src[0], index).text}{after})")

    def pad(self, node: UOp, index: IndexNodes) -> Text:
        x, fill = node.src
        inner = tuple([symbolic.simplify(build.sub(i, build.index_const(lo)))
                       for i, (lo, _) in zip(index, node.arg)])
        condition = " and ".join(
            f"{lo} <= {self.letter(i)} < {lo + n}" for i, n, (lo, hi)
            in zip(index, x.shape, node.arg) if (lo, hi) != (0, 0))
        return Text(f"{self.value(x, inner).parenthesize(1)} if {condition} else "
                    f"{self.value(fill, ()).text}", 0)

    def all_gather(self, node: UOp, index: IndexNodes) -> Text:
        value = self.value(node.src[0], index[1:]).text
        return Text(f"all_gather({value}, {node.arg.name!r})[{self.letter(index[0])}]")

    def summed_or_varying(self, node: UOp, index: IndexNodes) -> Text:
        value = self.value(node.src[0], index).text
        return Text(f"{node.op.name.lower()}({value}, {node.arg.name!r})")

    def axis_index(self, node: UOp, index: IndexNodes) -> Text:
        return Text(f"axis_index({node.arg.name!r})")

    def fold(self, node: UOp, index: IndexNodes) -> Text:
        w, count = node.arg, node.src[0].shape[node.arg.axis]
        position = symbolic.simplify(
            (Expr(index[w.axis]) - Expr(index[w.offset]) * w.dilation).node)
        inner = symbolic.simplify((Expr(position) // w.stride).node)
        condition = f"0 <= {self.letter(inner)} < {count}"
        if w.stride > 1:
            condition = f"{format_index(position, self.texts).parenthesize(5)} % {w.stride} == 0 " \
                f"and {condition}"
        value = self.value(node.src[0], (*index[:w.axis], inner, *index[w.axis + 1:]))
        return Text(f"{value.parenthesize(1)} if {condition} else 0", 0)

    def reduce(self, node: UOp, index: IndexNodes) -> Text:
        remaining = iter(index)
        x = node.src[0]
        inner = [self._range(n) if a in node.arg.axes else next(remaining)
                 for a, n in enumerate(x.shape)]
        loops = [(inner[a], x.shape[a]) for a in node.arg.axes if x.shape[a] != 1]
        heads = ", ".join(f"{self.letter(r)} < {n}" for r, n in loops)
        value = self.value(x, tuple(inner))
        return Text(f"{node.arg.monoid.fold}({heads}: {value.text})") if loops else value

    def iota(self, node: UOp, index: IndexNodes) -> Text:
        return format_index(index[0], self.texts)

    def gather(self, node: UOp, index: IndexNodes) -> Text:
        x, *index_arrays = node.src
        count = len(index_arrays[0].shape)
        positions = [self.value(s, index[:count]).text for s in index_arrays]
        subscript = merge_by_axis(node.arg.axes, positions, map(self.letter, index[count:]))
        return Text(f"{self.printer.name_of(x)}[{', '.join(subscript)}]")


def _reshape_index(node: UOp, index: IndexNodes) -> IndexNodes:
    x = node.src[0]
    long = [(i, n) for i, n in zip(index, node.shape) if n != 1]
    dims = [n for n in x.shape if n != 1]
    if 0 in x.shape:
        inner = [_ZERO] * len(dims)
    elif [n for _, n in long] == dims:
        inner = [i for i, _ in long]
    else:
        flat = symbolic.ravel([i for i, _ in long], [n for _, n in long])
        inner = list(symbolic.unravel(flat, dims))
    remaining = iter(inner)
    return tuple([next(remaining) if n != 1 else _ZERO for n in x.shape])


def _permute_index(node: UOp, index: IndexNodes) -> IndexNodes:
    return tuple([index[node.arg.index(a)] for a in range(len(index))])


def _expand_index(node: UOp, index: IndexNodes) -> IndexNodes:
    return tuple([_ZERO if n == 1 else i for i, n in zip(index, node.src[0].shape)])


def _shrink_index(node: UOp, index: IndexNodes) -> IndexNodes:
    return tuple([symbolic.simplify(build.add(i, build.index_const(lo)))
                  for i, (lo, _) in zip(index, node.arg)])


def _flip_index(node: UOp, index: IndexNodes) -> IndexNodes:
    return tuple([symbolic.simplify(build.sub(build.index_const(n - 1), i))
                  if a in node.arg else i
                  for a, (i, n) in enumerate(zip(index, node.shape))])


def _unfold_index(node: UOp, index: IndexNodes) -> IndexNodes:
    w = node.arg
    position = Expr(index[w.axis]) * w.stride + Expr(index[w.offset]) * w.dilation
    return (*index[:w.axis], symbolic.simplify(position.node), *index[w.axis + 1:])


_INDEX_RULES: dict[ops.Op, Callable[[UOp, IndexNodes], IndexNodes]] = {
    ops.RESHAPE: _reshape_index, ops.PERMUTE: _permute_index, ops.EXPAND: _expand_index,
    ops.SHRINK: _shrink_index, ops.FLIP: _flip_index, ops.UNFOLD: _unfold_index,
}
_RULES: dict[ops.Op, Callable[[_ElementFormula, UOp, IndexNodes], Text]] = {
    **dict.fromkeys(_INDEX_RULES, _ElementFormula.movement), ops.PAD: _ElementFormula.pad,
    ops.REDUCE: _ElementFormula.reduce, ops.FOLD: _ElementFormula.fold,
    ops.IOTA: _ElementFormula.iota, ops.GATHER: _ElementFormula.gather,
    ops.STOP_GRADIENT: _ElementFormula.wrapper,
    ops.BARRIER: _ElementFormula.wrapper, ops.ALL_GATHER: _ElementFormula.all_gather,
    ops.AXIS_INDEX: _ElementFormula.axis_index,
    ops.PVARY_LIKE: _ElementFormula.summed_or_varying,
    ops.PSUM_LIKE: _ElementFormula.summed_or_varying,
}
