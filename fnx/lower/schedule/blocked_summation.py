"""Blocked summation: the error of a sum grows with the logarithm of its length.

    loops (k,) of 100,000      split("k", 250, "k_s", "k_t"), subtotal("k_s"),
                               split("k_s", 200, "k_s_s", "k_s_t"), subtotal("k_s_s")

Each accumulator adds some tens of terms and is then added to an outer accumulator, which adds as
many of these; in short sums it adds about the square root of the terms (``balanced_chain``). A
chain of n additions would be off by sqrt(n) roundings, or by n if all terms are positive, each in
proportion to the partial sum at that point.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fnx.core.ir import tiling
from fnx.core.ir.tiling import Transform

CHAIN_TERMS = 256  # approximate terms per accumulator
_SINGLE_CHAIN_TERMS = 16  # sums up to this length use a single accumulator


def split_sum(loops: Sequence[tuple[str, int | None]], chain: int = CHAIN_TERMS,
              max_unsplit: int | None = None) -> tuple[list[Transform], dict[str, list[str]]]:
    """Return how to split the loops of a sum, and the loops that each of them becomes.

    Args:
        loops: names and trip counts, outermost first. None: known only at run time,
            so the innermost is split and each iteration of others is a partial sum.
        chain: approximate terms per accumulator.
        max_unsplit: most terms without a split; None: twice ``chain``.

    >>> split_sum([("k", 500)])
    ([], {'k': ['k']})
    >>> split_sum([("k", 1000)])
    ([split('k', 250, 'k_s', 'k_t'), subtotal('k_s')], {'k': ['k_s', 'k_t']})
    >>> steps, loops = split_sum([("c", 60), ("i", 5), ("j", 5)])
    >>> steps
    [split('c', 10, 'c_s', 'c_t'), subtotal('c_s')]
    >>> loops
    {'c': ['c_s', 'c_t'], 'i': ['i'], 'j': ['j']}
    """
    steps: list[Transform] = []
    split_loops: dict[str, list[str]] = {name: [] for name, _ in loops}
    chain_length = 1
    for i, (loop, trip_count) in enumerate(reversed(loops)):
        name, n = loop, trip_count or (chain if i else chain * chain)
        while chain_length * n > (max_unsplit or 2 * chain):
            max_part = chain // chain_length
            if max_part > 1:
                part = _part_length(n, max_part)
                steps.append(tiling.split(name, part, f"{name}_s", f"{name}_t"))
                split_loops[loop].insert(0, f"{name}_t")
                name, n = f"{name}_s", -(-n // part)
            steps.append(tiling.subtotal(name))
            chain_length = 1
        split_loops[loop].insert(0, name)
        chain_length *= n
    return steps, split_loops


def alternative_chains(chain: int) -> list[int]:
    """Return alternative terms per accumulator that keep the error bound of the sum.

    >>> alternative_chains(64), alternative_chains(256), alternative_chains(8)
    ([128, 256, 32], [128], [16, 32])
    """
    return [n for n in (2 * chain, 4 * chain, chain // 2)
            if _SINGLE_CHAIN_TERMS // 2 < n <= CHAIN_TERMS]


def balanced_chain(loops: Sequence[tuple[str, int | None]], max_chain: int) -> int:
    """Return a chain for short sums with about as many partial sums as terms in each; ``max_chain``
    for long sums, half of it if a length is known only at run time.

    >>> (balanced_chain([("k", 64)], 64), balanced_chain([("i", 10), ("j", 20)], 64),
    ...  balanced_chain([("k", 100_000)], 64))
    (8, 16, 64)
    >>> balanced_chain([("k", 12)], 64), balanced_chain([("k", 17)], 64)
    (64, 64)
    """
    lengths = [n for _, n in loops if n is not None]
    total = math.prod(lengths)
    if len(lengths) < len(loops):
        return max_chain // 2
    if not _SINGLE_CHAIN_TERMS <= total <= max_chain * max_chain:
        return max_chain
    chain = 1 << ((total - 1).bit_length() + 1) // 2
    is_padded = all(total % part for part in range(chain // 2 + 1, chain + 1))
    return max_chain if is_padded and total < 2 * _SINGLE_CHAIN_TERMS else chain


def _part_length(n: int, max_part: int) -> int:
    """Return a divisor of n close to ``max_part``, or the length with the least padding."""
    divisor = next((d for d in range(max_part, max_part // 2, -1) if n % d == 0), None)
    return divisor or -(-n // -(-n // max_part))


def flatten(split_loops: dict[str, list[str]]) -> list[str]:
    """Return the loops that ``split_sum`` makes, outermost first."""
    return [x for names in split_loops.values() for x in names]
