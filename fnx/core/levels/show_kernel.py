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

from fnx.core import build, dtypes, ops, parts
from fnx.core.errors import Site
from fnx.core.levels.show_text import Names, Text, folded, lines_of, number, operation, polynomial
from fnx.core.record import Record, values
from fnx.core.rewriting import symbolic
from fnx.core.uop import UOp, toposort

_LONG = 64  # longer operands get a name
_LINE = 64  # column of the user's line


class _Lines(Record):
    """Lines to print inside the loops of ``ranges``, after the definitions that they use."""

    ranges: frozenset[UOp]
    uses: tuple[UOp, ...]
    lines: tuple[str, ...]
    fold: tuple[tuple[UOp, ...], tuple[_Lines, ...]] | None = None  # a loop and its body
    sites: tuple[Site, ...] = ()


def kernel_lines(kernel: UOp, name: str, sites: Callable[[UOp], tuple[Site, ...]]) -> list[str]:
    """Format a KERNEL as loops; ``sites`` returns the user's lines of a node."""
    printer = _KernelPrinter(kernel.src, kernel.arg.order, sites)
    refs = {n.arg.slot: n for n in reversed(printer.nodes) if n.op is ops.REF}
    heads = [f"{printer.buffers[slot]}: {r.dtype}[{', '.join(map(printer.text, r.src))}]"
             for slot, r in sorted(refs.items())]
    scalars = sorted({(n.arg.slot, printer.text(n), n.dtype.name) for n in printer.nodes
                      if n.op is ops.VAR})
    heads += [f"{text}: {dtype}" for _, text, dtype in scalars]
    found = [f"kernel {name}({', '.join(heads)})"]
    if len(found[0]) > 100:
        found = [f"kernel {name}("] + [f"    {h}," for h in heads[:-1]] + [f"    {heads[-1]})"]
    return [*found, *_aligned("  " + line for line in printer.lines(printer.roots(kernel.src)))]


def expression_lines(roots: Sequence[UOp], sites: Callable[[UOp], tuple[Site, ...]]) -> list[str]:
    """Format expressions of a kernel, inside their loops."""
    printer = _KernelPrinter(roots, (), sites)
    return _aligned(printer.lines([printer.root(r) for r in roots]))


