"""Print kernels as loops.

    kernel contract_add(x0: float32[50, 20], x1: float32[20, 30], o2: float32[50, 30])
      for i in par(50), l in vec(30):                          # m.py:5
        o2[i, l] = sum(k < 20: x0[i, k] * x1[k, l]) + 1

Values that are used twice, or are long, get a name, defined in the innermost loop that they depend
on: that is also where the compiler computes them. ``sum(k < 20: ...)`` is printed as a loop if
names are defined inside. A buffer is named x or o (written) and its slot; a range has the name
that its schedule gives it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from fnx.core.ir import accessors, build, dtypes, ops
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels.show_text import (
    Names,
    Text,
    combine_statement,
    format_const,
    format_locations,
    format_op,
    format_polynomial,
)
from fnx.core.rewriting import symbolic
from fnx.core.support.errors import Location
from fnx.core.support.record import Record, values

_MAX_OPERAND_LENGTH = 64  # longer operands get a name
_LOCATION_COLUMN = 64  # column of the user's line


class _LoopLines(Record):
    """Lines to print inside the loops of ``ranges``, after the definitions that they use."""

    ranges: frozenset[UOp]
    uses: tuple[UOp, ...]
    lines: tuple[str, ...]
    fold: tuple[tuple[UOp, ...], tuple[_LoopLines, ...]] | None = None  # a loop and its body
    locs: tuple[Location, ...] = ()


def kernel_lines(kernel: UOp, name: str, locs: Callable[[UOp], tuple[Location, ...]]) -> list[str]:
    """Format a KERNEL as loops; ``locs`` returns the user's lines of a node."""
    printer = _KernelPrinter(kernel.src, kernel.arg.order, locs)
    refs = {n.arg.slot: n for n in reversed(printer.nodes) if n.op is ops.REF}
    heads = [f"{printer.buffers[slot]}: {r.dtype}[{', '.join(map(printer.text, r.src))}]"
             for slot, r in sorted(refs.items())]
    scalars = sorted({(n.arg.slot, printer.text(n), n.dtype.name) for n in printer.nodes
                      if n.op is ops.VAR})
    heads += [f"{text}: {dtype}" for _, text, dtype in scalars]
    head_lines = [f"kernel {name}({', '.join(heads)})"]
    if len(head_lines[0]) > 100:
        head_lines = [f"kernel {name}("] + [f"    {h}," for h in heads[:-1]] + [f"    {heads[-1]})"]
    return [*head_lines,
            *_align_locations("  " + line for line in printer.lines(printer.roots(kernel.src)))]


def expression_lines(roots: Sequence[UOp],
                     locs: Callable[[UOp], tuple[Location, ...]]) -> list[str]:
    """Format expressions of a kernel, inside their loops."""
    printer = _KernelPrinter(roots, (), locs)
    return _align_locations(printer.lines([printer.root(r) for r in roots]))


