"""The memory of values: hooks by which a higher layer lets core store and evaluate them.

``set_evaluator(evaluate, put, finish)`` is called once, by jit. Nothing eager works before that.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

from fnx.core.ir import dtypes, op_args, ops
from fnx.core.ir.dtypes import NDArray
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import NotBuiltError


class ImpureCounter:
    """A counter of events that make the current call depend on more than its signature."""

    def __init__(self) -> None:
        self.count = 0


impure_events = ImpureCounter()


def mark_impure() -> None:
    """Record that a value was read or a warning given, so that the current call is not cached."""
    impure_events.count += 1


def _not_registered(*args: Any) -> Any:
    raise NotBuiltError("expected an evaluator to be registered", hint="import fnx")


class Evaluator(Protocol):
    """Evaluates nodes over BUFFERs and CONSTs; returns storages with their values.

    If a program computes them, ``on_run`` is called with the nodes whose memory it takes, that
    memory, and the function from such memory to storages of the values.
    """

    def __call__(self, nodes: Sequence[UOp], on_run: Callable[..., None] | None = None
                 ) -> Sequence[Any]:
        """See above."""
        ...


evaluate: Evaluator = cast(Evaluator, _not_registered)
# NumPy data -> storage with a copy of it.
put: Callable[[NDArray], Any] = _not_registered
# NumPy data -> storage that shares its memory and keeps it alive; None if it must be copied. With
# a check: a storage that copies it when it is first used, after the check.
borrow: Callable[[NDArray, Callable[[], None] | None], Any | None] = _not_registered


# Waits until all submitted work is done, including work whose results nobody reads.
finish: Callable[[], None] = _not_registered


def set_evaluator(evaluator: Evaluator,
                  copier: Callable[[NDArray], Any],
                  waiter: Callable[[], None] | None = None,
                  borrower: Callable[[NDArray, Callable[[], None] | None], Any | None] | None = None
                  ) -> None:
    """Register how arrays are stored and evaluated.

    Args:
        evaluator: nodes over BUFFERs and CONSTs -> storage of each. A LEAF among their sources
            outlived its trace; evaluators call ``trace.close`` first, which raises for it.
        copier: NumPy array (of a supported dtype, any strides) -> storage with a copy of it.
        waiter: returns when the device has finished all submitted work; None: unchanged.
        borrower: NumPy array, None -> storage in its memory, or None if it must be copied; with a
            check in the place of None, a storage that checks and copies when it is first used.
    """
    global evaluate, put, finish, borrow
    evaluate, put, finish, borrow = evaluator, copier, waiter or finish, borrower or borrow


def buffer_node(value: NDArray) -> UOp:
    """Return a BUFFER with a copy of NumPy data."""
    handle = op_args.Buffer(put(value), value.shape)
    return UOp(ops.BUFFER, dtypes.as_dtype(value.dtype), (), handle)


constants: weakref.WeakSet[UOp] = weakref.WeakSet()  # BUFFERs that ``constant_node`` returned


def constant_node(value: NDArray) -> UOp:
    """Return a BUFFER with a copy of NumPy data that follow from the signature of the current
    call."""
    node = buffer_node(value)
    constants.add(node)
    return node