class _KernelPrinter:
    """Formats all nodes bottom up, then statements from the outermost loop inwards."""

    def __init__(self, roots: Sequence[UOp], order: Sequence[int],
                 sites: Callable[[UOp], tuple[Site, ...]]) -> None:
        self.sites = sites
        self.nodes = toposort(roots)
        self.order = parts.LoopOrder(order)
        self.names = Names()
        written = {parts.buffer(s).arg.slot for s in roots
                   if s.op is ops.STORE and parts.buffer(s).op is ops.REF}
        self.buffers: dict[int, str] = {}
        for n in self.nodes:
            if n.op is ops.REF and n.arg.slot not in self.buffers:
                self.buffers[n.arg.slot] = self.names.plain(
                    n.arg.name or f"{'o' if n.arg.slot in written else 'x'}{n.arg.slot}")
        self.texts: dict[UOp, Text] = {}
        self.uses: dict[UOp, tuple[UOp, ...]] = {}  # named nodes in a text
        self.defined: dict[UOp, _Lines] = {}
        self.carries = {(n.arg.id, i): self.names.letter("xyzwabcdefgh") for n in self.nodes
                        if n.op is ops.ITER for i in range(len(n.arg.outs))}
        self._name_ranges()
        self.inside = _stores_inside(roots)
        self.shared = self._shared()
        for node in self.nodes:
            self._add(node)

    def text(self, node: UOp) -> str:
        return self.texts[node].text

    def _name_ranges(self) -> None:
        """Name the ranges: ``r0_io`` of a schedule is io; those without a name get a letter."""
        ranges = sorted((n for n in self.nodes if n.op is ops.RANGE), key=self.order)
        folded = {r for n in self.nodes if n.op is ops.REDUCE for r in parts.closed(n)}
        for r in ranges:
            own = re.sub(r"^r\d+(_|$)|_\d*$", "", r.arg.name)
            stem = re.match(r"[A-Za-z]\w*", own)
            letters = "kmnpqruv" if r in folded else "ijlmnpqruv"
            self.texts[r] = Text(self.names.plain(own) if stem else self.names.letter(letters))
            self.uses[r] = ()

    def _shared(self) -> set[UOp]:
        """Return the nodes that are read more than once and are not trivial to repeat."""
        readers: dict[UOp, int] = {}
        for n in self.nodes:
            for s in n.src:
                if s.dtype is dtypes.index and n.dtype is dtypes.index and not _is_atom(n):
                    continue  # a term of a polynomial
                outside = s.op is ops.REDUCE and len(s.ranges) < len(n.ranges)
                readers[s] = readers.get(s, 0) + 1 + outside  # an outer loop computes it
        return {n for n, count in readers.items() if count > 1 and self._is_work(n)}

    def _is_work(self, n: UOp) -> bool:
        if n.op is ops.LOAD:
            return len(n.src) > 1
        if n.dtype is dtypes.index:
            terms, constant = symbolic.linear(n)
            return len(terms) + bool(constant) > 1 or any(_is_atom(a) and a.src
                                                          and a.op is not ops.RANGE
                                                          for m in terms for a in m)
        return n.op is ops.REDUCE or n.op.kind in ("elementwise", "pair")

    # ---- texts

    def _add(self, node: UOp) -> None:
        if node.op is ops.STORE or node in self.texts:
            return
        if node.op in (ops.CARRY, ops.ITER):
            self._carried(node)
            return
        if node.op is ops.STAGE:
            self._stage(node)
            return
        if node.op is ops.REDUCE and self._has_names(node):
            self._loop(node)
            return
        text, uses = self._expression(node)
        self.texts[node], self.uses[node] = text, uses
        if node in self.shared:
            self._define(node, "p" if node.dtype is dtypes.index else "t")

    def _define(self, node: UOp, stem: str) -> None:
        name = self.names.fresh(stem)
        self.defined[node] = _Lines(node.ranges, self.uses[node],
                                    (f"{name} = {self.text(node)}",), None,
                                    self.sites(node))
        self.texts[node], self.uses[node] = Text(name), (node,)

    def _expression(self, node: UOp) -> tuple[Text, tuple[UOp, ...]]:
        op = node.op
        if op is ops.CONST:
            return number(node), ()
        if op is ops.VAR:
            return Text(self.names.plain(node.arg.name or f"n{node.arg.slot}")), ()
        if op is ops.REF:
            return Text(self.buffers[node.arg.slot]), ()
        if node.dtype is dtypes.index and not _is_atom(node):
            return self._polynomial(node)
        for s in node.src:
            if len(self.text(s)) > _LONG and op is not ops.INDEX and op is not ops.REDUCE \
                    and s.op is not ops.INDEX and s not in self.defined:
                self._define(s, "t")
        uses = self._merged(node.src)
        texts = [self.texts[s] for s in node.src]
        if op is ops.INDEX:
            return Text(_place(texts)), uses
        if op is ops.STEP:
            return texts[0], uses
        if op is ops.GET:
            return Text(self.carries[node.src[0].arg.id, node.arg]), uses
        if op is ops.LOAD:
            return (texts[0] if len(texts) == 1 else
                    Text(f"{texts[0].text} if {texts[1].text} else 0", 0)), uses
        if op is ops.REDUCE:
            return Text(f"{node.arg.monoid.fold}({self._extents(node)}: {texts[0].text})"), uses
        return operation(node, texts), uses

    def _polynomial(self, node: UOp) -> tuple[Text, tuple[UOp, ...]]:
        terms, constant = symbolic.linear(node)
        atoms = list(dict.fromkeys(a for m in terms for a in m))
        for n in toposort(atoms, stop=self.texts.__contains__):
            self._add(n)  # an atom that occurs only in the normal form
        return polynomial(terms, constant, self.texts), self._merged(atoms)

    def _merged(self, nodes: Iterable[UOp]) -> tuple[UOp, ...]:
        return tuple(dict.fromkeys(u for n in nodes for u in self.uses[n]))

    def _extents(self, node: UOp) -> str:
        return ", ".join(f"{self.text(r)} < {self._extent(r, '')}" for r in parts.closed(node))

    def _extent(self, r: UOp, plain: str) -> str:
        kind = plain if r.arg.kind == "SEQ" else r.arg.kind.lower()
        n = parts.extent(r)
        size = self.text(n) if n in self.texts else str(n.arg)
        return f"{kind}({size})" if kind else size

    # ---- statements

    def _has_names(self, node: UOp) -> bool:
        closed = set(parts.closed(node))
        return any(not closed.isdisjoint(u.ranges) for u in self.uses[parts.value(node)])

    def _loop(self, node: UOp) -> None:
        """Define a REDUCE with names inside as an accumulator and a loop."""
        name = self.names.fresh("s")
        value = parts.value(node)
        text, uses = self.text(value), self.uses[value]
        monoid = node.arg.monoid
        inner = _Lines(value.ranges, uses, (folded(monoid, name, text),), None, self.sites(node))
        start = build.const(monoid.identity(node.dtype), node.dtype)
        self.defined[node] = _Lines(node.ranges, uses, (f"{name} = {number(start).text}",),
                                    (parts.closed(node), (inner,)))
        self.texts[node], self.uses[node] = Text(name), (node,)

    def _carried(self, node: UOp) -> None:
        """Define an ITER as initial values and a loop; ``roots`` adds the STOREs inside."""
        if node.op is ops.CARRY:
            self.texts[node], self.uses[node] = Text(self.carries[values(node.arg)]), ()
            return
        names = ", ".join([self.carries[node.arg.id, i] for i in range(len(node.arg.outs))])
        first, nexts, stop = parts.inits(node), parts.nexts(node), parts.stop(node)
        ranges = node.ranges.union(parts.closed(node), *[n.ranges for n in nexts])
        body = []
        if stop is not None:
            body.append(_Lines(ranges, self.uses[stop], (f"if {self.text(stop)}: break",)))
        self.texts[node], self.uses[node] = Text(names), (node,)
        body.append(_Lines(ranges, self._merged(nexts),
                           (f"{names} = {', '.join(map(self.text, nexts))}",), None,
                           self.sites(node)))
        self.defined[node] = _Lines(
            node.ranges, self._merged(first), (f"{names} = {', '.join(map(self.text, first))}",),
            (parts.closed(node), tuple(body)), self.sites(node))

    def _stage(self, node: UOp) -> None:
        value, dims = parts.value(node), parts.closed(node)
        name = self.names.plain(node.arg.name or f"local{node.arg.id}")
        index = ", ".join(self.text(r) for r in dims)
        inner = _Lines(value.ranges | set(dims), self.uses[value],
                       (f"{name}[{index}] = {self.text(value)}",), None, self.sites(value))
        sizes = ", ".join(self._extent(r, "").split("(")[-1].rstrip(")") for r in dims)
        head = f"{name} = {node.arg.space.lower()}({node.dtype}[{sizes}])"
        self.defined[node] = _Lines(node.ranges, self.uses[value], (head,), (dims, (inner,)))
        self.texts[node], self.uses[node] = Text(name), (node,)

    def roots(self, stores: Sequence[UOp]) -> list[_Lines]:
        """Return the STOREs as statements; those inside an ITER are put in its loop."""
        inside: dict[UOp, list[UOp]] = {}
        for store in stores:
            loop = self.inside.get(store)
            if loop is not None:
                inside.setdefault(loop, []).append(store)
        for loop, own in inside.items():
            s = self.defined[loop]
            assert s.fold is not None
            *stop, step = s.fold[1]
            body = (*stop, *[self.root(store) for store in own], step)
            self.defined[loop] = s.replace(fold=(s.fold[0], body))
        return [_Lines(self.inside[s].ranges, (self.inside[s],), ()) if s in self.inside
                else self.root(s) for s in stores]

    def root(self, node: UOp) -> _Lines:
        """Return a STORE as a statement, or the text of any other node."""
        if node.op is ops.STORE:
            return self._store(node)
        return _Lines(node.ranges, self.uses[node], (self.text(node),), None, self.sites(node))

    def _store(self, store: UOp) -> _Lines:
        place, value, *valid = store.src
        where, what = self.text(place), self.text(value)
        monoid = store.arg
        if monoid is None or monoid is ops.STORE:
            line = f"{where} = {what}"
        else:
            line = folded(monoid, where, what)
        lines: tuple[str, ...] = (line,)
        if valid:
            condition = f"if {self.text(valid[0])}:"
            lines = (f"{condition} {line}",) if len(condition + line) < 90 else \
                (condition, "  " + line)
        return _Lines(store.ranges, self._merged(store.src), lines, None,
                      self.sites(store) or self.sites(value))

    # ---- lines

    def lines(self, targets: Iterable[_Lines]) -> Iterator[str]:
        yield from self._block(list(targets), frozenset(), frozenset(), ())

    def _block(self, targets: Sequence[_Lines], open: frozenset[UOp], seen: frozenset[UOp],
               header: tuple[UOp, ...]) -> Iterator[str]:
        """Print targets inside the loops ``open``, after the definitions that they need.

        ``header`` are loops that are not printed yet, as those directly inside join their line.
        """
        needed = self._needed(targets, seen)
        here = [n for n in needed if self.defined[n].ranges <= open]
        seen = seen.union(here)
        groups = [(r, list(g)) for r, g in itertools.groupby(
            targets, lambda t: min(t.ranges - open, key=self.order, default=None))]
        if header and not here and len(groups) == 1 and groups[0][0] is not None:
            r = groups[0][0]
            yield from self._block(targets, open | {r}, seen, (*header, r))
            return
        indent = ""
        if header:
            loops = ", ".join(f"{self.text(r)} in {self._extent(r, 'seq')}" for r in header)
            yield f"for {loops}:"
            indent = "  "
        for together in self._together(here):
            for line in self._defining(together, open, seen):
                yield indent + line
        for r, group in groups:
            if r is None:
                for t in group:
                    yield from (indent + line for line in _beside(t))
            else:
                for line in self._block(group, open | {r}, seen, (r,)):
                    yield indent + line

    def _together(self, names: Sequence[UOp]) -> list[list[_Lines]]:
        """Group definitions in order: neighbors that loop over the same ranges, and do not use
        each other, share one loop."""
        out: list[list[_Lines]] = []
        group: set[UOp] = set()
        for n in names:
            s = self.defined[n]
            before = out[-1][0] if out else None
            if before is None or s.fold is None or before.fold is None \
                    or before.fold[0] != s.fold[0] \
                    or not group.isdisjoint(self._needed([s], frozenset())):
                out.append([])
                group = set()
            out[-1].append(s)
            group.add(n)
        return out

    def _defining(self, together: Sequence[_Lines], open: frozenset[UOp],
                  seen: frozenset[UOp]) -> Iterator[str]:
        for s in together:
            yield from _beside(s)
        inner = [t for s in together if s.fold is not None for t in s.fold[1]]
        if together[0].fold is not None:
            first = min(together[0].fold[0], key=self.order)
            yield from self._block(inner, open | {first}, seen, (first,))

    def _needed(self, targets: Iterable[_Lines], seen: frozenset[UOp]) -> list[UOp]:
        """Return the names that targets need and that are not in ``seen``, in definition order."""
        found: set[UOp] = set()
        stack = [u for t in targets for u in t.uses]
        while stack:
            n = stack.pop()
            if n in found or n in seen:
                continue
            found.add(n)
            stack += self.defined[n].uses
        return [n for n in self.defined if n in found] if found else []


