"""Loop transforms as plain data: what ``schedule=`` of a hand-written kernel takes.

A schedule is a sequence of transforms. Ranges are named as the kernel names them; operands by
their parameter's name, or by slot. ``lower/schedule/tile.py`` says what each does, and when.

>>> schedule = [split("m", 14, "io", "i"), unroll("i"), parallel("io"), stage("x", at="io")]
>>> schedule[0]
split('m', 14, 'io', 'i')
>>> unroll("i") == vectorize("i")
False
"""

from __future__ import annotations

from fnx.core.errors import KernelError
from fnx.core.record import Record, values
from fnx.core.units import UNITS

SPACES = ("PRIV", "SHARED", "GLOBAL")


class Transform(Record):
    """A transform: printed as the call that makes it."""

    def __repr__(self) -> str:
        return f"{type(self).__name__.lower()}({', '.join(map(repr, values(self)))})"


class Split(Transform):
    range: str
    factor: int
    outer: str
    inner: str


class Order(Transform):
    names: tuple[str, ...]

    def __repr__(self) -> str:
        return f"order({', '.join(map(repr, self.names))})"


class Parallel(Transform):
    range: str
    kind = "PAR"


class Vectorize(Transform):
    range: str
    kind = "VEC"


class Unroll(Transform):
    range: str
    kind = "UNROLL"


class Subtotal(Transform):
    """What sums fold inside each iteration of a loop is folded by itself first."""

    range: str


class Bind(Transform):
    """Given out to groups, or to the threads of a group."""

    range: str
    kind: str

    def __repr__(self) -> str:
        return f"{self.kind.lower()}({self.range!r})"


class StageOperand(Transform):
    operand: str | int
    at: str | None
    space: str
    along: str | None = None
    double: bool = False

    def __repr__(self) -> str:
        along = "" if self.along is None else f", along={self.along!r}"
        double = ", double=True" if self.double else ""
        return f"stage({self.operand!r}, at={self.at!r}, space={self.space!r}{along}{double})"


class Tensorize(Transform):
    """The terms of a sum along a loop are multiplied and added by a matrix unit."""

    range: str
    unit: str
    words: str | None = None

    def __repr__(self) -> str:
        words = "" if self.words is None else f", {self.words!r}"
        return f"tensorize({self.range!r}, {self.unit!r}{words})"


class Collect(Transform):
    """What follows the sums of a tile is a loop over one of its repeated ranges."""

    range: str


class Search(Transform):
    """The schedule is found by timing, which may take so many seconds."""

    seconds: float


Schedule = tuple[Transform, ...]


def split(range: str, factor: int, outer: str = "", inner: str = "") -> Split:
    """Run a range as ceil(extent / factor) times ``factor``: range == outer * factor + inner.

    Args:
        range: the range to split.
        factor: extent of the inner range, a number.
        outer: name of the outer range; by default ``<range>o``.
        inner: name of the inner range; by default ``<range>i``.

    Returns:
        The step, plain data for a list ``schedule=``.

    Raises:
        KernelError: a factor that is no int >= 1.

    >>> split("m", 16)
    split('m', 16, 'mo', 'mi')
    """
    if not isinstance(factor, int) or isinstance(factor, bool) or factor < 1:
        raise KernelError(f"split({range!r}): expected a factor >= 1, got {factor!r}")
    return Split(range, factor, outer or f"{range}o", inner or f"{range}i")


def order(*names: str) -> Order:
    """The loops from the outermost inwards; each range of the kernel once.

    Args:
        names: of ranges, the outermost first.

    Returns:
        The step, plain data for a list ``schedule=``.

    >>> order("mo", "k", "mi")
    order('mo', 'k', 'mi')
    """
    return Order(names)


def parallel(range: str) -> Parallel:
    """Share the iterations of the outermost range among the workers.

    Args:
        range: its name.

    Returns:
        The step, plain data for a list ``schedule=``.

    >>> parallel("mo")
    parallel('mo')
    """
    return Parallel(range)


def grid(range: str) -> Bind:
    """Give each iteration of an outermost range to a group of threads.

    Several ranges may be; a kernel has as many groups as all of them have iterations together. On
    a device without groups of threads it stays a loop.

    Args:
        range: its name.

    Returns:
        The step, plain data for a list ``schedule=``.

    >>> grid("mo")
    grid('mo')
    """
    return Bind(range, "GRID")


