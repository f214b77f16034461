"""The plan of a discrete Fourier transform: its steps, their radices, and tables of twiddles.

A transform of length n = n1 * n2 along the last axis has two steps. Each transforms the columns
of a matrix, so vectors lie across columns, and no step shuffles the elements of a row:

    x[n1, n2]   columns of length n1, times w(n)^(k1 * j2), written transposed   ->  [n2, n1]
    [n2, n1]    columns of length n2                                             ->  X[k2, k1]

A step runs stages of radix 2, 3, 4, 5, 7, 8, 11 or 13 in Stockham order: stage by stage, r
elements that are a stride apart become r adjacent blocks, so the result is in order at the end.

    n       steps           radices
    64      8, 8            (8) and (8)
    1000    40, 25          (8, 5) and (5, 5)
    4096    64, 64          (8, 8) and (8, 8)

A length with a larger prime factor has no plan (lax/fft_core.py uses Bluestein's algorithm).

>>> plan(1000, 1)
(Step(n=40, inner=25, table=0, twiddles=358), Step(n=25, inner=40, table=1318, twiddles=-1))
"""

from __future__ import annotations

import functools
import math

import numpy as np

from fnx.core.ir.dtypes import NDArray
from fnx.core.support.record import Record

LANES = 16  # tables are padded to vectors of this many elements
MAX_STEP = 2048  # the longest column: its tile stays in the second-level cache
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


def radices(n: int) -> tuple[int, tuple[int, ...], int]:
    """Return the radices of the first stage, of those between, and of the last one (0: there is
    one stage).

    >>> radices(8), radices(40), radices(1000)
    ((8, (), 0), (5, (), 8), (5, (5, 5), 8))
    """
    found = factors(n)
    assert found is not None
    if len(found) <= 1:
        return (n, (), 0)
    *rest, first, last = found
    return first, tuple(sorted(rest, reverse=True)), last


@functools.lru_cache(maxsize=1024)
def split(n: int) -> int:
    """Return the length of the first of two steps, 0 if a transform is one step.

    >>> split(4096), split(1 << 22), split(13), split(1000)
    (64, 2048, 0, 40)
    """
    if n <= _MAX_SHORT:
        return 0
    best, best_cost = 0, n * LANES * _stages(n) if n <= MAX_STEP else math.inf
    for n1 in range(2, min(n, MAX_STEP + 1)):
        if n % n1 == 0:
            n2 = n // n1
            cost = n1 * _padded(n2) * (_stages(n1) + 2.5) + n2 * _padded(n1) * _stages(n2)
            if n2 > MAX_STEP:
                cost *= 4
            if cost < best_cost:
                best, best_cost = n1, cost
    return best


def _stages(n: int) -> float:
    """Return the relative time per element of a column."""
    return sum([_RADIX_COST[r] for r in factors(n) or ()])


_RADIX_COST = {2: 1.0, 3: 1.3, 4: 1.2, 5: 1.6, 7: 2.0, 8: 1.5, 11: 3.0, 13: 3.6}


def _padded(n: int) -> int:
    return -(-n // LANES) * LANES


@functools.lru_cache(maxsize=256)
def plan(n: int, inner: int) -> tuple[Step, ...] | None:
    """Return the steps of a transform of length n, ``inner`` apart; None: n has no plan.

    A step whose ``inner`` does not follow from the one before it comes after a transposition
    (lower/tensor/plan_fft.py).
    """
    if factors(n) is None:
        return None
    steps: list[Step] = []
    _add_steps(n, inner, steps)
    return tuple(steps)


def is_column(n: int, inner: int) -> bool:
    """Whether a transform is one step."""
    return n <= MAX_STEP and (inner >= MIN_INNER or split(n) == 0)


def _add_steps(n: int, inner: int, steps: list[Step]) -> None:
    start = steps[-1] if steps else None
    offset = 0 if start is None else _end(start)
    if is_column(n, inner):
        steps.append(Step(n, inner, offset))
        return
    n1 = split(n)
    between = offset + stage_table_size(n1)
    steps.append(Step(n1, n // n1, offset, between))
    _add_steps(n // n1, n1, steps)


def _end(step: Step) -> int:
    if step.twiddles < 0:
        return step.table + stage_table_size(step.n)
    q, r = _last_stage(step.n)
    return step.twiddles + 2 * (q + r) * _padded(step.inner)


def _last_stage(n: int) -> tuple[int, int]:
    """Return (n / r, r) for the radix r of the last stage."""
    first, _, last = radices(n)
    r = last or first
    return n // r, r


def stage_table_size(n: int) -> int:
    """Return the number of elements of the twiddles of all stages but the last.

    >>> stage_table_size(64)
    112
    """
    first, middle, last = radices(n)
    size = 0
    for r in (first, *middle) if last else ():
        n //= r
        size += 2 * n * (r - 1)
    return size


def roots(t: NDArray, n: int) -> NDArray:
    """Return exp(-2j * pi * t / n), reduced to the first octant before it is computed, so that it
    is exact to half an ulp or little more.

    >>> roots(np.arange(4), 4)
    array([ 1.+0.j,  0.-1.j, -1.+0.j, -0.+1.j])
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
    first, middle, last = radices(n)
    parts = []
    for r in (first, *middle) if last else ():
        m = n // r
        w = roots(np.arange(m)[:, None] * np.arange(1, r), n)
        parts.append(np.stack([w.real, w.imag], -1).reshape(-1))
        n = m
    return parts


def _step_table(step: Step) -> list[NDArray]:
    """Return the twiddles between steps: w^(c * q) and w^(c * k * n / r) for columns c."""
    q, r = _last_stage(step.n)
    columns = np.minimum(np.arange(_padded(step.inner)), step.inner - 1)
    parts = []
    for count, stride in ((q, 1), (r, q)):
        w = roots(np.arange(count)[:, None] * stride * columns, step.n * step.inner)
        parts.append(np.stack([w.real, w.imag], 1).reshape(-1))
    return parts


@functools.lru_cache(maxsize=64)
def table(n: int, inner: int) -> NDArray:
    """Return the table of a plan in float64."""
    parts: list[NDArray] = [np.zeros(0)]
    for step in plan(n, inner) or ():
        parts += _stage_table(step.n)
        if step.twiddles >= 0:
            parts += _step_table(step)
    return np.concatenate(parts)
