"""Memory of values: what a higher layer registers so that core can hold and compute them.

``set_evaluator(evaluate, put, finish)`` is called once, by jit. Until then nothing eager works.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

import numpy as np

from fnx.core import dtypes, op_args, ops
from fnx.core.dtypes import NDArray
from fnx.core.errors import NotBuiltError
from fnx.core.ops import Shape
from fnx.core.uop import UOp


class Storage(Protocol):
    """Memory of a device."""

    nbytes: int

    def view(self, dtype: np.dtype[Any], shape: Shape) -> NDArray:
        """The value, read-only, once it is there."""
        ...

    def wait(self) -> None:
        """Return when the value is there."""
        ...


class Noted:
    """How often it was noted that what a call does follows from more than its signature."""

    def __init__(self) -> None:
        self.count = 0


noted = Noted()


def note() -> None:
    """A value was read, or a warning given: the call in which it was is not repeated as it is."""
    noted.count += 1


def _none(*args: Any) -> Any:
    raise NotBuiltError("expected an evaluator to be registered", hint="import fnx")


class Evaluator(Protocol):
    """Storage with the values of nodes over BUFFERs and CONSTs.

    ``keep``, where a program computes them, is given the nodes whose memory it takes, that
    memory, and the function from such memory to storages of the values.
    """

    def __call__(self, nodes: Sequence[UOp], keep: Callable[..., None] | None = None
                 ) -> Sequence[Any]:
        """See above."""
        ...


evaluate: Evaluator = cast(Evaluator, _none)
# Storage with a copy of NumPy data.
put: Callable[[NDArray], Any] = _none
# Storage in the memory of NumPy data, which it keeps alive; None where it must be copied.
borrow: Callable[[NDArray], Any | None] = _none


# Waits until all work is done, that nobody waits for, too.
finish: Callable[[], None] = _none


def set_evaluator(evaluator: Evaluator,
                  copier: Callable[[NDArray], Any],
                  waiter: Callable[[], None] | None = None,
                  borrower: Callable[[NDArray], Any | None] | None = None) -> None:
    """Register how arrays compute.

    Args:
        evaluator: nodes over BUFFERs and CONSTs -> storage of each. A LEAF among their sources
            outlived its trace: ``trace.close`` raises, so evaluators begin with it.
        copier: NumPy array (of a dtype that fnx holds, any strides) -> storage with a copy of it.
        waiter: returns when the device has done all that it was given; None: as before.
        borrower: NumPy array -> storage in its memory, or None where it must be copied.
    """
    global evaluate, put, finish, borrow
    evaluate, put, finish, borrow = evaluator, copier, waiter or finish, borrower or borrow


def buffer(value: NDArray) -> UOp:
    """A BUFFER that holds a copy of NumPy data."""
    handle = op_args.Buffer(put(value), value.shape)
    return UOp(ops.BUFFER, dtypes.as_dtype(value.dtype), (), handle)
