"""Constructors of the command level: memory slots and commands.

>>> nothing = commands([])
>>> cmd_loop(nothing, 3, "again").arg
CmdLoop(name='again', trips=3, locs=(), strip_length=0)
"""

from __future__ import annotations

from collections.abc import Iterable

from fnx.core.ir import dtypes, op_args, ops
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import Location


def slot(kind: str, index: int, offset: int, nbytes: int, strides: Iterable[int] = ()) -> UOp:
    """Return memory of a call: argument or result ``index`` ("in", "out"), or arena bytes."""
    moves = tuple(strides)
    while moves and not moves[-1]:
        moves = moves[:-1]
    return UOp(ops.SLOT, dtypes.void, (), op_args.Slot(kind, index, offset, nbytes, moves))


def swap(even: UOp, odd: UOp, loop: int) -> UOp:
    """Return memory that is one SLOT in even iterations of a loop, and another in odd ones.

    ``loop`` counts from the outermost loop around the command. After a loop, the parity is that
    of its trip count.
    """
    return UOp(ops.SWAP, dtypes.void, (even, odd), loop)


def exec_(fn: UOp, slots: Iterable[UOp], scalars: Iterable[UOp], name: str,
          locs: tuple[Location, ...] = ()) -> UOp:
    """Run a KERNEL, with a SLOT per REF slot and a CONST per VAR slot, or another callee."""
    return UOp(ops.EXEC, dtypes.void, (fn, *slots, *scalars), op_args.Exec(name, locs))


def callback_callee(host: UOp) -> UOp:
    """Return the callee of a CALLBACK command, which takes handle, operands and results
    (``exec_``)."""
    return UOp(ops.CALLBACK, dtypes.void, (), host.arg)


def sort_callee(sort: UOp) -> UOp:
    """Return the callee of a SORT command, which takes operands and results (``exec_``)."""
    return UOp(ops.SORT, dtypes.void, (), sort.arg)


def linked_callee(arg: op_args.Linked) -> UOp:
    """Return the callee for a kernel whose object file is known (``exec_``)."""
    return UOp(ops.LINKED, dtypes.void, (), arg)


def cmd_loop(body: UOp, trips: int, name: str, locs: tuple[Location, ...] = ()) -> UOp:
    """Run COMMANDS ``trips`` times."""
    return UOp(ops.CMD_LOOP, dtypes.void, (body,), op_args.CmdLoop(name, trips, locs))


def cmd_while(test: UOp, flag: UOp, body: UOp, name: str,
              sites: tuple[Location, ...] = ()) -> UOp:
    """Repeat: run COMMANDS ``test``, which write a bool to ``flag``; if it is true run ``body``."""
    return UOp(ops.CMD_LOOP, dtypes.void, (test, flag, body), op_args.CmdLoop(name, None, sites))


def branch(which: UOp, branches: Iterable[UOp], name: str, locs: tuple[Location, ...] = ()) -> UOp:
    """Run the COMMANDS that the int32 in the SLOT ``which`` selects, clamped."""
    return UOp(ops.BRANCH, dtypes.void, (which, *branches), op_args.Branch(name, locs))


def commands(run: Iterable[UOp]) -> UOp:
    """Return a list of EXECs, CMD_LOOPs and BRANCHes in the order they run."""
    return UOp(ops.COMMANDS, dtypes.void, tuple(run))
