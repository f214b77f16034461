"""The blocks of arrays that kernels get, and the memories of JAX's devices, for ``pallas``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import fnx.numpy as jnp
from fnx.core.array.aval import ShapeDtypeStruct
from fnx.core.support.errors import ArgumentError, ShapeError


class MemorySpace:
    """A memory of JAX's devices; all memory is one kind here. Called, it gives a scratch type.

    Args:
        name: of the memory.

    >>> MemorySpace("VMEM")((2,), "float32")
    ShapeDtypeStruct(shape=(2,), dtype=float32)
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, shape: Sequence[int], dtype: Any) -> ShapeDtypeStruct:
        return ShapeDtypeStruct(tuple(shape), dtype)

    def __repr__(self) -> str:
        return self.name


ANY = MemorySpace("ANY")


class CompilerParams:
    """Parameters of JAX's compilers of kernels: accepted, and without effect.

    Args:
        params: any.
    """

    def __init__(self, **params: Any) -> None:
        vars(self).update(params)


class CostEstimate(NamedTuple):
    """What a kernel costs, for JAX's scheduler: accepted, and without effect."""

    flops: int
    transcendentals: int
    bytes_accessed: int
    remote_bytes_transferred: int = 0


class BlockSpec:
    """The block of an array that a step of the grid gets.

    Args:
        block_shape: its shape; None for an axis that the kernel does not see, of length 1. By
            default the whole array.
        index_map: the indices of the grid -> the indices of the block, in blocks.
        pipeline_mode: accepted for compatibility with JAX.
        memory_space: accepted for compatibility with JAX.

    >>> BlockSpec((2, None), lambda i: (i, 0)).block_shape
    (2, None)
    """

    def __init__(self, block_shape: Sequence[int | None] | None = None,
                 index_map: Callable[..., Any] | None = None, pipeline_mode: Any = None, *,
                 memory_space: Any = None) -> None:
        self.block_shape = None if block_shape is None else tuple(block_shape)
        self.index_map, self.memory_space = index_map, memory_space

    def sizes(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the lengths of the axes of a block of an array.

        Args:
            shape: of the array.

        Returns:
            A tuple.

        Raises:
            ShapeError: the block has another number of axes, or is empty.

        >>> BlockSpec((2, None)).sizes((4, 3))
        (2, 1)
        """
        if self.block_shape is None:
            return shape
        sizes = tuple([1 if n is None else n for n in self.block_shape])
        if len(sizes) != len(shape) or any(n < 1 for n in sizes):
            raise ShapeError(f"expected blocks with {len(shape)} axes, like the array of shape "
                             f"{shape}, got {self.block_shape}",
                             hint="None is an axis that the kernel does not see")
        return sizes

    def padded(self, x: Any) -> Any:
        """Return an array with zeros at the ends of its axes, to a multiple of the block.

        Args:
            x: the array.

        Returns:
            An array.

        >>> BlockSpec((2,)).padded(jnp.ones(3))
        Array([1., 1., 1., 0.], dtype=float32)
        """
        sizes = self.sizes(x.shape)
        if all(m % n == 0 for n, m in zip(sizes, x.shape)):
            return x
        return jnp.pad(x, [(0, -m % n) for n, m in zip(sizes, x.shape)])

    def starts(self, sizes: tuple[int, ...], ids: Sequence[Any]) -> list[Any]:
        """Return where the block of a step begins.

        Args:
            sizes: the lengths of its axes.
            ids: the indices of the step.

        Returns:
            A list of integers.

        >>> BlockSpec((2,), lambda i: i).starts((2,), [3])
        [6]
        """
        if self.index_map is None:
            return [0] * len(sizes)
        at = self.index_map(*ids)
        indices = at if isinstance(at, tuple | list) else (at,)
        if len(indices) != len(sizes):
            raise ArgumentError(f"expected the index_map of a block {self.block_shape} to return "
                                f"{len(sizes)} indices, got {len(indices)}",
                                hint="return one for each axis of the array")
        return [i * n for i, n in zip(indices, sizes)]

    def squeezed(self) -> tuple[int, ...]:
        """Return the axes that the kernel does not see.

        Returns:
            A tuple.

        >>> BlockSpec((2, None)).squeezed()
        (1,)
        """
        return tuple([i for i, n in enumerate(self.block_shape or ()) if n is None])


no_block_spec = BlockSpec()


class GridSpec:
    """The grid of a kernel and its blocks.

    Args:
        grid: the number of steps along each axis.
        in_specs: a BlockSpec for each input.
        out_specs: a BlockSpec for each output.
        scratch_shapes: types of arrays that all steps share.

    >>> GridSpec(grid=(4,)).grid
    (4,)
    """

    def __init__(self, grid: int | Sequence[int] = (), in_specs: Any = None, out_specs: Any = None,
                 scratch_shapes: Any = ()) -> None:
        self.grid = (grid,) if isinstance(grid, int) else tuple(grid)
        self.in_specs, self.out_specs = in_specs, out_specs
        self.scratch_shapes = tuple(scratch_shapes)