def _stores_inside(roots: Sequence[UOp]) -> dict[UOp, UOp]:
    """Map each STORE inside an ITER to the outermost such ITER."""
    out = {}
    for store in roots:
        steps = [n.src[1] for n in toposort([store], stop=lambda n: n.op in (ops.STEP, ops.ITER))
                 if n.op is ops.STEP]
        if store.op is ops.STORE and steps:
            out[store] = steps[0]
    return out


def _is_atom(n: UOp) -> bool:
    """Return whether an index node is no sum or product, such as a range, data or a division."""
    return n.dtype is not dtypes.index or n.op not in (ops.ADD, ops.SUB, ops.MUL, ops.NEG,
                                                       ops.CONST)


def _place(texts: Sequence[Text]) -> str:
    return f"{texts[0].text}[{', '.join(t.text for t in texts[1:])}]" if len(texts) > 1 else \
        f"{texts[0].text}[()]"


def _beside(s: _Lines) -> Iterator[str]:
    if not s.lines:
        return
    first, *rest = s.lines
    yield f"{first}\0{lines_of(s.sites)}" if s.sites else first
    yield from rest


def _aligned(lines: Iterable[str]) -> list[str]:
    """Align the comments with the user's lines."""
    parts = [line.partition("\0") for line in lines]
    return [f"{text:<{_LINE}}  # {where}" if where else text for text, _, where in parts]
