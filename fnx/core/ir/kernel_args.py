"""Attributes of ops of kernels, programs and commands: types of ``UOp.arg``, as in op_args.py.

>>> Var(0, low=1).replace(name="n")
Var(slot=0, low=1, high=1099511627776, name='n')
"""

from __future__ import annotations

from fnx.core.ir.dtypes import DType
from fnx.core.ir.op import Shape
from fnx.core.support.errors import Location, kernel_label
from fnx.core.support.record import Record


class Range(Record):
    """A loop of the kernel level. kind: GRID, THREAD, PAR, SEQ, UNROLL or VEC."""

    id: int
    kind: str
    name: str = ""


class Ref(Record):
    """A buffer argument of a kernel, aligned to ``alignment`` bytes.

    ``exceeds_cache``: it exceeds the caches, whatever its run-time extents.
    """

    slot: int
    name: str = ""
    alignment: int = 64
    exceeds_cache: bool = False


class Var(Record):
    """A scalar argument of a kernel (a run-time extent or a lifted constant), with bounds."""

    slot: int
    low: int = 0
    high: int = 1 << 40
    name: str = ""


class Stage(Record):
    """A small buffer inside a kernel.

    space: REG, PRIV (private to a worker), SHARED or GLOBAL. ``double``: double-buffered, filled
    for the next iteration of its loop while the current one is read.
    """

    id: int
    space: str
    name: str = ""
    double: bool = False


class Mma(Record):
    """A matrix unit, an entry of core/ir/matrix_units.py.

    The node sums over ``n_words`` ranges, which follow its factors; the remaining operands say how
    threads hold the factors.
    """

    unit: str
    n_words: int = 0


class ThreadGroup(Record):
    """Constants of a program that runs in workgroups.

    Attributes:
        buffers, scalars: numbers of arguments.
        threads: threads per group.
        shared: bytes of shared memory per group.
        private: bytes of private memory per thread.
        groups: maximum number of groups.
        index_fits_int32: whether all indices and lengths are below 2**31 for any arguments (see
            ``Kernel``).
    """

    buffers: int
    scalars: int
    threads: int
    shared: int
    private: int
    groups: int = 1
    index_fits_int32: bool = False


class Carry(Record):
    """Loop-carried value ``i`` of the LOOP with this id."""

    id: int
    i: int


class Loop(Record):
    """A loop with carried values; ``outs`` are their (shape, dtype). GETTUPLE reads the final
    ones."""

    id: int
    outs: tuple[tuple[Shape, DType], ...]


class Kernel(Record):
    """A finished kernel: ``order`` lists range ids from the outermost loop inwards.

    Two facts that were proven before constants became arguments: ``stores_disjoint``, each plain
    store writes locations disjoint from those of the others; ``index_fits_int32``, all indices and
    lengths fit in 32 bits.
    """

    name: str
    order: tuple[int, ...] = ()
    stores_disjoint: bool = False
    index_fits_int32: bool = False


class Slot(Record):
    """Memory that a command reads or writes.

    kind: "in" (argument ``index`` of the call), "out" (result ``index``) or "arena"; the slot is
    its bytes ``offset``..``offset + nbytes``. Each iteration of the loops around the command
    advances it by ``strides`` bytes (outermost first; a loop that is not listed does not). In a
    CMD_LOOP that is a kernel "in" is an operand of its EXEC, and word k of "numbers" is the int32
    k.
    """

    kind: str
    index: int
    offset: int
    nbytes: int
    strides: tuple[int, ...] = ()


class Linked(Record):
    """A kernel whose object file is known, with the scalars of one command.

    Attributes:
        key: digest of its code.
        writes: slots that it writes.
        parallel: iterations of the PAR range.
        scratch: bytes of scratch memory per worker.
        nanoseconds: estimated run time.
        flops: number of floating-point operations.
        arithmetic: the type of most of them (core/rewriting/peak_rates.py).
        accessed: (slot, bytes of all accesses to it); None if they are not counted.
    """

    name: str
    key: bytes
    writes: tuple[int, ...]
    parallel: int
    scratch: int
    nanoseconds: float
    flops: int
    arithmetic: str
    accessed: tuple[tuple[int, int], ...] | None


class _Labelled:
    name: str
    locs: tuple[Location, ...]

    @property
    def label(self) -> str:
        """The name shown in profiles and error messages."""
        return kernel_label(self.name, self.locs)


class Exec(_Labelled, Record):
    """Run a kernel."""

    name: str
    locs: tuple[Location, ...] = ()


class CmdLoop(_Labelled, Record):
    """Run commands ``trips`` times; None: while a condition holds (which a loop inside a kernel
    may have besides a trip count).

    A kernel with a ``strip_length`` may return after that many steps of all its loops, a strip. It
    resumes there when it is run again, until the first word of its last operand is 0.

    If it ``may_overrun``, iterations after the condition was false change nothing, and the flag is
    an int32: bit 0 is the condition, the bits from 8 on are the iterations so far.
    """

    name: str
    trips: int | None
    locs: tuple[Location, ...] = ()
    strip_length: int = 0
    may_overrun: bool = False


class Branch(_Labelled, Record):
    """Run one of several lists of commands."""

    name: str
    locs: tuple[Location, ...] = ()
