"""The values that ``debug.step`` knows at a line, of variables and of traced arrays.

Variables have names. What objects, containers and closures hold are traced arrays, as tracing left
them there: while an expression of the user's is evaluated, each of them has its value at this line.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import numpy as np

from fnx.core.array.api_boundary import to_concrete
from fnx.core.array.array import Array
from fnx.core.ir import ops
from fnx.core.ir.dtypes import NDArray
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels import interp
from fnx.core.levels.visit import Visit
from fnx.core.support.errors import FnxError
from fnx.core.support.line_visits import LineVisit
from fnx.transforms.inspect.step_views import Step

Numbers = tuple[int | None, ...]  # of the iterations around a line

MAX_KEPT = 256 << 20  # bytes of values that stay for derivatives
MAX_REACHED = 100_000  # objects that are searched for traced arrays


class FrameValues:
    """The values of a function's variables in one of its calls and one iteration of the loops.

    Attributes:
        iteration: counts the iterations of all loops; 0 outside of loops.
        values: variable -> value.
        assigned: (line, variable) -> what the line assigned; lines are visits, by number.
        visits: the lines that have run, by number.
        n_bytes: of the values.
        missing: why values of lines before their derivative are not there; "" if they are.
    """

    def __init__(self, iteration: int) -> None:
        self.iteration = iteration
        self.values: dict[str, Any] = {}
        self.assigned: dict[tuple[int, str], NDArray] = {}
        self.visits: set[int] = set()
        self.n_bytes = 0
        self.missing = ""

    def add(self, step: Step) -> int:
        """Add the values of a line; return how many bytes they have."""
        n_bytes = sum([x.nbytes for x in step.values.values()])
        self.visits.add(step.visit.number)
        self.values |= step.values | step.constants
        self.assigned |= {(step.visit.number, name): x for name, x in step.values.items()}
        self.n_bytes += n_bytes
        return n_bytes


class ForwardValues:
    """The values of functions and iterations, for the derivatives of their lines.

    A derivative comes when its function has returned, in loops when all iterations have run. An
    iteration is known by the numbers of the user's loops around it, so the values of a function
    that runs several times in one are none's. Values beyond MAX_KEPT bytes are let go, those of the
    first iterations first: derivatives begin with the last.
    """

    def __init__(self, visits: Iterable[Visit], runs_of: Mapping[int, int]) -> None:
        kinds = [visit for visit in visits if visit.kind and runs_of.get(visit.number)]
        self._frames = {visit.frame for visit in kinds}
        self._repeated = {visit.frame for visit in kinds if runs_of[visit.number] > 1}
        self._values: dict[tuple[int, Numbers], FrameValues] = {}
        self._n_bytes = 0
        self._was_full = False

    def add(self, frame: int, numbers: Numbers, values: FrameValues) -> None:
        """Add the values of a function that begins."""
        if frame not in self._frames or None in numbers:
            return
        if (frame, numbers) in self._values:
            self._repeated.add(frame)
        self._values[frame, numbers] = values

    def added(self, n_bytes: int) -> None:
        """Count bytes of values, and let the first ones go if there are too many."""
        self._n_bytes += n_bytes
        while self._n_bytes > MAX_KEPT and len(self._values) > 1:
            self._n_bytes -= self._values.pop(next(iter(self._values))).n_bytes
            self._was_full = True

    def at(self, frame: int, numbers: Numbers, iteration: int) -> FrameValues:
        """Return the values of a function at the derivative of a line, in an iteration."""
        values, before = FrameValues(iteration), self._values.get((frame, numbers))
        if frame in self._repeated:
            values.missing = "its function runs several times, this derivative is of one"
        elif None in numbers:
            values.missing = "the examples of a batch are at different iterations here"
        elif before is not None:
            values.values |= before.values
            values.assigned |= before.assigned
        elif self._was_full:
            values.missing = f"only the last {MAX_KEPT >> 20} MiB of values before derivatives stay"
        return values


class TracedArrays:
    """The values of traced arrays, by the variables that held them while the function was traced.

    Args:
        holders: node of the trace -> the lines at which variables held it.
        visits_of: node -> the lines that made it.
        inputs: values of inputs of the trace.
    """

    def __init__(self, holders: Mapping[UOp, Iterable[tuple[Visit, str]]],
                 visits_of: Mapping[UOp, tuple[LineVisit, ...]], inputs: Mapping[UOp, NDArray]
                 ) -> None:
        self._nodes: dict[tuple[int, str], list[UOp]] = {}
        for node, lines in holders.items():
            for visit, name in lines:
                self._nodes.setdefault((visit.number, name), []).append(node)
        self._visits_of, self._inputs = visits_of, inputs

    @contextlib.contextmanager
    def having_values(self, roots: Iterable[Any], assigned: Mapping[tuple[int, str], NDArray],
                      step: Step) -> Iterator[None]:
        """Give the traced arrays that objects reach their values at a step, for a while."""
        known = {**self._inputs, **{node: x for key, x in assigned.items()
                                    for node in self._nodes.get(key, ())}}
        before: list[tuple[Array, UOp]] = []
        try:
            for x in reached_arrays(roots):
                node = x._uop
                if node is not None and (value := self._value_of(node, known, step)) is not None:
                    before.append((x, node))
                    x._uop, x._storage, x._shape = None, to_concrete(value)._storage, value.shape
            yield
        finally:
            for x, node in before:
                x._uop, x._storage, x._shape = node, None, node.shape

    def _value_of(self, node: UOp, known: dict[UOp, NDArray], step: Step) -> NDArray | None:
        """Return the value of a node at a step, computed from known ones if it has no name; None if
        it depends on what has none there, or if a later line makes it."""
        if node in known:
            return known[node]
        lines = [visit.number for visit in self._visits_of.get(node, ())]
        if lines and min(lines) > step.visit.number and not step.kind:
            return None
        for n in toposort([node], stop=lambda n: n in known or n.op is ops.KERNEL):
            if n in known:
                if known[n].shape != n.shape:  # of a batch
                    return None
            elif n.op in (ops.LEAF, ops.PARAM, ops.CALLBACK):
                return None
        try:
            known[node], = interp.evaluate([node], known)
        except FnxError:  # a donated array
            return None
        return known[node]


def reached_arrays(roots: Iterable[Any]) -> list[Array]:
    """Return the traced arrays that objects reach through containers, attributes and closures."""
    queue, seen, arrays = [*roots], dict[int, Any](), []
    while queue and len(seen) < MAX_REACHED:
        x = queue.pop()
        if id(x) in seen or isinstance(x, _NOT_ENTERED):
            continue
        seen[id(x)] = x
        if type(x) is Array:
            if x._storage is None and x._uop is not None:
                arrays.append(x)
        elif isinstance(x, FunctionType):  # not its globals
            queue += [x.__closure__, x.__defaults__, x.__kwdefaults__, x.__dict__]
        else:  # of a transformed function, the function
            queue += [x.__wrapped__] if callable(x) and hasattr(x, "__wrapped__") \
                else gc.get_referents(x)
    return arrays


_NOT_ENTERED = ModuleType, type, FrameType, CodeType, UOp, np.ndarray, str, int, float