class _KernelPrinter:
    """Formats all nodes bottom up, then statements from the outermost loop inwards."""

    def __init__(self, roots: Sequence[UOp], order: Sequence[int],
                 locs: Callable[[UOp], tuple[Location, ...]]) -> None:
        self.locs = locs
        self.nodes = toposort(roots)
        self.order = accessors.LoopOrder(order)
        self.names = Names()
        written = {accessors.buffer(s).arg.slot for s in roots
                   if s.op is ops.STORE and accessors.buffer(s).op is ops.REF}
        self.buffers: dict[int, str] = {}
        for n in self.nodes:
            if n.op is ops.REF and n.arg.slot not in self.buffers:
                self.buffers[n.arg.slot] = self.names.unique(
                    n.arg.name or f"{'o' if n.arg.slot in written else 'x'}{n.arg.slot}")
        self.texts: dict[UOp, Text] = {}
        self.uses: dict[UOp, tuple[UOp, ...]] = {}  # named nodes in a text
        self.defined: dict[UOp, _LoopLines] = {}
        self.carries = {(n.arg.id, i): self.names.letter("xyzwabcdefgh") for n in self.nodes
                        if n.op is ops.LOOP for i in range(len(n.arg.outs))}
        self._name_ranges()
        self.loop_of_store = _stores_in_loops(roots)
        self.named_nodes = self._find_shared()
        for node in self.nodes:
            self._add(node)

    def text(self, node: UOp) -> str:
        return self.texts[node].text

    def _name_ranges(self) -> None:
        """Name the ranges: ``r0_io`` of a schedule is io; those without a name get a letter."""
        ranges = sorted((n for n in self.nodes if n.op is ops.RANGE), key=self.order)
        folded = {r for n in self.nodes if n.op is ops.REDUCE for r in accessors.bound_ranges(n)}
        for r in ranges:
            own_name = re.sub(r"^r\d+(_|$)|_\d*$", "", r.arg.name)
            stem = re.match(r"[A-Za-z]\w*", own_name)
            letters = "kmnpqruv" if r in folded else "ijlmnpqruv"
            self.texts[r] = Text(self.names.unique(own_name) if stem
                                 else self.names.letter(letters))
            self.uses[r] = ()

    def _find_shared(self) -> set[UOp]:
        """Return the nodes that are read more than once and are not trivial to repeat."""
        readers: dict[UOp, int] = {}
        for n in self.nodes:
            for s in n.src:
                if s.dtype is dtypes.index and n.dtype is dtypes.index and not _is_atom(n):
                    continue  # a term of a polynomial
                is_outer = s.op is ops.REDUCE and len(s.ranges) < len(n.ranges)
                readers[s] = readers.get(s, 0) + 1 + is_outer  # an outer loop computes it
        return {n for n, count in readers.items() if count > 1 and self._is_work(n)}

    def _is_work(self, n: UOp) -> bool:
        if n.op is ops.LOAD:
            return len(n.src) > 1
        if n.dtype is dtypes.index:
            terms, constant = symbolic.linear_terms(n)
            return len(terms) + bool(constant) > 1 or any(_is_atom(a) and a.src
                                                          and a.op is not ops.RANGE
                                                          for m in terms for a in m)
        return n.op is ops.REDUCE or n.op.kind in ("elementwise", "pair")

    # ---- texts

    def _add(self, node: UOp) -> None:
        if node.op is ops.STORE or node in self.texts:
            return
        if node.op in (ops.CARRY, ops.LOOP):
            self._define_loop(node)
            return
        if node.op is ops.STAGE:
            self._define_stage(node)
            return
        if node.op is ops.REDUCE and self._has_names(node):
            self._define_reduce(node)
            return
        text, uses = self._expression(node)
        self.texts[node], self.uses[node] = text, uses
        if node in self.named_nodes:
            self._define(node, "p" if node.dtype is dtypes.index else "t")

    def _define(self, node: UOp, stem: str) -> None:
        name = self.names.fresh(stem)
        self.defined[node] = _LoopLines(node.ranges, self.uses[node],
                                        (f"{name} = {self.text(node)}",), None,
                                        self.locs(node))
        self.texts[node], self.uses[node] = Text(name), (node,)

    def _expression(self, node: UOp) -> tuple[Text, tuple[UOp, ...]]:
        op = node.op
        if op is ops.CONST:
            return format_const(node), ()
        if op is ops.VAR:
            return Text(self.names.unique(node.arg.name or f"n{node.arg.slot}")), ()
        if op is ops.REF:
            return Text(self.buffers[node.arg.slot]), ()
        if node.dtype is dtypes.index and not _is_atom(node):
            return self._polynomial(node)
        for s in node.src:
            if len(self.text(s)) > _MAX_OPERAND_LENGTH and op is not ops.INDEX \
                    and op is not ops.REDUCE and s.op is not ops.INDEX and s not in self.defined:
                self._define(s, "t")
        uses = self._merge_uses(node.src)
        texts = [self.texts[s] for s in node.src]
        if op is ops.INDEX:
            return Text(_format_access(texts)), uses
        if op is ops.PER_ITERATION:
            return texts[0], uses
        if op is ops.GETTUPLE:
            return Text(self.carries[node.src[0].arg.id, node.arg]), uses
        if op is ops.LOAD:
            return (texts[0] if len(texts) == 1 else
                    Text(f"{texts[0].text} if {texts[1].text} else 0", 0)), uses
        if op is ops.REDUCE:
            return Text(f"{node.arg.monoid.fold}({self._extents(node)}: {texts[0].text})"), uses
        return format_op(node, texts), uses

    def _polynomial(self, node: UOp) -> tuple[Text, tuple[UOp, ...]]:
        terms, constant = symbolic.linear_terms(node)
        atoms = list(dict.fromkeys(a for m in terms for a in m))
        for n in toposort(atoms, stop=self.texts.__contains__):
            self._add(n)  # an atom that occurs only in the normal form
        return format_polynomial(terms, constant, self.texts), self._merge_uses(atoms)

    def _merge_uses(self, nodes: Iterable[UOp]) -> tuple[UOp, ...]:
        return tuple(dict.fromkeys(u for n in nodes for u in self.uses[n]))

    def _extents(self, node: UOp) -> str:
        return ", ".join(f"{self.text(r)} < {self._extent(r, '')}"
                         for r in accessors.bound_ranges(node))

    def _extent(self, r: UOp, plain: str) -> str:
        kind = plain if r.arg.kind == "SEQ" else r.arg.kind.lower()
        n = accessors.extent(r)
        size = self.text(n) if n in self.texts else str(n.arg)
        return f"{kind}({size})" if kind else size

    # ---- statements

    def _has_names(self, node: UOp) -> bool:
        closed = set(accessors.bound_ranges(node))
        return any(not closed.isdisjoint(u.ranges) for u in self.uses[accessors.value(node)])

    def _define_reduce(self, node: UOp) -> None:
        """Define a REDUCE with names inside as an accumulator and a loop."""
        name = self.names.fresh("s")
        value = accessors.value(node)
        text, uses = self.text(value), self.uses[value]
        monoid = node.arg.monoid
        inner = _LoopLines(value.ranges, uses, (combine_statement(monoid, name, text),), None,
                           self.locs(node))
        start = build.const(monoid.identity(node.dtype), node.dtype)
        self.defined[node] = _LoopLines(node.ranges, uses,
                                        (f"{name} = {format_const(start).text}",),
                                        (accessors.bound_ranges(node), (inner,)))
        self.texts[node], self.uses[node] = Text(name), (node,)

    def _define_loop(self, node: UOp) -> None:
        """Define a LOOP as initial values and a loop; ``roots`` adds the STOREs inside."""
        if node.op is ops.CARRY:
            self.texts[node], self.uses[node] = Text(self.carries[values(node.arg)]), ()
            return
        names = ", ".join([self.carries[node.arg.id, i] for i in range(len(node.arg.outs))])
        inits, nexts = accessors.init_values(node), accessors.next_values(node)
        stop = accessors.stop_condition(node)
        ranges = node.ranges.union(accessors.bound_ranges(node), *[n.ranges for n in nexts])
        body = []
        if stop is not None:
            body.append(_LoopLines(ranges, self.uses[stop], (f"if {self.text(stop)}: break",)))
        self.texts[node], self.uses[node] = Text(names), (node,)
        body.append(_LoopLines(ranges, self._merge_uses(nexts),
                               (f"{names} = {', '.join(map(self.text, nexts))}",), None,
                               self.locs(node)))
        self.defined[node] = _LoopLines(
            node.ranges, self._merge_uses(inits),
            (f"{names} = {', '.join(map(self.text, inits))}",),
            (accessors.bound_ranges(node), tuple(body)), self.locs(node))

    def _define_stage(self, node: UOp) -> None:
        value, dims = accessors.value(node), accessors.bound_ranges(node)
        name = self.names.unique(node.arg.name or f"local{node.arg.id}")
        index = ", ".join(self.text(r) for r in dims)
        inner = _LoopLines(value.ranges | set(dims), self.uses[value],
                           (f"{name}[{index}] = {self.text(value)}",), None, self.locs(value))
        sizes = ", ".join(self._extent(r, "").split("(")[-1].rstrip(")") for r in dims)
        head = f"{name} = {node.arg.space.lower()}({node.dtype}[{sizes}])"
        self.defined[node] = _LoopLines(node.ranges, self.uses[value], (head,), (dims, (inner,)))
        self.texts[node], self.uses[node] = Text(name), (node,)

    def roots(self, stores: Sequence[UOp]) -> list[_LoopLines]:
        """Return the STOREs as statements; those inside a LOOP are put in its loop."""
        by_loop: dict[UOp, list[UOp]] = {}
        for store in stores:
            loop = self.loop_of_store.get(store)
            if loop is not None:
                by_loop.setdefault(loop, []).append(store)
        for loop, loop_stores in by_loop.items():
            definition = self.defined[loop]
            assert definition.fold is not None
            *stop, step = definition.fold[1]
            body = (*stop, *[self.root(store) for store in loop_stores], step)
            self.defined[loop] = definition.replace(fold=(definition.fold[0], body))
        return [_LoopLines(self.loop_of_store[s].ranges, (self.loop_of_store[s],), ())
                if s in self.loop_of_store
                else self.root(s) for s in stores]

    def root(self, node: UOp) -> _LoopLines:
        """Return a STORE as a statement, or the text of any other node."""
        if node.op is ops.STORE:
            return self._store(node)
        return _LoopLines(node.ranges, self.uses[node], (self.text(node),), None, self.locs(node))

    def _store(self, store: UOp) -> _LoopLines:
        access, value, *valid = store.src
        where, what = self.text(access), self.text(value)
        monoid = store.arg
        if monoid in (None, ops.STORE, ops.SCATTER):
            line = f"{where} = {what}"
        else:
            line = combine_statement(monoid, where, what)
        lines: tuple[str, ...] = (line,)
        if valid:
            condition = f"if {self.text(valid[0])}:"
            lines = (f"{condition} {line}",) if len(condition + line) < 90 else \
                (condition, "  " + line)
        return _LoopLines(store.ranges, self._merge_uses(store.src), lines, None,
                          self.locs(store) or self.locs(value))

    # ---- lines

    def lines(self, targets: Iterable[_LoopLines]) -> Iterator[str]:
        yield from self._block(list(targets), frozenset(), frozenset(), ())

    def _block(self, targets: Sequence[_LoopLines], open: frozenset[UOp], seen: frozenset[UOp],
               header: tuple[UOp, ...]) -> Iterator[str]:
        """Print targets inside the loops ``open``, after the definitions that they need.

        ``header`` are loops that are not printed yet, as those directly inside join their line.
        """
        needed = self._needed(targets, seen)
        defined_here = [n for n in needed if self.defined[n].ranges <= open]
        seen = seen.union(defined_here)
        groups = [(r, list(g)) for r, g in itertools.groupby(
            targets, lambda t: min(t.ranges - open, key=self.order, default=None))]
        if header and not defined_here and len(groups) == 1 and groups[0][0] is not None:
            r = groups[0][0]
            yield from self._block(targets, open | {r}, seen, (*header, r))
            return
        indent = ""
        if header:
            loops = ", ".join(f"{self.text(r)} in {self._extent(r, 'seq')}" for r in header)
            yield f"for {loops}:"
            indent = "  "
        for loop_group in self._group_loops(defined_here):
            for line in self._definition_lines(loop_group, open, seen):
                yield indent + line
        for r, group in groups:
            if r is None:
                for t in group:
                    yield from (indent + line for line in _format_lines(t))
            else:
                for line in self._block(group, open | {r}, seen, (r,)):
                    yield indent + line

    def _group_loops(self, names: Sequence[UOp]) -> list[list[_LoopLines]]:
        """Group definitions in order: neighbors that loop over the same ranges, and do not use
        each other, share one loop."""
        out: list[list[_LoopLines]] = []
        group: set[UOp] = set()
        for n in names:
            s = self.defined[n]
            previous = out[-1][0] if out else None
            if previous is None or s.fold is None or previous.fold is None \
                    or previous.fold[0] != s.fold[0] \
                    or not group.isdisjoint(self._needed([s], frozenset())):
                out.append([])
                group = set()
            out[-1].append(s)
            group.add(n)
        return out

    def _definition_lines(self, loop_group: Sequence[_LoopLines], open: frozenset[UOp],
                          seen: frozenset[UOp]) -> Iterator[str]:
        for s in loop_group:
            yield from _format_lines(s)
        inner = [t for s in loop_group if s.fold is not None for t in s.fold[1]]
        if loop_group[0].fold is not None:
            first = min(loop_group[0].fold[0], key=self.order)
            yield from self._block(inner, open | {first}, seen, (first,))

    def _needed(self, targets: Iterable[_LoopLines], seen: frozenset[UOp]) -> list[UOp]:
        """Return the names that targets need and that are not in ``seen``, in definition order."""
        needed: set[UOp] = set()
        stack = [u for t in targets for u in t.uses]
        while stack:
            n = stack.pop()
            if n in needed or n in seen:
                continue
            needed.add(n)
            stack += self.defined[n].uses
        return [n for n in self.defined if n in needed] if needed else []


