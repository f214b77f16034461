"""Matrices as expressions: products, triangles and diagonals of the last two axes of nodes.

>>> from fnx.core.ir import dtypes
>>> a = Matrix(build.param(0, dtypes.float32, (7, 2, 3)))
>>> (a @ a.T).node.shape
(7, 2, 2)
"""

from __future__ import annotations

from typing import Any

from fnx.core.ir import build, build_calls, ops
from fnx.core.ir.expr import Expr
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp


class Matrix(Expr):
    """Matrices in the last two axes of a node. Elementwise operators expect equal shapes."""

    __slots__ = ()

    def _apply(self, op: Op, *operands: Any) -> Matrix:
        return Matrix(build.elementwise(op, *map(self._node_of, operands)))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.node.shape

    @property
    def T(self) -> Matrix:
        """The transposes."""
        n = len(self.shape)
        return Matrix(build.permute(self.node, (*range(n - 2), n - 1, n - 2)))

    @property
    def conj(self) -> Matrix:
        """The complex conjugates; real matrices themselves."""
        if not self.node.dtype.is_complex:
            return self
        parts = build.elementwise(ops.REAL, self.node), build.elementwise(ops.IMAG, self.node)
        return Matrix(build.complex_number(parts[0], build.neg(parts[1])))

    @property
    def H(self) -> Matrix:
        """The conjugate transposes."""
        return self.T.conj

    @property
    def imaginary(self) -> Matrix:
        """The matrices without the real parts; zeros of real ones."""
        return (self - self.conj) * 0.5

    def __matmul__(self, other: Matrix) -> Matrix:
        """Return the products: EXPAND, MUL, REDUCE as in fnx.numpy.contraction."""
        *batch, m, k = self.shape
        n = other.shape[-1]
        left = build.reshape(self.node, (*batch, m, 1, k))
        right = build.reshape(other.T.node, (*batch, 1, n, k))
        shape = (*batch, m, n, k)
        product = build.mul(build.expand(left, shape), build.expand(right, shape))
        return Matrix(build.reduce(product, ops.ADD, (len(shape) - 1,)))

    def part(self, rows: int, columns: int) -> Matrix:
        """Return the first rows and columns."""
        *batch, _, _ = self.shape
        return Matrix(build.shrink(self.node, [*[(0, n) for n in batch], (0, rows),
                                               (0, columns)]))

    def right_part(self, columns: int) -> Matrix:
        """Return the columns after the first ones."""
        *batch, m, n = self.shape
        return Matrix(build.shrink(self.node, [*[(0, b) for b in batch], (0, m), (columns, n)]))

    def padded(self, rows: int, columns: int) -> Matrix:
        """Add rows and columns of zeros at the end."""
        *batch, m, n = self.shape
        return Matrix(build.pad(self.node, [*[(0, 0) for _ in batch], (0, rows - m),
                                            (0, columns - n)]))

    def lower(self, k: int = 0) -> Matrix:
        """Keep the elements with column - row <= k."""
        row, column = self._indices()
        return self._masked(build.le(column, build.add(row, build.const_like(row, k))))

    def upper(self, k: int = 0) -> Matrix:
        """Keep the elements with column - row >= k."""
        row, column = self._indices()
        return self._masked(build.le(build.add(row, build.const_like(row, k)), column))

    def is_diagonal(self) -> UOp:
        """Return where the row is the column."""
        return build.eq(*self._indices())

    def diagonal(self) -> UOp:
        """Return the diagonals of square matrices: sums of rows with one element each."""
        only = self._masked(self.is_diagonal())
        return build.reduce(only.node, ops.ADD, (len(self.shape) - 1,))

    def _masked(self, mask: UOp) -> Matrix:
        return Matrix(build.where(mask, self.node, build.const_like(self.node, 0)))

    def _indices(self) -> tuple[UOp, UOp]:
        """Return the row and the column of each element."""
        *batch, m, n = self.shape
        rows, columns = build.reshape(build.iota(m), (m, 1)), build.reshape(build.iota(n), (1, n))
        ones = (1,) * len(batch)
        row, column = (build.expand(build.reshape(x, (*ones, *x.shape)), self.shape)
                       for x in (rows, columns))
        return row, column

    def take_rows(self, order: UOp) -> Matrix:
        """Return the rows with these indices, of each matrix its own."""
        *batch, _, n = self.shape
        shape = (*batch, order.shape[-1], n)
        index = [build.expand(build.reshape(build.iota(b), (b, *(1,) * (len(shape) - a - 1))),
                              shape) for a, b in enumerate(batch)]
        rows = build.expand(build.reshape(order, (*shape[:-1], 1)), shape)
        columns = build.expand(build.reshape(build.iota(n), (*(1,) * (len(shape) - 1), n)), shape)
        return Matrix(build.gather(self.node, *index, rows, columns))


