"""Which carries of a loop are active: fixpoints over what each result of a body depends on.

    carries a, b    a' = a * w    b' = b + a        b' depends on {a, b}, a' on {a, w}

    active in w:                  {a, b}            a' reads w, and b' reads a
    with a cotangent of b:        {a, b}            b' passes one to a; with one of a: {a}

>>> depends = [frozenset({0, 1}), frozenset({1, 2})]    # of the PARAMs w, a, b
>>> sorted(active_params(depends, Carries(1, 2), {0}))
[0, 1, 2]
>>> sorted(ct_carries(depends, Carries(1, 2), {0})), sorted(ct_carries(depends, Carries(1, 2), {1}))
([0], [0, 1])
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fnx.core.support.record import Record

ResultDeps = Sequence[frozenset[int]]  # for each result of a FUNCTION: the PARAMs it depends on


class Carries(Record):
    """The positions of the carries of a body: its results ``i < n``, its PARAMs ``first + i``."""

    first: int
    n: int

    @property
    def params(self) -> range:
        return range(self.first, self.first + self.n)

    def of(self, params: Iterable[int]) -> set[int]:
        """Return the numbers of the carries among some PARAMs."""
        return {p - self.first for p in params if p in self.params}


def active_params(depends: ResultDeps, carries: Carries, inputs: Iterable[int]) -> set[int]:
    """Return the PARAMs that depend on ``inputs`` after any number of steps."""
    result = set(inputs)
    while True:
        new = {carries.first + i for i in range(carries.n)
               if not depends[i].isdisjoint(result)} - result
        if not new:
            return result
        result |= new


def ct_carries(depends: ResultDeps, carries: Carries, results: Iterable[int]) -> set[int]:
    """Return the carries that some results of a body depend on, after any number of steps."""
    result = {o for o in results if o < carries.n}
    worklist = list(results)
    while worklist:
        new = carries.of(depends[worklist.pop()]) - result
        result |= new
        worklist += new
    return result


def transitive_deps(depends: ResultDeps, carries: Carries,
                    zero_steps: bool) -> list[frozenset[int]]:
    """Return what the results of the loop depend on, in terms of its operands.

    >>> found = transitive_deps([frozenset({0, 1}), frozenset({1, 2})], Carries(1, 2), False)
    >>> [sorted(d) for d in found]
    [[0, 1], [0, 1, 2]]
    """
    direct = [sum([1 << p for p in d]) for d in depends]  # bit sets: there may be hundreds
    closure = [bits | 1 << carries.first + i for i, bits in enumerate(direct[:carries.n])]
    for i in range(carries.n):  # Warshall's transitive closure
        carry_bit = 1 << carries.first + i
        for k, bits in enumerate(closure):
            if bits & carry_bit:
                closure[k] = bits | closure[i]
    deps = []
    for o, bits in enumerate(direct):
        for i in carries.of(depends[o]):
            bits |= closure[i]
        if zero_steps and o < carries.n:
            bits |= 1 << carries.first + o
        deps.append(frozenset([p for p in range(bits.bit_length()) if bits >> p & 1]))
    return deps
