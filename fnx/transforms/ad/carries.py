"""Which carries of a loop are active: fixpoints over what each result of a body depends on.

    carries a, b    a' = a * w    b' = b + a        b' depends on {a, b}, a' on {a, w}

    active in w:                  {a, b}            a' reads w, and b' reads a
    with a cotangent of b:        {a, b}            b' passes one to a; with one of a: {a}

>>> depends = [frozenset({0, 1}), frozenset({1, 2})]    # of the PARAMs w, a, b
>>> sorted(active(depends, CarryPlaces(1, 2), {0}))
[0, 1, 2]
>>> sorted(pulled(depends, CarryPlaces(1, 2), {0})), sorted(pulled(depends, CarryPlaces(1, 2), {1}))
([0], [0, 1])
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fnx.core.record import Record

DependsOn = Sequence[frozenset[int]]  # for each result of a FUNCTION: the PARAMs it depends on


class CarryPlaces(Record):
    """The positions of the carries of a body: its results ``i < n``, its PARAMs ``first + i``."""

    first: int
    n: int

    @property
    def params(self) -> range:
        return range(self.first, self.first + self.n)

    def of(self, params: Iterable[int]) -> set[int]:
        """Return the numbers of the carries among some PARAMs."""
        return {p - self.first for p in params if p in self.params}


def active(depends: DependsOn, carries: CarryPlaces, inputs: Iterable[int]) -> set[int]:
    """Return the PARAMs that depend on ``inputs`` after any number of steps."""
    found = set(inputs)
    while True:
        more = {carries.first + i for i in range(carries.n)
                if not depends[i].isdisjoint(found)} - found
        if not more:
            return found
        found |= more


def pulled(depends: DependsOn, carries: CarryPlaces, results: Iterable[int]) -> set[int]:
    """Return the carries that some results of a body depend on, after any number of steps."""
    found = {o for o in results if o < carries.n}
    waiting = list(results)
    while waiting:
        more = carries.of(depends[waiting.pop()]) - found
        found |= more
        waiting += more
    return found


def closed(depends: DependsOn, carries: CarryPlaces, zero_steps: bool) -> list[frozenset[int]]:
    """Return what the results of the loop depend on, in terms of its operands.

    >>> found = closed([frozenset({0, 1}), frozenset({1, 2})], CarryPlaces(1, 2), False)
    >>> [sorted(d) for d in found]
    [[0, 1], [0, 1, 2]]
    """
    direct = [sum([1 << p for p in d]) for d in depends]  # bit sets: there may be hundreds
    behind = [bits | 1 << carries.first + i for i, bits in enumerate(direct[:carries.n])]
    for i in range(carries.n):  # Warshall's transitive closure
        through = 1 << carries.first + i
        for k, bits in enumerate(behind):
            if bits & through:
                behind[k] = bits | behind[i]
    found = []
    for o, bits in enumerate(direct):
        for i in carries.of(depends[o]):
            bits |= behind[i]
        if zero_steps and o < carries.n:
            bits |= 1 << carries.first + o
        found.append(frozenset([p for p in range(bits.bit_length()) if bits >> p & 1]))
    return found
