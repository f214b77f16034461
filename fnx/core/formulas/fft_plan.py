"""The plan of a discrete Fourier transform: its steps, their radices, and tables of twiddles.

A transform of length n = n1 * n2 along the last axis has two steps. Each transforms the columns
of a matrix, so vectors lie across columns, and no step shuffles the elements of a row:

    x[n1, n2]   columns of length n1, times w(n)^(k1 * j2), written transposed   ->  [n2, n1]
    [n2, n1]    columns of length n2                                             ->  X[k2, k1]

A step runs stages of radix 2, 3, 4, 5, 7, 8, 11 or 13 in Stockham order: stage by stage, r
elements that are a stride apart become r adjacent blocks, so the result is in order at the end.

    n       steps           radices
    64      8, 8            (8) and (8)
    1000    25, 40          (5, 5) and (8, 5)
    4096    64, 64          (8, 8) and (8, 8)

Many rows of a short length are one step: 16 of them are transposed as they are loaded and stored.

A length with a larger prime factor has no plan (numpy/fft_core.py uses Bluestein's algorithm).

>>> [(step.n, step.inner) for step in plan(1000, 1).steps]
[(25, 40), (40, 25)]
"""

from __future__ import annotations

import math

import numpy as np

from fnx.core.ir import op_args
from fnx.core.ir.dtypes import NDArray
from fnx.core.support.record import Record

LANES = 16  # tables are padded to vectors of this many elements
MAX_STEP = 2048  # the longest column: its tile stays in the second-level cache
MAX_ROWS = 2048  # the longest rows that are transformed 16 at a time
MIN_ROWS = 16  # rows from which they are transformed as many at a time
MIN_INNER = 8  # columns from which a step needs no transposition
_MAX_SHORT = 15  # the longest transform that is one step of a single column
_PRIMES = (3, 5, 7, 11, 13)


class Step(Record):
    """Transforms of columns of length ``n``, of which ``inner`` lie side by side.

    ``table`` is the offset of the twiddles of its stages. ``twiddles`` is that of the twiddles
    between this step and the next; -1: there are none, and columns stay columns.
    """

    n: int
    inner: int
    table: int
    twiddles: int = -1


class Plan(Record):
    """The steps of a transform, and the radices of their program; ``rows`` is the one step that
    transforms many short rows instead."""

    steps: tuple[Step, ...]
    kinds: tuple[int, ...]
    rows: Step | None