def thread(range: str) -> Bind:
    """Give each iteration of a range to a thread of the group.

    A sum over such a range is folded by the threads together, and what is staged in "SHARED"
    memory they fill together. On a device without groups of threads it stays a loop.

    Args:
        range: its name; its extent is a number.

    Returns:
        The step, plain data for a list ``schedule=``.

    >>> split("m", 64), grid("mo"), thread("mi")
    (split('m', 64, 'mo', 'mi'), grid('mo'), thread('mi'))
    """
    return Bind(range, "THREAD")


def vectorize(range: str) -> Vectorize:
    """Make the values of a range the lanes of vectors; its extent is a number.

    Args:
        range: its name.

    Returns:
        The step, plain data for a list ``schedule=``.

    >>> vectorize("ni")
    vectorize('ni')
    """
    return Vectorize(range)


def unroll(range: str) -> Unroll:
    """Repeat the code for each value of a range; its extent is a number.

    Args:
        range: its name.

    Returns:
        The step, plain data for a list ``schedule=``.

    >>> unroll("mi")
    unroll('mi')
    """
    return Unroll(range)


def subtotal(range: str) -> Subtotal:
    """Sum what is inside each iteration of a loop by itself, then add these sums.

    A long chain of additions rounds as often as it has terms; in parts of 100, each of 10,000
    terms is rounded some 200 times. Only sums of floats differ.

    Args:
        range: a loop that sums run over, with another one of theirs inside.

    Returns:
        The step, plain data for a list ``schedule=``.

    >>> split("k", 128), subtotal("ko")
    (split('k', 128, 'ko', 'ki'), subtotal('ko'))
    """
    return Subtotal(range)


def collect(range: str) -> Collect:
    """Keep the sums of a tile in a small buffer, and loop over it with what follows them.

    A tile of 14 by 2 vectors repeats a ``tanh`` of its sums 28 times in the code, which takes long
    to compile. Collected they are repeated for the other ranges of the tile only. It pays where
    more follows than a store.

    Args:
        range: an unrolled range of the result.

    Returns:
        The step, plain data for a list ``schedule=``.

    >>> unroll("mi"), collect("mi")
    (unroll('mi'), collect('mi'))
    """
    return Collect(range)


def stage(operand: str | int, at: str | None = None, space: str = "PRIV",
          along: str | None = None, double: bool = False) -> StageOperand:
    """Copy what the kernel reads of an operand into a small buffer, in the order of its loops.

    What is computed from that operand alone goes along: it is computed once, when it is copied.

    Args:
        operand: an input's name or slot.
        at: the loop in which to fill the buffer, each time round; None: at the start.
        space: "PRIV", a worker's own; "SHARED", of a group of threads, which fill it together;
            "GLOBAL", filled once by all workers and read by all.
        along: only what is read along this loop (or those that it was split into, by their usual
            names), of an operand that is read in several ways, as in ``x @ x``; None: all of it.
        double: in "SHARED" memory, two buffers: what the next iteration of the loop reads is on
            its way while this one computes. Where they have no room there is one.

    Returns:
        The step, plain data for a list ``schedule=``.

    Raises:
        KernelError: another space, or two buffers elsewhere.

    >>> stage("x", at="mo")
    stage('x', at='mo', space='PRIV')
    """
    if space not in SPACES:
        raise KernelError(f"stage({operand!r}): expected a space of {', '.join(SPACES)}, "
                          f"got {space!r}")
    if double and (space != "SHARED" or at is None):
        raise KernelError(f"stage({operand!r}): expected space=\"SHARED\" and a loop with "
                          f"double=True, got {space!r} at {at!r}")
    return StageOperand(operand, at, space, along, double)


def tensorize(range: str, unit: str, words: str | None = None) -> Tensorize:
    """Multiply and add the terms of a sum along a loop by a matrix unit.

    Its extent is how many terms a word of the unit holds: 2 of bfloat16, 4 of int8. The factors
    are of the types that the unit takes, as they are or converted to that of the sum.

    Args:
        range: the loop, inside of all others.
        unit: the name of a unit that the target has (``fnx.core.units.UNITS``).
        words: the loop around it, over the words of one instruction of a unit that takes several.

    Returns:
        The step, plain data for a list ``schedule=``.

    Raises:
        KernelError: no unit has this name.

    >>> split("k", 2, "kw", "ke"), tensorize("ke", "dpbf16ps")
    (split('k', 2, 'kw', 'ke'), tensorize('ke', 'dpbf16ps'))
    """
    if unit not in UNITS:
        raise KernelError(f"tensorize({range!r}): expected a unit of {', '.join(UNITS)}, "
                          f"got {unit!r}")
    return Tensorize(range, unit, words)
