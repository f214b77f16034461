"""Constructors of the command level: memory, and what runs on it.

>>> nothing = commands([])
>>> loop(nothing, 3, "again").arg
Loop(name='again', trips=3, sites=(), portion=0)
"""

from __future__ import annotations

from collections.abc import Iterable

from fnx.core import dtypes, op_args, ops
from fnx.core.errors import Site
from fnx.core.uop import UOp


def slot(kind: str, index: int, offset: int, nbytes: int, strides: Iterable[int] = ()) -> UOp:
    """Memory of a call: argument or result ``index`` ("in", "out"), or a part of the arena."""
    moves = tuple(strides)
    while moves and not moves[-1]:
        moves = moves[:-1]
    return UOp(ops.SLOT, dtypes.void, (), op_args.Slot(kind, index, offset, nbytes, moves))


def swap(even: UOp, odd: UOp, loop: int) -> UOp:
    """One SLOT in even iterations of a loop, another in odd ones.

    ``loop`` counts from the outermost loop around the command; behind a loop its number is that
    of the iterations it made.
    """
    return UOp(ops.SWAP, dtypes.void, (even, odd), loop)


def exec_(fn: UOp, slots: Iterable[UOp], scalars: Iterable[UOp], name: str,
          sites: tuple[Site, ...] = ()) -> UOp:
    """Run a KERNEL on a SLOT per REF slot and a CONST per VAR slot, or what a HOST calls."""
    return UOp(ops.EXEC, dtypes.void, (fn, *slots, *scalars), op_args.Exec(name, sites))


def callee(host: UOp) -> UOp:
    """What a command runs for a HOST, on its handle, operands and results: see ``exec_``."""
    return UOp(ops.HOST, dtypes.void, (), host.arg)


def sorter(sort: UOp) -> UOp:
    """What a command runs for a SORT, on its operands and results: see ``exec_``."""
    return UOp(ops.SORT, dtypes.void, (), sort.arg)


def linked(arg: op_args.Linked) -> UOp:
    """What a command runs where the object of its kernel is known: see ``exec_``."""
    return UOp(ops.LINKED, dtypes.void, (), arg)


def loop(body: UOp, trips: int, name: str, sites: tuple[Site, ...] = ()) -> UOp:
    """Run COMMANDS so many times."""
    return UOp(ops.LOOP, dtypes.void, (body,), op_args.Loop(name, trips, sites))


def loop_while(test: UOp, flag: UOp, body: UOp, name: str,
               sites: tuple[Site, ...] = ()) -> UOp:
    """Run COMMANDS ``test``, which write a bool to ``flag``; where it is true ``body``; again."""
    return UOp(ops.LOOP, dtypes.void, (test, flag, body), op_args.Loop(name, None, sites))


def branch(which: UOp, branches: Iterable[UOp], name: str, sites: tuple[Site, ...] = ()) -> UOp:
    """Run those COMMANDS whose number, an int32 that is clamped, is in the SLOT ``which``."""
    return UOp(ops.BRANCH, dtypes.void, (which, *branches), op_args.Branch(name, sites))


def commands(run: Iterable[UOp]) -> UOp:
    """EXECs, LOOPs and BRANCHes in the order they run."""
    return UOp(ops.COMMANDS, dtypes.void, tuple(run))
