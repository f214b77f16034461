"""Memory of values: what a higher layer registers so that core can hold and compute them.

``set_evaluator(evaluate, put)`` is called once, by jit. Until then nothing eager works.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from fnx.core import dtypes, ops
from fnx.core.errors import NotBuiltError
from fnx.core.ops import Shape
from fnx.core.uop import UOp

NDArray = np.ndarray[Any, Any]


class Storage(Protocol):
    """Memory of a device."""

    nbytes: int

    def view(self, dtype: np.dtype[Any], shape: Shape) -> NDArray:
        """The value, read-only, once it is there."""
        ...

    def wait(self) -> None:
        """Return when the value is there."""
        ...


class _Hooks:
    evaluate: Callable[[Sequence[UOp]], Sequence[Any]]
    put: Callable[[NDArray], Any]


def _none(*args: Any) -> Any:
    raise NotBuiltError("expected an evaluator to be registered", hint="import fnx")


def set_evaluator(evaluate: Callable[[Sequence[UOp]], Sequence[Any]],
                  put: Callable[[NDArray], Any]) -> None:
    """Register how arrays compute.

    Args:
        evaluate: nodes over BUFFERs and CONSTs -> storage of each. A LEAF among their sources
            outlived its trace: ``trace.close`` raises, so evaluators begin with it.
        put: NumPy array (of a dtype that fnx holds, any strides) -> storage with a copy of it.
    """
    _Hooks.evaluate = staticmethod(evaluate)
    _Hooks.put = staticmethod(put)


set_evaluator(_none, _none)


def evaluator() -> tuple[Callable[[Sequence[UOp]], Sequence[Any]], Callable[[NDArray], Any]]:
    """What is registered: (evaluate, put)."""
    return _Hooks.evaluate, _Hooks.put


def evaluate(nodes: Sequence[UOp]) -> Sequence[Any]:
    """Storage with the values of nodes over BUFFERs and CONSTs."""
    return _Hooks.evaluate(nodes)


def put(value: NDArray) -> Any:
    """Storage with a copy of NumPy data."""
    return _Hooks.put(value)


def buffer(value: NDArray) -> UOp:
    """A BUFFER that holds a copy of NumPy data."""
    handle = ops.Buffer(put(value), value.shape)
    return UOp(ops.BUFFER, dtypes.as_dtype(value.dtype), (), handle)
