"""The user's lines of a program.

Equal graphs are the same nodes, and such a node has the lines of all functions that made it. Those
of a program are among the lines that its trace ran.

    lines of the trace  m.py:8, m.py:9
    before  EXEC sort (m.py:4, m.py:8)      m.py:4 is in another function with this sort
    after   EXEC sort (m.py:8)

What is derived from a graph once, as the backward loop of a body, has the lines of the function
that came first, and a node remembers a few lines only. Such a node has the lines of those around
it (``accessors.lines_of_nodes``). A command of what a pass made, with lines of other programs only,
has those of the results.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import cache

from fnx.core.ir import accessors
from fnx.core.ir.uop import UOp, toposort
from fnx.core.support.errors import Location


def choose_lines(commands: UOp, fn: UOp, lines: Container[Location]) -> UOp:
    """Give each command of the program of a FUNCTION those of its lines that are among ``lines``.
    """
    @cache
    def lines_of() -> Mapping[UOp, tuple[Location, ...]]:
        return accessors.lines_of_nodes(toposort([fn], into_functions=True), lines)

    @cache
    def translations() -> Mapping[Location, Location]:
        return _translations(lines_of(), lines)

    @cache
    def of_results() -> tuple[Location, ...]:
        return next((lines_of()[x] for x in fn.src if lines_of()[x]), ())

    def choose(locs: Sequence[Location]) -> Iterable[Location]:
        matches = [loc for loc in locs if loc in lines]
        if matches or not locs:
            return matches
        known = [translations()[loc] for loc in locs if loc in translations()]
        return known or of_results() or locs
    return accessors.map_locations(commands, choose)


def _translations(lines_of: Mapping[UOp, tuple[Location, ...]], lines: Container[Location]
                  ) -> Mapping[Location, Location]:
    """Return, for each line of other programs, the line of this one that most nodes with it have.
    """
    counts: defaultdict[Location, Counter[Location]] = defaultdict(Counter)
    for node, matches in lines_of.items():
        is_inherited = not any(loc in lines for loc in node.locs)
        for loc in node.locs if matches else ():
            if loc not in lines:
                counts[loc].update({line: 1 if is_inherited else len(lines_of)
                                    for line in matches})
    return {loc: count.most_common(1)[0][0] for loc, count in counts.items()}