def factors(n: int) -> list[int] | None:
    """Return the radices of a length, the largest last; None: it has a larger prime factor.

    >>> factors(1000), factors(64), factors(128), factors(34)
    ([5, 5, 5, 8], [8, 8], [4, 4, 8], None)
    """
    out = []
    for p in _PRIMES:
        while n % p == 0:
            n //= p
            out.append(p)
    twos = n.bit_length() - 1
    if n != 1 << twos:
        return None
    if twos % 3 == 1:
        out += [2] if twos == 1 else [4, 4]
        twos -= 1 if twos == 1 else 4
    elif twos % 3 == 2:
        out.append(4)
        twos -= 2
    return sorted([*out, *[8] * (twos // 3)])


def radices(n: int) -> tuple[int, ...]:
    """Return the radices of the stages in order.

    >>> radices(40), radices(128)
    ((8, 5), (8, 4, 4))
    """
    primes = factors(n)
    assert primes is not None
    return tuple(sorted(primes, reverse=True))


def kinds(*lengths: int) -> tuple[int, ...]:
    """Return the radices of a program for steps of these lengths. Radices 4 and 8 come together, so
    that most lengths share a program with others; an odd one is long code for a few lengths.

    >>> kinds(40, 25), kinds(64, 64)
    ((8, 5, 4), (8, 4))
    """
    used = {r for n in lengths for r in radices(n)}
    return tuple(sorted(used | {4, 8} if used & {4, 8} else used, reverse=True))


def split(n: int) -> int:
    """Return the length of the first of two steps, 0 if a transform is one step.

    >>> split(4096), split(1 << 22), split(13), split(1000)
    (64, 2048, 0, 25)
    """
    if n <= _MAX_SHORT:
        return 0
    best, best_cost = 0, n * LANES * _stages(n) if n <= MAX_STEP else math.inf
    for n1 in _divisors(n):
        if 1 < n1 < n and n1 <= MAX_STEP:
            n2 = n // n1
            cost = n1 * padded(n2) * (_stages(n1) + 2.5) + n2 * padded(n1) * _stages(n2)
            if n2 > MAX_STEP:
                cost *= 4
            if cost < best_cost:
                best, best_cost = n1, cost
    return best


def _divisors(n: int) -> list[int]:
    """Return the divisors of a length, ascending.

    >>> _divisors(20)
    [1, 2, 4, 5, 10, 20]
    """
    divisors = {1}
    for radix in factors(n) or ():
        for prime in {2: (2,), 4: (2, 2), 8: (2, 2, 2)}.get(radix, (radix,)):
            divisors |= {d * prime for d in divisors}
    return sorted(divisors)


def _stages(n: int) -> float:
    """Return the relative time per element of a column."""
    return sum([_RADIX_COST[r] for r in factors(n) or ()])


_RADIX_COST = {2: 1.0, 3: 1.3, 4: 1.2, 5: 1.6, 7: 2.0, 8: 1.5, 11: 3.0, 13: 3.6}


def padded(n: int) -> int:
    """Return a number of columns, rounded up to whole vectors."""
    return -(-n // LANES) * LANES


def plan(n: int, inner: int) -> Plan | None:
    """Return the plan of transforms of length n, ``inner`` apart; None: n has a large prime factor.

    A step whose ``inner`` does not follow from the one before it comes after a transposition
    (lower/tensor/plan_fft.py).
    """
    if factors(n) is None:
        return None
    steps: list[Step] = []
    offset = _add_steps(n, inner, steps)
    by_rows = n <= MAX_ROWS and inner < MIN_INNER
    return Plan(tuple(steps), kinds(*[s.n for s in steps]),
                Step(n, 1, offset) if by_rows else None)


def is_column(n: int, inner: int) -> bool:
    """Whether a transform is one step."""
    return n <= MAX_STEP and (inner >= MIN_INNER or split(n) == 0)


def _add_steps(n: int, inner: int, steps: list[Step]) -> int:
    """Append the steps, and return the end of their tables."""
    offset = _end(steps[-1]) if steps else 0
    if is_column(n, inner):
        steps.append(Step(n, inner, offset))
    else:
        n1 = split(n)
        steps.append(Step(n1, n // n1, offset, offset + stage_table_size(n1)))
        _add_steps(n // n1, n1, steps)
    return _end(steps[-1])


def _end(step: Step) -> int:
    if step.twiddles < 0:
        return step.table + stage_table_size(step.n)
    q = twiddle_rows(step.n)
    return step.twiddles + 2 * (q + step.n // q) * padded(step.inner)


def twiddle_rows(n: int) -> int:
    """Return the number of rows of the first factor of the twiddles between two steps: a divisor
    of n near its root.

    >>> twiddle_rows(64), twiddle_rows(40)
    (8, 5)
    """
    return max([d for d in range(1, math.isqrt(n) + 1) if n % d == 0])


def stage_table_size(n: int) -> int:
    """Return the number of elements of the twiddles of all stages.

    >>> stage_table_size(64)
    126
    """
    size = 0
    for r in radices(n):
        n //= r
        size += 2 * n * (r - 1)
    return size


def roots(t: NDArray, n: int) -> NDArray:
    """Return exp(-2j * pi * t / n), reduced to the first octant before it is computed, so that it
    is exact to half an ulp or little more.

    >>> roots(np.arange(4), 4)
    array([ 1.+0.j, -0.-1.j, -1.+0.j,  0.+1.j])
    """
    t = np.asarray(t) % n
    eighth = 8 * t
    octant = eighth // n
    rest = np.where(octant % 2 == 0, eighth - octant * n, (octant + 1) * n - eighth)
    angle = rest * (np.pi / 4 / n)
    c, s = np.cos(angle), np.sin(angle)
    swap = (octant + 1) // 2 % 2 == 1
    c, s = np.where(swap, s, c), np.where(swap, c, s)
    real = np.where((octant >= 2) & (octant < 6), -c, c)
    imag = np.where(octant < 4, -s, s)
    out: NDArray = real + 1j * (imag + 0.0)
    return out


def _stage_table(n: int) -> list[NDArray]:
    """Return the twiddles w(n)^(p * k) of each stage, as rows p of (k, re or im) for k >= 1."""
    parts = []
    for r in radices(n):
        m = n // r
        w = roots(np.arange(m)[:, None] * np.arange(1, r), n)
        parts.append(np.stack([w.real, w.imag], -1).reshape(-1))
        n = m
    return parts


def _step_table(step: Step) -> list[NDArray]:
    """Return the twiddles between steps: w^(c * i) for i < q and w^(c * j * q), for columns c."""
    q = twiddle_rows(step.n)
    columns = np.minimum(np.arange(padded(step.inner)), step.inner - 1)
    parts = []
    for count, stride in ((q, 1), (step.n // q, q)):
        w = roots(np.arange(count)[:, None] * stride * columns, step.n * step.inner)
        parts.append(np.stack([w.real, w.imag], 1).reshape(-1))
    return parts


def table_size(n: int, inner: int, real: bool = False) -> int:
    """Return the length of the table of a plan; -1: there is none. That of a real transform of
    2 n numbers ends with its roots.

    >>> table_size(2, 1), table(1000, 1).size == table_size(1000, 1), table_size(34, 1)
    (4, True, -1)
    """
    whole = plan(n, inner)
    return -1 if whole is None else _end(_all_steps(whole)[-1]) + 2 * (n + 1) * real


def _all_steps(whole: Plan) -> list[Step]:
    return [*whole.steps, *([whole.rows] if whole.rows else [])]


def fits(arg: op_args.FftStep, size: int) -> bool:
    """Whether the tables of a step lie inside a table of ``size`` elements."""
    assert arg.lengths is not None
    outer, n, inner = arg.lengths
    if outer < 1 or inner < 1 or not all(r in _RADIX_COST for r in arg.kinds) or \
            radices(n) != arg.radices or arg.table < 0:
        return False
    ends = [arg.table + stage_table_size(n)]
    if arg.twiddles >= 0:
        ends.append(_end(Step(n, inner, arg.table, arg.twiddles)))
    if arg.roots >= 0:
        ends.append(arg.roots + 2 * (n + 1))
    return max(ends) <= size and not (arg.rows and arg.twiddles >= 0) and \
        (arg.rows or arg.roots < 0)


def table(n: int, inner: int, real: bool = False) -> NDArray:
    """Return the table of a plan in float64. With ``real`` it ends with the roots
    exp(-2i pi k / 2n), k <= n, as pairs."""
    parts: list[NDArray] = [np.zeros(0)]
    whole = plan(n, inner)
    for step in () if whole is None else _all_steps(whole):
        parts += _stage_table(step.n)
        if step.twiddles >= 0:
            parts += _step_table(step)
    if real:
        w = roots(np.arange(n + 1), 2 * n)
        parts.append(np.stack([w.real, w.imag], 1).reshape(-1))
    return np.concatenate(parts)
