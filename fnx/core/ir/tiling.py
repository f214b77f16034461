"""Schedule transforms as plain data, for ``schedule=`` of a user-written kernel.

A schedule is a sequence of transforms. Ranges have the names that the kernel gives them; operands
are named by parameter or by slot. ``lower/schedule/tile.py`` applies the transforms.

>>> schedule = [split("m", 14, "io", "i"), unroll("i"), parallel("io"), stage("x", at="io")]
>>> schedule[0]
split('m', 14, 'io', 'i')
>>> unroll("i") == vectorize("i")
False
"""

from __future__ import annotations

from fnx.core.ir.matrix_units import UNITS
from fnx.core.support.errors import KernelError
from fnx.core.support.record import Record, values

SPACES = ("PRIV", "SHARED", "GLOBAL")


class Transform(Record):
    """A schedule transform, printed as the call that makes it."""

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
    """Blocked summation: sum inside each iteration of a loop first, then add these sums."""

    range: str


class Bind(Transform):
    """Map a range to groups of threads, or to the threads of a group."""

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
    over: tuple[str, ...] = ()

    def __repr__(self) -> str:
        along = "" if self.along is None else f", along={self.along!r}"
        double = ", double=True" if self.double else ""
        over = f", over={self.over!r}" if self.over else ""
        return f"stage({self.operand!r}, at={self.at!r}, space={self.space!r}{along}{double}{over})"


class Tensorize(Transform):
    """Multiply and add the terms of a sum along a loop with a matrix unit."""

    range: str
    unit: str
    words: str | None = None

    def __repr__(self) -> str:
        words = "" if self.words is None else f", {self.words!r}"
        return f"tensorize({self.range!r}, {self.unit!r}{words})"


class Collect(Transform):
    """Rolled epilogue: loop over an unrolled range of a tile for what follows its sums."""

    range: str


class Search(Transform):
    """Search for a schedule by timing candidates, for at most so many seconds."""

    seconds: float


Schedule = tuple[Transform, ...]


def split(range: str, factor: int, outer: str = "", inner: str = "") -> Split:
    """Split a range into two nested ones: range == outer * factor + inner.

    The outer range has the extent ceil(extent / factor), the inner one ``factor``.

    Args:
        range: the range to split.
        factor: constant extent of the inner range.
        outer: name of the outer range; by default ``<range>o``.
        inner: name of the inner range; by default ``<range>i``.

    Returns:
        The transform, plain data for a list ``schedule=``.

    Raises:
        KernelError: the factor is no int >= 1.

    >>> split("m", 16)
    split('m', 16, 'mo', 'mi')
    """
    if not isinstance(factor, int) or isinstance(factor, bool) or factor < 1:
        raise KernelError(f"split({range!r}): expected a factor >= 1, got {factor!r}")
    return Split(range, factor, outer or f"{range}o", inner or f"{range}i")


def order(*names: str) -> Order:
    """Reorder the loops; each range of the kernel occurs once.

    Args:
        names: names of ranges, the outermost first.

    Returns:
        The transform, plain data for a list ``schedule=``.

    >>> order("mo", "k", "mi")
    order('mo', 'k', 'mi')
    """
    return Order(names)


def parallel(range: str) -> Parallel:
    """Distribute the iterations of the outermost range over the workers.

    Args:
        range: its name.

    Returns:
        The transform, plain data for a list ``schedule=``.

    >>> parallel("mo")
    parallel('mo')
    """
    return Parallel(range)


def grid(range: str) -> Bind:
    """Map each iteration of an outermost range to a group of threads.

    Several ranges may be mapped; the number of groups is the product of their extents. On a
    device without groups of threads the range stays a loop.

    Args:
        range: its name.

    Returns:
        The transform, plain data for a list ``schedule=``.

    >>> grid("mo")
    grid('mo')
    """
    return Bind(range, "GRID")


def thread(range: str) -> Bind:
    """Map each iteration of a range to a thread of the group.

    The threads cooperate to reduce over such a range, and to fill stages in "SHARED" memory. On a
    device without groups of threads the range stays a loop.

    Args:
        range: its name; its extent is constant.

    Returns:
        The transform, plain data for a list ``schedule=``.

    >>> split("m", 64), grid("mo"), thread("mi")
    (split('m', 64, 'mo', 'mi'), grid('mo'), thread('mi'))
    """
    return Bind(range, "THREAD")


