"""Kinds of ranges: what a loop of a tiled kernel becomes. A target says which of them it has.

    kind      becomes      iterations
    SEQ       a loop       in order
    UNROLL    instances    straight code, one after the other
    VEC       lanes        of vectors
    PAR       a loop       parts of it are given out, to workers of the cpu
    GRID      a loop       parts of it are given out, to blocks of a GPU
    THREAD    a loop       parts of it are given out, to threads of such a block

Where parts are given out the program is told the bounds of its own (PART, two a range): such a
range is outermost, every STORE has it, and nothing folds or fills over it.

>>> RANGE_KINDS["PAR"].given, sorted(LOOPS)
(True, ['GRID', 'PAR', 'SEQ', 'THREAD'])
"""

from __future__ import annotations

from fnx.core.record import Record


class RangeKind(Record):
    """A row: what a range becomes.

    Attributes:
        becomes: "loop", "instances" or "lanes".
        given: whether parts of it are given out.
        most: how many ranges of this kind a kernel may have; None: any number.
    """

    becomes: str
    given: bool = False
    most: int | None = None


RANGE_KINDS = {
    "GRID": RangeKind("loop", given=True, most=3),
    "THREAD": RangeKind("loop", given=True, most=3),
    "PAR": RangeKind("loop", given=True, most=1),
    "SEQ": RangeKind("loop"),
    "UNROLL": RangeKind("instances"),
    "VEC": RangeKind("lanes"),
}

LOOPS = frozenset(name for name, kind in RANGE_KINDS.items() if kind.becomes == "loop")
REPLICATED = frozenset(RANGE_KINDS) - LOOPS  # kinds that become instances and lanes
GIVEN = frozenset(name for name, kind in RANGE_KINDS.items() if kind.given)

SPACES = ("REG", "PRIV", "SHARED", "GLOBAL")  # of STAGEs: what memory they lie in