def identity(n: int, like: Matrix) -> Matrix:
    """Return identity matrices with the batch axes and the dtype of others."""
    square = Matrix(build.const(1, like.node.dtype, (*like.shape[:-2], n, n)))
    return square._masked(square.is_diagonal())


def as_row(vector: UOp, rows: int, like: Matrix | None = None) -> Matrix:
    """Repeat vectors as the rows of matrices, in the dtype of others."""
    *batch, n = vector.shape
    vector = vector if like is None else build.cast(vector, like.node.dtype)
    return Matrix(build.expand(build.reshape(vector, (*batch, 1, n)), (*batch, rows, n)))


def as_column(vector: UOp, columns: int, like: Matrix | None = None) -> Matrix:
    """Repeat vectors as the columns of matrices, in the dtype of others."""
    *batch, n = vector.shape
    vector = vector if like is None else build.cast(vector, like.node.dtype)
    return Matrix(build.expand(build.reshape(vector, (*batch, n, 1)), (*batch, n, columns)))


def reciprocal_or_zero(x: Matrix) -> Matrix:
    """Return 1 / x, and 0 where x is 0."""
    is_zero = x.eq(0).node
    safe = build.where(is_zero, build.const_like(x.node, 1), x.node)
    inverse = (1 / Matrix(safe)).node
    return Matrix(build.where(is_zero, build.const_like(x.node, 0), inverse))


def triangular_solve(a: Matrix, b: Matrix, *options: str) -> Matrix:
    """Solve a x = b, or with "right" x a = b."""
    return Matrix(build_calls.linalg("triangular_solve", [a.node, b.node], options)[0])


def real_part(x: UOp) -> UOp:
    return build.elementwise(ops.REAL, x) if x.dtype.is_complex else x


def row_sums(x: Matrix) -> UOp:
    return build.reduce(x.node, ops.ADD, (len(x.shape) - 1,))


def shift_rows(x: Matrix, by: int) -> Matrix:
    """Move the rows down (1) or up (-1), and put zeros in the first or last row."""
    *batch, n, columns = x.shape
    whole = [(0, b) for b in batch]
    start = (0, n - 1) if by > 0 else (1, n)
    inner = build.shrink(x.node, [*whole, start, (0, columns)])
    widths = [*[(0, 0)] * len(batch), (1, 0) if by > 0 else (0, 1), (0, 0)]
    return Matrix(build.pad(inner, widths))


def shift(vector: UOp, by: int) -> UOp:
    """Move the elements of vectors like the rows of matrices."""
    return build.reshape(shift_rows(as_column(vector, 1), by).node, vector.shape)


def matrix_diagonal(x: UOp) -> UOp:
    """Return the diagonal of the last two axes, both of length n.

    Padded by n elements, they reshape to rows of n + 1, of which column 0 is the diagonal.
    """
    *batch, n, _ = x.shape
    if n < 2:
        return build.reshape(x, (*batch, n))
    no_pad = [(0, 0)] * len(batch)
    flat = build.pad(build.reshape(x, (*batch, n * n)), [*no_pad, (0, n)],
                     False if x.dtype.is_bool else 0)
    rows = build.reshape(flat, (*batch, n, n + 1))
    column = build.shrink(rows, [*[(0, k) for k in batch], (0, n), (0, 1)])
    return build.reshape(column, (*batch, n))
