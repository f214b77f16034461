"""The base class of sparse arrays, and warnings and errors about their efficiency."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fnx.core.array import arguments
from fnx.core.array.array import Array
from fnx.core.support.errors import ArgumentError, FnxError, NotBuiltError, ShapeError

__all__ = ["CuSparseEfficiencyWarning", "JAXSparse", "Layout", "SparseEfficiencyError",
           "SparseEfficiencyWarning", "SparseInfo"]

Shape = tuple[int, ...]


class SparseEfficiencyError(FnxError, ValueError):
    """A sparse array would store many zeros."""


class SparseEfficiencyWarning(UserWarning):
    """A sparse array stores many zeros."""


class CuSparseEfficiencyWarning(SparseEfficiencyWarning):
    """An operation on sparse arrays is slow on a GPU."""


class SparseInfo(NamedTuple):
    """What a sparse array knows besides its buffers."""

    shape: Shape
    indices_sorted: bool = False
    unique_indices: bool = False


class Layout(NamedTuple):
    """The parts of a shape, in this order: batch, sparse and dense axes."""

    batch: Shape
    sparse: Shape
    dense: Shape


class JAXSparse:
    """The base class of sparse arrays. Its objects are pytrees; the first leaf is ``data``.

    Args:
        args: the buffers.
        shape: the shape of the array.

    >>> from fnx.experimental import sparse
    >>> isinstance(sparse.eye(2), sparse.JAXSparse)
    True
    """

    data: Array
    shape: Shape
    __hash__ = None  # type: ignore[assignment]
    __array_priority__ = 100

    def __init__(self, args: tuple[Any, ...], *, shape: Sequence[int]) -> None:
        self.shape = tuple([arguments.check_int("shape", n) for n in shape])

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the elements."""
        return self.data.dtype

    @property
    def nse(self) -> int:
        """The number of specified elements (of each batch element)."""
        raise NotImplementedError

    @property
    def size(self) -> int:
        """The number of elements, with all zeros."""
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        try:
            text = f"{self.dtype.name}{list(self.shape)}, nse={self.nse}{self._details()}"
        except Exception:  # leaves may be anything
            return f"{type(self).__name__}(<invalid>)"
        return f"{type(self).__name__}({text})"

    def _details(self) -> str:
        return "".join([f", {name}={n}" for name in ("n_batch", "n_dense")
                        if (n := getattr(self, name, 0))])

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        """Return the buffers, and what is static."""
        raise NotImplementedError

    def transpose(self, axes: Sequence[int] | None = None) -> JAXSparse:
        """Return the array with its axes permuted."""
        raise NotImplementedError

    def todense(self) -> Array:
        """Return a dense array."""
        raise NotImplementedError

    @property
    def T(self) -> JAXSparse:
        """The transposed array."""
        return self.transpose()

    def block_until_ready(self) -> JAXSparse:
        """Wait for the buffers; return the array."""
        for buffer in self.tree_flatten()[0]:
            buffer.block_until_ready()
        return self


def check_layout(data: Any, indices: Any, shape: Shape) -> Layout:
    """Return the parts of the shape of batched coordinates, or raise if the buffers do not fit."""
    if indices.ndim < 2 or not indices._dtype.is_integer:
        raise ShapeError(f"expected integer indices of shape (batch..., nse, axes), got "
                         f"{indices.dtype}{list(indices.shape)}")
    nse, n_sparse = indices.shape[-2:]
    n_batch = indices.ndim - 2
    layout = Layout(shape[:n_batch], shape[n_batch:n_batch + n_sparse],
                    shape[n_batch + n_sparse:])
    fits = n_batch + n_sparse <= len(shape) and \
        fits_batch(indices.shape[:n_batch], layout.batch) and \
        fits_batch(data.shape[:n_batch], layout.batch) and \
        data.shape[n_batch:] == (nse, *layout.dense)
    if not fits:
        raise ShapeError(f"expected data of shape (batch..., nse, dense...) and indices of shape "
                         f"(batch..., nse, sparse axes) of an array of shape {shape}, got "
                         f"{data.shape} and {indices.shape}",
                         hint="a batch axis has its length or 1")
    return layout


def fits_batch(part: Shape, batch: Shape) -> bool:
    return len(part) == len(batch) and all(n in (1, size) for n, size in zip(part, batch))


def check_sparse(name: str, x: Any, kind: type) -> None:
    """Raise unless an argument is a sparse array of a kind."""
    if not isinstance(x, kind):
        raise ArgumentError(f"expected {name} as {kind.__name__}, got {type(x).__name__}",
                            hint=f"use sparse.{kind.__name__}.fromdense")


def refuse(operation: str, fix: str = "use sparse.todense first") -> NotBuiltError:
    """Return the error of an operation that would give a dense array."""
    return NotBuiltError(f"{operation} is not implemented", hint=fix)
