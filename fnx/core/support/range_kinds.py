"""Kinds of ranges: what a loop of a tiled kernel becomes. Each target supports some of them.

    kind      becomes      iterations
    SEQ       a loop       in order
    UNROLL    instances    straight-line code, one after the other
    VEC       lanes        of vectors
    PAR       a loop       its parts are mapped to workers of the cpu
    GRID      a number     mapped to groups of threads of a GPU
    THREAD    a number     mapped to threads of a group

A program gets its share of parallel iterations as values: the bounds of a part for PAR
(PARALLEL_RANGE, two per range), one number for GRID and THREAD (ID). PAR and GRID are outermost,
every STORE has them, and no REDUCE or STAGE is over them. Threads of a group cooperate: each
statement may have THREAD ranges of its own, a STAGE in SHARED memory is filled over one, and such
stages serve to reduce over one (lower/emit/lower_threads.py).

>>> RANGE_KINDS["PAR"].is_parallel, sorted(LOOP_KINDS), sorted(ID_KINDS)
(True, ['GRID', 'PAR', 'SEQ', 'THREAD'], ['GRID', 'THREAD'])
"""

from __future__ import annotations

from fnx.core.support.record import Record


class RangeKind(Record):
    """A kind of ranges.

    Attributes:
        lowered_to: "loop", "instances" or "lanes".
        is_parallel: whether its iterations run in parallel, and all computation is inside the
            range.
        has_id: whether a program runs a single iteration, and gets its number.
        max_ranges: maximum number of ranges of this kind in a kernel; None: any number.
    """

    lowered_to: str
    is_parallel: bool = False
    has_id: bool = False
    max_ranges: int | None = None


RANGE_KINDS = {
    "GRID": RangeKind("loop", is_parallel=True, has_id=True),
    "THREAD": RangeKind("loop", has_id=True),
    "PAR": RangeKind("loop", is_parallel=True, max_ranges=1),
    "SEQ": RangeKind("loop"),
    "UNROLL": RangeKind("instances"),
    "VEC": RangeKind("lanes"),
}

LOOP_KINDS = frozenset(name for name, kind in RANGE_KINDS.items() if kind.lowered_to == "loop")
WORKER_KIND = next(name for name, kind in RANGE_KINDS.items() if kind.max_ranges == 1)  # PAR
REPLICATED_KINDS = frozenset(RANGE_KINDS) - LOOP_KINDS  # kinds that become instances or lanes
PARALLEL_KINDS = frozenset(name for name, kind in RANGE_KINDS.items() if kind.is_parallel)
ID_KINDS = frozenset(name for name, kind in RANGE_KINDS.items() if kind.has_id)

SPACES = ("REG", "PRIV", "SHARED", "GLOBAL")  # memory spaces of STAGEs