def vectorize(range: str) -> Vectorize:
    """Map the iterations of a range to the lanes of vectors.

    Args:
        range: its name; its extent is constant.

    Returns:
        The transform, plain data for a list ``schedule=``.

    >>> vectorize("ni")
    vectorize('ni')
    """
    return Vectorize(range)


def unroll(range: str) -> Unroll:
    """Unroll a range completely.

    Args:
        range: its name; its extent is constant.

    Returns:
        The transform, plain data for a list ``schedule=``.

    >>> unroll("mi")
    unroll('mi')
    """
    return Unroll(range)


def subtotal(range: str) -> Subtotal:
    """Blocked summation: sum inside each iteration of a loop first, then add these sums.

    A long chain of additions rounds once per term; in blocks of 100, each of 10,000 terms is
    rounded some 200 times. Only sums of floats change.

    Args:
        range: a loop of a sum that has another loop of the same sum inside.

    Returns:
        The transform, plain data for a list ``schedule=``.

    >>> split("k", 128), subtotal("ko")
    (split('k', 128, 'ko', 'ki'), subtotal('ko'))
    """
    return Subtotal(range)


def collect(range: str) -> Collect:
    """Roll the epilogue: store the sums of a tile to a small buffer, and loop over it.

    A tile of 14 by 2 vectors repeats a ``tanh`` of its sums 28 times in the code, which takes long
    to compile. With a rolled epilogue it is repeated only for the other ranges of the tile. This
    pays if the epilogue is more than a store.

    Args:
        range: an unrolled range of the result.

    Returns:
        The transform, plain data for a list ``schedule=``.

    >>> unroll("mi"), collect("mi")
    (unroll('mi'), collect('mi'))
    """
    return Collect(range)


def stage(operand: str | int, at: str | None = None, space: str = "PRIV",
          along: str | None = None, double: bool = False,
          over: tuple[str, ...] = ()) -> StageOperand:
    """Copy what the kernel reads of an operand to a small buffer (packing), in loop order.

    Values that depend only on that operand are computed once, during the copy.

    Args:
        operand: an input's name or slot.
        at: the loop in each iteration of which the buffer is filled; None: at the start.
        space: "PRIV", private to a worker; "SHARED", shared by a group of threads, which fill it
            together; "GLOBAL", filled once by all workers and read by all.
        along: restricts the stage to reads along this loop (or the loops that it was split into,
            by their default names), for an operand that is read in several ways, as in
            ``x @ x``; None: all reads.
        double: double buffering in "SHARED" memory: the data for the next iteration of the loop
            are loaded while this one computes. If there is no room for two buffers, one is used.
        over: the loops of what is staged, if it is computed from several operands, as a factor
            ``x[i] * y[i, k]`` of a product; empty: it is what depends only on the operand.

    Returns:
        The transform, plain data for a list ``schedule=``.

    Raises:
        KernelError: an unknown space, or double buffering elsewhere.

    >>> stage("x", at="mo")
    stage('x', at='mo', space='PRIV')
    """
    if space not in SPACES:
        raise KernelError(f"stage({operand!r}): expected a space of {', '.join(SPACES)}, "
                          f"got {space!r}")
    if double and (space != "SHARED" or at is None):
        raise KernelError(f"stage({operand!r}): expected space=\"SHARED\" and a loop with "
                          f"double=True, got {space!r} at {at!r}")
    return StageOperand(operand, at, space, along, double, tuple(over))


def tensorize(range: str, unit: str, words: str | None = None) -> Tensorize:
    """Multiply and add the terms of a sum along a loop with a matrix unit.

    The extent of the loop is the number of terms in a 32-bit word of the unit: 2 of bfloat16, 4 of
    int8. The factors have the types that the unit accepts, possibly converted to that of the sum.

    Args:
        range: the innermost loop.
        unit: the name of a unit of the target (``fnx.core.ir.matrix_units.UNITS``).
        words: the loop around it, over the words of one instruction, for a unit that takes several.

    Returns:
        The transform, plain data for a list ``schedule=``.

    Raises:
        KernelError: there is no unit of this name.

    >>> split("k", 2, "kw", "ke"), tensorize("ke", "dpbf16ps")
    (split('k', 2, 'kw', 'ke'), tensorize('ke', 'dpbf16ps'))
    """
    if unit not in UNITS:
        raise KernelError(f"tensorize({range!r}): expected a unit of {', '.join(UNITS)}, "
                          f"got {unit!r}")
    return Tensorize(range, unit, words)
