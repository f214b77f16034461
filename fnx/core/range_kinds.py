"""Kinds of ranges: what a loop of a tiled kernel becomes. A target says which of them it has.

    kind      becomes      iterations
    SEQ       a loop       in order
    UNROLL    instances    straight code, one after the other
    VEC       lanes        of vectors
    PAR       a loop       parts of it are given out, to workers of the cpu
    GRID      a number     one to each group of threads of a GPU
    THREAD    a number     one to each thread of a group

Where iterations are given out the program is told which are its own: of PAR the bounds of a part
(PART, two a range), of GRID and THREAD one number (ID). PAR and GRID are outermost, every STORE
has them, and nothing folds or fills over them. Threads of a group work together: each statement
may have THREAD ranges of its own, a STAGE in SHARED memory is filled over one, and they fold over
one by such stages (lower/program/threads.py).

>>> RANGE_KINDS["PAR"].given, sorted(LOOPS), sorted(NUMBERED)
(True, ['GRID', 'PAR', 'SEQ', 'THREAD'], ['GRID', 'THREAD'])
"""

from __future__ import annotations

from fnx.core.record import Record


class RangeKind(Record):
    """A row: what a range becomes.

    Attributes:
        becomes: "loop", "instances" or "lanes".
        given: whether its iterations are given out, and all that is computed is inside.
        numbered: whether a program runs one iteration, and is told its number.
        most: how many ranges of this kind a kernel may have; None: any number.
    """

    becomes: str
    given: bool = False
    numbered: bool = False
    most: int | None = None


RANGE_KINDS = {
    "GRID": RangeKind("loop", given=True, numbered=True),
    "THREAD": RangeKind("loop", numbered=True),
    "PAR": RangeKind("loop", given=True, most=1),
    "SEQ": RangeKind("loop"),
    "UNROLL": RangeKind("instances"),
    "VEC": RangeKind("lanes"),
}

LOOPS = frozenset(name for name, kind in RANGE_KINDS.items() if kind.becomes == "loop")
OF_WORKERS = next(name for name, kind in RANGE_KINDS.items() if kind.most == 1)  # share them
REPLICATED = frozenset(RANGE_KINDS) - LOOPS  # kinds that become instances and lanes
GIVEN = frozenset(name for name, kind in RANGE_KINDS.items() if kind.given)
NUMBERED = frozenset(name for name, kind in RANGE_KINDS.items() if kind.numbered)

SPACES = ("REG", "PRIV", "SHARED", "GLOBAL")  # of STAGEs: what memory they lie in
