"""Public functions are evaluated with the interpreter, which defines the meaning of their graphs.

tests/laws and tests/lower check that the CPU computes the same. So these tests compile nothing, and
a failure here means that a public function builds the wrong graph. A module with ``COMPILED =
True`` runs as users run it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from fnx.core.array import eager_cache
from fnx.core.ir.uop import UOp
from fnx.core.levels import interp
from fnx.core.scope import storage
from fnx.core.tracing import trace


class HostStorage:
    """The interpreter's memory: a read-only NumPy array."""

    def __init__(self, value: Any) -> None:
        self.array = np.array(value)
        self.array.flags.writeable = False
        self.nbytes = self.array.nbytes

    def view(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        return self.array.view(dtype).reshape(shape)

    def wait(self) -> None:
        pass


def evaluate(nodes: Sequence[UOp], keep: object = None) -> list[HostStorage]:
    """Close the graph as jit does, which checks for leaked tracers, then interpret it."""
    fn, captures = trace.close(nodes, ())
    values = [c.arg.handle.view(c.dtype.np, c.shape) for c in captures]
    return [HostStorage(v) for v in interp.apply(fn, values)]


@pytest.fixture(autouse=True, scope="module")
def _interpreted(request: pytest.FixtureRequest) -> Iterator[None]:
    if getattr(request.module, "COMPILED", False):
        yield
        return
    before = storage.evaluate, storage.put
    eager_cache.clear_cache()
    storage.set_evaluator(evaluate, HostStorage)
    yield
    storage.set_evaluator(*before)
    eager_cache.clear_cache()
