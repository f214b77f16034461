"""Which carries of a loop take part: fixpoints over what each result of a body depends on.

    carries a, b    a' = a * w    b' = b + a        b' depends on {a, b}, a' on {a, w}

    active in w:                  {a, b}            a' reads w, and b' reads a
    with a cotangent of b:        {a, b}            b' hands one to a; with one of a: {a}

>>> depends = [frozenset({0, 1}), frozenset({1, 2})]    # of the PARAMs w, a, b
>>> sorted(active(depends, CarryPlaces(1, 2), {0}))
[0, 1, 2]
>>> sorted(pulled(depends, CarryPlaces(1, 2), {0})), sorted(pulled(depends, CarryPlaces(1, 2), {1}))
([0], [0, 1])
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fnx.core.record import Record

DependsOn = Sequence[frozenset[int]]  # of each result of a FUNCTION: PARAMs with a derivative in it


class CarryPlaces(Record):
    """Where the carries of a body are: its results ``i < n``, its PARAMs ``first + i``."""

    first: int
    n: int

    @property
    def params(self) -> range:
        return range(self.first, self.first + self.n)

    def of(self, params: Iterable[int]) -> set[int]:
        """Numbers of the carries among some PARAMs."""
        return {p - self.first for p in params if p in self.params}


def active(depends: DependsOn, carries: CarryPlaces, inputs: Iterable[int]) -> set[int]:
    """The PARAMs that depend on some of them after any number of steps."""
    found = set(inputs)
    while True:
        more = {carries.first + i for i in range(carries.n) if depends[i] & found} - found
        if not more:
            return found
        found |= more


def pulled(depends: DependsOn, carries: CarryPlaces, results: Iterable[int]) -> set[int]:
    """The carries that some results of a body have a hand in, after any number of steps."""
    found = {o for o in results if o < carries.n}
    waiting = list(results)
    while waiting:
        more = carries.of(depends[waiting.pop()]) - found
        found |= more
        waiting += more
    return found


def closed(depends: DependsOn, carries: CarryPlaces, zero_steps: bool) -> list[frozenset[int]]:
    """What the results of the loop depend on, in terms of its operands."""
    return [frozenset(i for i in range(_end(depends, carries))
                      if o in _reached(depends, carries, i, zero_steps))
            for o in range(len(depends))]


def _end(depends: DependsOn, carries: CarryPlaces) -> int:
    return max([carries.first + carries.n, *[i + 1 for d in depends for i in d]])


def _reached(depends: DependsOn, carries: CarryPlaces, operand: int, zero_steps: bool) -> set[int]:
    """The results that depend on an operand."""
    found = active(depends, carries, {operand})
    out = {o for o, d in enumerate(depends) if d & found}
    return out | carries.of({operand}) if zero_steps else out
