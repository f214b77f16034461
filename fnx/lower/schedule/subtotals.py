"""Blocked summation: the error of a sum grows with the logarithm of its length.

    loops (k,) of 100,000      split("k", 250, "k_s", "k_t"), subtotal("k_s"),
                               split("k_s", 200, "k_s_s", "k_s_t"), subtotal("k_s_s")

Each accumulator adds some tens of terms and is then added to an outer accumulator, which adds as
many of these; in short sums it adds about the square root of the terms (``even``). A chain of n
additions would be off by sqrt(n) roundings, or by n if all terms are positive, each in proportion
to the partial sum at that point.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fnx.core import tiling
from fnx.core.tiling import Transform

CHAIN = 256  # approximate terms per accumulator
_SHORT = 16  # sums up to this length use a single accumulator


def in_parts(loops: Sequence[tuple[str, int | None]], chain: int = CHAIN,
             longest: int | None = None) -> tuple[list[Transform], dict[str, list[str]]]:
    """Return how to split the loops of a sum, and the loops that each of them becomes.

    Args:
        loops: names and trip counts, outermost first. None: known only at run time,
            so the innermost is split and each iteration of others is a partial sum.
        chain: approximate terms per accumulator.
        longest: most terms without a split; None: twice ``chain``.

    >>> in_parts([("k", 500)])
    ([], {'k': ['k']})
    >>> in_parts([("k", 1000)])
    ([split('k', 250, 'k_s', 'k_t'), subtotal('k_s')], {'k': ['k_s', 'k_t']})
    >>> steps, loops = in_parts([("c", 60), ("i", 5), ("j", 5)])
    >>> steps
    [split('c', 10, 'c_s', 'c_t'), subtotal('c_s')]
    >>> loops
    {'c': ['c_s', 'c_t'], 'i': ['i'], 'j': ['j']}
    """
    steps: list[Transform] = []
    out: dict[str, list[str]] = {name: [] for name, _ in loops}
    inside = 1
    for i, (whole, known) in enumerate(reversed(loops)):
        name, n = whole, known or (chain if i else chain * chain)
        while inside * n > (longest or 2 * chain):
            most = chain // inside
            if most > 1:
                part = _part(n, most)
                steps.append(tiling.split(name, part, f"{name}_s", f"{name}_t"))
                out[whole].insert(0, f"{name}_t")
                name, n = f"{name}_s", -(-n // part)
            steps.append(tiling.subtotal(name))
            inside = 1
        out[whole].insert(0, name)
        inside *= n
    return steps, out


def other_chains(chain: int) -> list[int]:
    """Return alternative terms per accumulator that keep the error bound of the sum.

    >>> other_chains(64), other_chains(256), other_chains(8)
    ([128, 256, 32], [128], [16, 32])
    """
    return [n for n in (2 * chain, 4 * chain, chain // 2) if _SHORT // 2 < n <= CHAIN]


def even(loops: Sequence[tuple[str, int | None]], most: int) -> int:
    """Return a chain for short sums with about as many partial sums as terms in each; ``most`` for
    long sums, half of it if a length is known only at run time.

    >>> even([("k", 64)], 64), even([("i", 10), ("j", 20)], 64), even([("k", 100_000)], 64)
    (8, 16, 64)
    >>> even([("k", 12)], 64), even([("k", 17)], 64)
    (64, 64)
    """
    lengths = [n for _, n in loops if n is not None]
    total = math.prod(lengths)
    if len(lengths) < len(loops):
        return most // 2
    if not _SHORT <= total <= most * most:
        return most
    chain = 1 << ((total - 1).bit_length() + 1) // 2
    masked = all(total % part for part in range(chain // 2 + 1, chain + 1))
    return most if masked and total < 2 * _SHORT else chain


def _part(n: int, most: int) -> int:
    """Return a divisor of n close to ``most``, or the length with the least padding."""
    divisor = next((d for d in range(most, most // 2, -1) if n % d == 0), None)
    return divisor or -(-n // -(-n // most))
