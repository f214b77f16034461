"""Op attributes: the types of ``UOp.arg``, one class per op; kernel_args.py has those of kernels.

>>> Param(0, (3,)).replace(slot=1)
Param(slot=1, shape=(3,))
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any

from fnx.core.ir import dtypes
from fnx.core.ir.dtypes import DType
from fnx.core.ir.op import Op, Shape
from fnx.core.support.record import Record


class Param(Record):
    """An input of a FUNCTION: its slot and shape."""

    slot: int
    shape: Shape


class Leaf(Record):
    """An input of a trace that is still open. ``id`` is unique in the process."""

    id: int
    shape: Shape


class Buffer(Record):
    """Memory of a concrete array. ``handle`` is compared by identity; its owner keeps it alive."""

    handle: Any
    shape: Shape


class Reduce(Record):
    """Reduce ``axes`` (tensor level) or the ranges in src[1:] (kernel level) with ``monoid``.

    At kernel level ``axes`` is empty and the accumulator has dtype ``accumulator``. If several
    elements are the extreme of a MAX or MIN, all share its derivative; with ``first``, the first
    in row-major order gets all of it.
    """

    monoid: Op
    axes: tuple[int, ...] = ()
    accumulator: DType | None = None
    first: bool = False


class Window(Record):
    """Windows along ``axis``; their elements lie along the axis ``offset``.

    Element j of window i is at index i * stride + j * dilation. ``length`` is the length of
    ``axis`` in the result: the number of windows (UNFOLD), or the length of the axis that they
    slide over (FOLD).
    """

    axis: int
    offset: int
    stride: int
    dilation: int
    length: int


class Gather(Record):
    """The indexed axes of an array: ascending, one for each index array."""

    axes: tuple[int, ...]


class Scatter(Record):
    """The indexed axes of an array: ascending, one for each index array.

    ``monoid`` combines updates with the old elements; None: the last update wins. ``is_unique``: no
    two updates go to one element, so their order does not matter.
    """

    axes: tuple[int, ...]
    monoid: Op | None = None
    is_unique: bool = False


class Sort(Record):
    """Stable sort along the last axis by the first ``n_keys`` operands.

    ``ins`` are (shape, dtype) of the operands, which have one shape. The results are the operands
    with the indices ``outputs``, in that order; -1 stands for the int32 permutation: the old index
    of each element. A command may sort any number of rows whose length is between the two
    ``lengths``: number and length are then run-time scalars, and ``ins`` holds no shape.

    One that ``selects`` the "least" or "largest" has one key, and results of the ``count`` first
    elements in ascending or descending order; equal ones are in the order of their indices.
    """

    name: str
    n_keys: int
    ins: tuple[tuple[Shape, DType], ...]
    outputs: tuple[int, ...]
    lengths: tuple[int, int] | None = None
    selects: str = ""
    count: int = 0

    @property
    def outs(self) -> tuple[tuple[Shape, DType], ...]:
        shape = self.ins[0][0]
        if self.selects:
            shape = (*shape[:-1], self.count)
        return tuple([(shape, dtypes.int32 if i < 0 else self.ins[i][1]) for i in self.outputs])


class Fft(Record):
    """Discrete Fourier transform along ``axis``; the last axis holds real and imaginary part.

    The result is ``scale`` * sum over j of x[j] * exp(-2i pi j k / n); ``inverse``: +2i. With
    ``real`` the pairs are neighbors in an array of 2 n real numbers, and the result is the first
    n + 1 elements of its transform; or the inverse goes from these to the pairs.
    """

    axis: int
    inverse: bool = False
    scale: float = 1.0
    real: bool = False

    def length(self, shape: Shape) -> int:
        """Return the number of pairs that are transformed, given the shape of the operand."""
        return shape[self.axis] - (self.real and self.inverse)

    def result_shape(self, shape: Shape) -> Shape:
        """Return the shape of the result, given that of the operand."""
        n = self.length(shape) + (self.real and not self.inverse)
        return (*shape[:self.axis], n, *shape[self.axis + 1:])


class FftStep(Record):
    """A step of a plan (core/formulas/fft_plan.py): transforms of the columns of matrices.

    The program has stages of the radices ``kinds``; those of this length have ``radices``.
    ``table`` and ``twiddles`` are offsets in the table; with twiddles (>= 0) element (k, c) is
    multiplied by exp(-2i pi k c / (n * inner)), and the matrices are transposed. With ``rows``
    they are transposed before and after; then ``roots`` (>= 0) is the offset of the roots for a
    real transform (Fft). ``lengths`` are the number of matrices, n and inner; None: they are
    run-time scalars, as is all but the kinds and ``rows``.
    """

    name: str
    dtype: DType
    lengths: tuple[int, int, int] | None
    kinds: tuple[int, ...]
    radices: tuple[int, ...]
    table: int
    twiddles: int = -1
    rows: bool = False
    inverse: bool = False
    scale: float = 1.0
    roots: int = -1

    @property
    def row_lengths(self) -> tuple[int, int]:
        """The lengths of the rows of the operand and of the result."""
        assert self.lengths is not None
        n, real = self.lengths[1], self.roots >= 0
        return n + (real and self.inverse), n + (real and not self.inverse)

    @property
    def shape(self) -> Shape:
        """The shape of the operand."""
        if self.lengths is None:
            return ()
        outer, n, inner = self.lengths
        return (outer, inner, self.row_lengths[0], 2) if self.rows else (outer, n, inner, 2)

    @property
    def outs(self) -> tuple[tuple[Shape, DType], ...]:
        if self.lengths is None:
            return (((), self.dtype),)
        outer, n, inner = self.lengths
        transposed = self.rows or self.twiddles >= 0
        return (((outer, inner, self.row_lengths[1], 2) if transposed else (outer, n, inner, 2),
                 self.dtype),)


class Linalg(Record):
    """A routine of linear algebra, applied to each matrix of a batch (core/ir/linalg.py).

    ``options`` are those of the routine that are on. ``ins`` and ``outs`` are (shape, dtype) of
    operands and results, which have the same leading batch axes. With ``any_size`` it is a command
    for any batch and any matrices: their lengths are run-time scalars, and ``ins`` and ``outs``
    hold no shapes; ``interleaved``: it computes a matrix in each lane of vectors. ``of_complex``:
    the routine on complex numbers that this one stands for; each complex operand and result is an
    array of real numbers whose last axis holds the two parts.
    """

    name: str
    routine: str
    options: tuple[str, ...]
    ins: tuple[tuple[Shape, DType], ...]
    outs: tuple[tuple[Shape, DType], ...]
    any_size: bool = False
    interleaved: bool = False
    of_complex: Linalg | None = None


class Axis(Record):
    """A named axis of a vmap that is being traced.

    ``depth`` counts the enclosing axes of the same name, so that reusing a name inside makes
    another axis. ``sums_cotangents``: the cotangent of a value that does not vary along the axis
    is summed over it, as in ``shard_map(check_vma=True)``.
    """

    name: Hashable
    size: int
    depth: int = 0
    sums_cotangents: bool = False


class ProcessGrid(Record):
    """The axes of a mesh that span processes, and the number of blocks along each; the last axis
    goes fastest over the ranks. ``program`` names the one whose collectives are over it, in all
    processes."""

    names: tuple[Hashable, ...]
    sizes: tuple[int, ...]
    program: str = ""

    def count(self, names: Sequence[Hashable]) -> int:
        """Return the number of processes along some axes."""
        return math.prod([self.sizes[self.names.index(name)] for name in names])


class Collective(Record):
    """A routine over the groups of processes along the axes ``names`` of a grid.

    ``ins`` are (shape, dtype) of the operands (core/ir/collectives.py). ``axis`` is gathered, or
    scattered; ``to_axis`` is the one that an all_to_all concatenates. ``pairs`` are the positions
    (source, target) of a permute.
    """

    name: str
    grid: ProcessGrid
    names: tuple[Hashable, ...]
    ins: tuple[tuple[Shape, DType], ...] = ()
    axis: int = 0
    to_axis: int = 0
    monoid: Op | None = None
    pairs: tuple[tuple[int, int], ...] = ()

    @property
    def count(self) -> int:
        """The number of processes in a group."""
        return self.grid.count(self.names)

    @property
    def outs(self) -> tuple[tuple[Shape, DType], ...]:
        if self.name == "process_index":
            return (((), dtypes.int32),)
        return tuple([(self._result_shape(shape), dtype) for shape, dtype in self.ins])

    def _result_shape(self, shape: Shape) -> Shape:
        out, n = list(shape), self.count
        if self.name in ("reduce_scatter", "all_to_all"):
            out[self.axis] //= n
        if self.name in ("all_gather", "all_to_all"):
            out[self.axis if self.name == "all_gather" else self.to_axis] *= n
        return tuple(out)


class Function(Record):
    """A closed graph: src are its outputs, PARAM(0..n_params-1) its inputs."""

    name: str
    n_params: int


class Call(Record):
    """A call of src[0] (a FUNCTION, or a user-written KERNEL) with operands src[1:].

    ``outs`` are (shape, dtype) of the results, read by GETTUPLE. ``schedule`` is for kernels;
    ``policy`` says what a checkpointed FUNCTION saves for its backward pass. With ``is_generated``
    the KERNEL is not user-written but generated from a loop.
    """

    name: str
    outs: tuple[tuple[Shape, DType], ...]
    schedule: tuple[Any, ...] = ()
    policy: Any = None
    is_generated: bool = False


FORI_LOOP = ".fori_loop"  # in the name of a loop that the user wrote so


class Scan(Record):
    """``length`` steps of src[0], a FUNCTION (consts, carries, x) -> (carries, y).

    Operands: ``n_consts`` arrays that each step reads, ``n_carries`` initial carries, and arrays
    of which step t reads x[t] (from the last to the first if ``reverse``). Results: the final
    carries, and for each y the stacked array of its values. Reverse mode saves the carries of
    every ``checkpoint``-th step and recomputes the steps between; 0: it saves the residuals of
    every step.
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
    final carries. ``max_trips`` is an upper bound of the trip count (0: unknown).
    """

    name: str
    n_consts: int
    outs: tuple[tuple[Shape, DType], ...]
    max_trips: int = 0


class Cond(Record):
    """Apply the branch that an int32 selects, clamped, to the operands.

    src: ``n_branches`` FUNCTIONs of one signature, the index of the branch, the operands.
    """

    name: str
    n_branches: int
    outs: tuple[tuple[Shape, DType], ...]


class Callback(Record):
    """A call of the Python function that the handle src[0] names, with the operands after it.

    With an ``effect`` src[1] is a token and result 0 the next token, which keeps effects in order
    and unmerged; without one the call is pure. ``batch_levels`` are the batch axes, the outermost
    first: the length of each, and which operands have it (all results but the token do). The
    function is called once per batch element, in order. If ``masked``, operand 0 is a bool; where
    it is false there is no call, and the results are zeros. ``ins`` and ``outs`` are the types of
    operands and results; ``method`` says how a pure call is batched. ``of_parts``: the call of
    complex numbers that this one stands for, whose operands and results are the parts of those.
    ``collective``: what the communicator runs instead of a Python function; src[0] is unused. Its
    ``phase`` is "start", whose result is a ticket, or "wait", which takes it and then the operands
    that must live until then; "": both.
    """

    name: str
    effect: bool
    ins: tuple[tuple[Shape, DType], ...]
    outs: tuple[tuple[Shape, DType], ...]
    batch_levels: tuple[tuple[int, tuple[bool, ...]], ...] = ()
    masked: bool = False
    method: str = ""
    of_parts: Callback | None = None
    collective: Collective | None = None
    phase: str = ""


def bwd_rule_name(result_indices: Sequence[int], n: int) -> str:
    """Return the name of the "bwd" rule of a Custom for cotangents of some of its ``n`` float
    results.

    >>> bwd_rule_name([0, 2], 3), bwd_rule_name([0, 1, 2], 3)
    ('bwd 0 2', 'bwd')
    """
    return " ".join(["bwd", *(str(k) for k in result_indices if len(result_indices) < n)])


class Custom(Record):
    """A function with custom derivative rules: src[0] applied to the operands, under ``rules``.

    src: the function and one FUNCTION for each of the rules, ``n_captures`` arrays that all of
    them take first (what the user's functions closed over), and the arguments.

        src[0]  (captures, arguments) -> results
        "jvp"   (captures, arguments, tangents of floats among them) -> results, tangents of
                the floats among them
        "fwd"   (captures, arguments) -> results, residuals
        "bwd"   (captures, residuals, cotangents of float results) -> cotangents;
                ``cotangent_indices`` holds the index of each argument's cotangent among these,
                or -1 for zero
        "bwd 0 2"  the same if only these float results have cotangents: it does not read the
                others

    If there is a "jvp", it is the first rule. ``recursion_depth`` >= 0 marks a recursive call:
    inside a rule, the node stands for the CUSTOM whose rule that is, so many levels of rules
    further out (-1: not recursive). It has no rules itself, as they would be infinite
    (core/ir/recursive_rules.py). ``vmap_rule`` holds a batching rule: ``function(size, batched)``
    returns the batched src[0]. With ``effects`` the first argument and the first result are tokens,
    of the rules too ("bwd": after the captures, and before the cotangents), so that effects of the
    backward pass are ordered as well. The results are jointly ``n_linear`` in that many of the last
    arguments, however src[0] computes them. ``rule_maker`` makes the rules when they are needed: a
    primitive of the user's with its params (fnx/jaxprs/user_rules.py), or a function whose rules
    are not traced yet (transforms/custom/lazy_rules.py).
    """

    name: str
    outs: tuple[tuple[Shape, DType], ...]
    rules: tuple[str, ...]
    n_captures: int
    cotangent_indices: tuple[int, ...] = ()
    recursion_depth: int = -1
    vmap_rule: Any = None
    effects: bool = False
    n_linear: int = 0
    rule_maker: Any = None

    def __repr__(self) -> str:
        """Omit what belongs to this process, so that the text is reproducible."""
        return super(Custom, self.replace(vmap_rule=None, rule_maker=None)).__repr__()


class Dimension:
    """A length that is known at the call: an index expression (core/rewriting/dimensions.py)."""

    __slots__ = ("node",)

    def __init__(self, node: Any) -> None:
        self.node = node