def _stores_in_loops(roots: Sequence[UOp]) -> dict[UOp, UOp]:
    """Map each STORE inside a LOOP to the outermost such LOOP."""
    out = {}
    for store in roots:
        steps = [n.src[1]
                 for n in toposort([store], stop=lambda n: n.op in (ops.PER_ITERATION, ops.LOOP))
                 if n.op is ops.PER_ITERATION]
        if store.op is ops.STORE and steps:
            out[store] = steps[0]
    return out


def _is_atom(n: UOp) -> bool:
    """Return whether an index node is no sum or product, such as a range, data or a division."""
    return n.dtype is not dtypes.index or n.op not in (ops.ADD, ops.SUB, ops.MUL, ops.NEG,
                                                       ops.CONST)


def _format_access(texts: Sequence[Text]) -> str:
    return f"{texts[0].text}[{', '.join(t.text for t in texts[1:])}]" if len(texts) > 1 else \
        f"{texts[0].text}[()]"


def _format_lines(s: _LoopLines) -> Iterator[str]:
    if not s.lines:
        return
    first, *rest = s.lines
    yield f"{first}\0{format_locations(s.locs)}" if s.locs else first
    yield from rest


def _align_locations(lines: Iterable[str]) -> list[str]:
    """Align the comments with the user's lines."""
    parts = [line.partition("\0") for line in lines]
    return [f"{text:<{_LOCATION_COLUMN}}  # {where}" if where else text for text, _, where in parts]
