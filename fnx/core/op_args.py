"""What an op carries besides its operands: the type of ``UOp.arg``, a class an op.

>>> Var(0, low=1).replace(name="n")
Var(slot=0, low=1, high=1099511627776, name='n')
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from fnx.core import dtypes
from fnx.core.dtypes import DType
from fnx.core.errors import Site, labelled
from fnx.core.op import Op, Shape
from fnx.core.record import Record


class Param(Record):
    """An input of a FUNCTION: its slot and shape."""

    slot: int
    shape: Shape


class Leaf(Record):
    """An input of a trace that is still open. ``id`` is unique in the process."""

    id: int
    shape: Shape


class Buffer(Record):
    """Memory of a concrete array. ``handle`` is compared by identity; its owner keeps it."""

    handle: Any
    shape: Shape


class Reduce(Record):
    """Fold ``axes`` (tensor level) or the ranges in src[1:] (kernel level) with ``monoid``.

    At kernel level ``axes`` is empty and the accumulator has dtype ``accumulator``. Of several
    elements that are the extreme all share its derivative, or the ``first`` in row-major order has
    it.
    """

    monoid: Op
    axes: tuple[int, ...] = ()
    accumulator: DType | None = None
    first: bool = False


class Window(Record):
    """Windows along ``axis``, whose elements are along the axis ``offset``.

    Element j of window i stands at i * stride + j * dilation. ``length`` is that of the axis in
    the result: how many windows (UNFOLD), or how long what they look at is (FOLD).
    """

    axis: int
    offset: int
    stride: int
    dilation: int
    length: int


class Gather(Record):
    """Which axes of an array its indices go along: ascending, one for each index array."""

    axes: tuple[int, ...]


class Scatter(Record):
    """Which axes of an array its indices go along: ascending, one for each index array.

    Updates are combined with what is there by ``monoid``; None: the last one stays.
    """

    axes: tuple[int, ...]
    monoid: Op | None = None


class Sort(Record):
    """Elements along the last axis in the order of the first ``n_keys`` operands; stable.

    ``ins`` are (shape, dtype) of the operands, which have one shape. Results: those operands that
    are ``kept``, in that order; -1: an int32 that says where each element came from. A command
    may sort rows of any number and of ``lengths``, from the first to the second one: both are
    scalars, and no shape is in ``ins``.
    """

    name: str
    n_keys: int
    ins: tuple[tuple[Shape, DType], ...]
    kept: tuple[int, ...]
    lengths: tuple[int, int] | None = None

    @property
    def outs(self) -> tuple[tuple[Shape, DType], ...]:
        shape = self.ins[0][0]
        return tuple([(shape, dtypes.int32) if i < 0 else self.ins[i] for i in self.kept])


class Axis(Record):
    """A named axis, of a vmap that is being traced.

    ``depth`` counts the axes of that name which were open around it, so that a name that is
    given again inside is another axis.
    """

    name: Hashable
    size: int
    depth: int = 0


class Function(Record):
    """A closed graph: src are its outputs, PARAM(0..n_params-1) its inputs."""

    name: str
    n_params: int


class Call(Record):
    """A call of src[0] (a FUNCTION, or a hand-written KERNEL) with operands src[1:].

    ``outs`` are (shape, dtype) of the results, read by GET. ``schedule`` is for kernels,
    ``policy`` says what a checkpointed FUNCTION keeps for its backward pass; ``of_loop``: the
    KERNEL is written by nobody, but made of a loop.
    """

    name: str
    outs: tuple[tuple[Shape, DType], ...]
    schedule: tuple[Any, ...] = ()
    policy: Any = None
    of_loop: bool = False


class Scan(Record):
    """``length`` steps of src[0], a FUNCTION (consts, carries, x) -> (carries, y).

    Operands: ``n_consts`` arrays that each step reads, ``n_carries`` that it hands to the next,
    and arrays of which step t reads x[t] (from the last to the first if ``reverse``). Results:
    the last carries, and for each y an array whose [t] is that of step t. Reverse mode saves the
    carries of every ``checkpoint``-th step and computes the steps between again; 0: it saves
    what it reads of each step.
    """

    name: str
    length: int
    n_consts: int
    n_carries: int
    reverse: bool
    outs: tuple[tuple[Shape, DType], ...]
    checkpoint: int = 0


class While(Record):
    """As long as src[0] (consts, carries) -> bool: carries = src[1](consts, carries).

    Both FUNCTIONs take all operands, of which the first ``n_consts`` do not change. Results: the
    last carries. It ends by itself within ``most`` steps (0: nobody knows).
    """

    name: str
    n_consts: int
    outs: tuple[tuple[Shape, DType], ...]
    most: int = 0


class Cond(Record):
    """One of the FUNCTIONs in front on the operands: the one that an int32 says, clamped.

    src: ``n_branches`` FUNCTIONs of one signature, the number of the branch, the operands.
    """

    name: str
    n_branches: int
    outs: tuple[tuple[Shape, DType], ...]


class Host(Record):
    """A call of a Python function, which the handle src[0] names, with the operands behind it.

    With an ``effect`` src[1] is a token and result 0 the next one, so that effects stay, each for
    itself, in their order; without one it is pure. Once for each of ``lanes``, in order: of each
    batch axis, the outermost first, its length and which operands have it (all results but the
    token do). Where ``masked``, operand 0 is a bool: false, and there is no call, and zeros.
    ``ins`` and ``outs`` are the types of operands and results; ``method`` says how a pure one is
    batched.
    """

    name: str
    effect: bool
    ins: tuple[tuple[Shape, DType], ...]
    outs: tuple[tuple[Shape, DType], ...]
    lanes: tuple[tuple[int, tuple[bool, ...]], ...] = ()
    masked: bool = False
    method: str = ""


def pullback(asked: Sequence[int], n: int) -> str:
    """The name of the "bwd" of a Custom for cotangents of some of its ``n`` float results.

    >>> pullback([0, 2], 3), pullback([0, 1, 2], 3)
    ('bwd 0 2', 'bwd')
    """
    return " ".join(["bwd", *(str(k) for k in asked if len(asked) < n)])


class Custom(Record):
    """A function with derivatives of its own: src[0] on the operands, under ``rules``.

    src: the function and one FUNCTION for each of the rules, ``n_captures`` arrays that all of
    them take first (what the user's functions closed over), and the arguments.

        src[0]  (captures, arguments) -> results
        "jvp"   (captures, arguments, tangents of floats among them) -> results, tangents of
                the floats among them
        "fwd"   (captures, arguments) -> results, residuals
        "bwd"   (captures, residuals, cotangents of float results) -> cotangents; ``pulled``
                says for each argument which of these is its own, or -1: zero
        "bwd 0 2"  the same where only these of the float results have cotangents: it does not
                read the others

    Where there is a "jvp", it is the first rule. ``again``: a rule that calls its own function. The
    node stands for the CUSTOM in whose rule it is, that many rules further out (-1: it does not),
    and has no rules: they would not end (core/again.py). ``lanes`` has a rule for a batch:
    ``function(size, batched)`` is what src[0] becomes. With ``effects`` the first
    argument and the first result are tokens, of rules too ("bwd": behind the captures, and in
    front of the cotangents), so that also what only a backward pass does has its place in the
    order of the program. The results are ``linear`` in so many of the last arguments together,
    however src[0] finds them.
    """

    name: str
    outs: tuple[tuple[Shape, DType], ...]
    rules: tuple[str, ...]
    n_captures: int
    pulled: tuple[int, ...] = ()
    again: int = -1
    lanes: Any = None
    effects: bool = False
    linear: int = 0

    def __repr__(self) -> str:
        """Without ``lanes``, an object of this process: equal in all that compute the same."""
        return super(Custom, self.replace(lanes=None)).__repr__()


class Range(Record):
    """A loop of the kernel level. kind: GRID, THREAD, PAR, SEQ, UNROLL or VEC."""

    id: int
    kind: str
    name: str = ""


class Ref(Record):
    """A buffer argument of a kernel, at a multiple of ``alignment`` bytes; ``large``: whatever its
    run-time extents are, no cache holds it."""

    slot: int
    name: str = ""
    alignment: int = 64
    large: bool = False


class Var(Record):
    """A scalar argument of a kernel (a run-time extent, a lifted constant), with bounds."""

    slot: int
    low: int = 0
    high: int = 1 << 40
    name: str = ""


class Stage(Record):
    """A small buffer inside a kernel. space: REG, PRIV (a worker's own), SHARED or GLOBAL;
    ``double``: filled for the next iteration of its loop while this one is read."""

    id: int
    space: str
    name: str = ""
    double: bool = False


class Mma(Record):
    """The unit that multiplies and adds: a row of core/units.py. Of ``words`` of its ranges the
    node is the sum; what else follows its factors says how threads hold them."""

    unit: str
    words: int = 0


class ThreadGroup(Record):
    """What threads that run a program together are given, each number a constant.

    Attributes:
        buffers, scalars: how many arguments there are.
        threads: of a group.
        shared: bytes of memory of a group.
        private: bytes of memory of each thread.
        groups: how many there are at most.
        near: whether places and lengths are below 2**31, whatever arguments may be (``Kernel``).
    """

    buffers: int
    scalars: int
    threads: int
    shared: int
    private: int
    groups: int = 1
    near: bool = False


class Carry(Record):
    """Value ``i`` that the ITER with this id hands from one iteration to the next."""

    id: int
    i: int


class Iter(Record):
    """A loop with carried values; ``outs`` are (shape, dtype) of these, read by GET."""

    id: int
    outs: tuple[tuple[Shape, DType], ...]


class Kernel(Record):
    """A finished kernel: ``order`` lists range ids from the outermost loop inwards.

    Although numbers that became arguments do not show it, ``apart``: each of its plain stores
    writes other places than the rest; ``near``: all places and lengths have room in 32 bits.
    """

    name: str
    order: tuple[int, ...] = ()
    apart: bool = False
    near: bool = False


class Slot(Record):
    """Memory a command reads or writes.

    kind: "in" (argument ``index`` of the call), "out" (result ``index``), "arena"; of it, bytes
    ``offset``..``offset + nbytes``. Each iteration of the loops around the command moves it on
    by ``strides`` bytes (outermost first; a loop that is not listed does not move it). In a LOOP
    that is a kernel "in" is an operand of its EXEC, and word k of "numbers" is the int32 k.
    """

    kind: str
    index: int
    offset: int
    nbytes: int
    strides: tuple[int, ...] = ()


class Linked(Record):
    """A kernel whose object is known, with the scalars of one command.

    Attributes:
        key: digest of its code.
        writes: slots that it writes.
        parallel: iterations of the PAR range.
        scratch: bytes that each worker needs for itself.
        nanoseconds: about how long it takes.
        flops: arithmetic of floats.
        arithmetic: the type of most of it (core/limits.py).
    """

    name: str
    key: bytes
    writes: tuple[int, ...]
    parallel: int
    scratch: int
    nanoseconds: float
    flops: int
    arithmetic: str


class Exec(Record):
    """Run a kernel."""

    name: str
    sites: tuple[Site, ...] = ()

    @property
    def label(self) -> str:
        """What profiles and faults call it."""
        return labelled(self.name, self.sites)


class Loop(Record):
    """Run commands ``trips`` times; None: for as long as a condition holds (in a kernel: with a
    number of trips, too).

    A kernel with a ``portion`` may leave after so many steps, of its loops together. It goes on
    there when it is run again, for as long as the first word of its last operand is not 0.
    """

    name: str
    trips: int | None
    sites: tuple[Site, ...] = ()
    portion: int = 0

    @property
    def label(self) -> str:
        """What profiles and faults call it."""
        return labelled(self.name, self.sites)


class Branch(Record):
    """Run one of several lists of commands."""

    name: str
    sites: tuple[Site, ...] = ()

    @property
    def label(self) -> str:
        """What profiles and faults call it."""
        return labelled(self.name, self.sites)
