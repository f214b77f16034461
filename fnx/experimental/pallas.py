"""Kernels over blocks of arrays, under the names of ``jax.experimental.pallas``.

The meaning of a kernel is a loop over its grid: each step reads blocks of the inputs into
references, runs the kernel, and writes the blocks of the outputs. It is compiled as such a loop
(JAX's interpret mode), so the steps run in order; ``fnx.call`` compiles kernels that are tiled.

>>> import fnx, fnx.numpy as jnp
>>> from fnx.experimental import pallas as pl
>>> def double(x_ref, y_ref):
...     y_ref[...] = 2 * x_ref[...]
>>> pl.pallas_call(double, out_shape=fnx.ShapeDtypeStruct((3,), "float32"))(jnp.ones(3))
Array([2., 2., 2.], dtype=float32)
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import fnx.lax as lax
import fnx.numpy as jnp
from fnx.core.array import tree
from fnx.core.array.api_boundary import asarray
from fnx.core.support.errors import ArgumentError, ShapeError, lazy_module
from fnx.core.tracing.references import Ref

__all__ = ["BlockSpec", "GridSpec", "cdiv", "ds", "dslice", "no_block_spec", "num_programs",
           "pallas_call", "program_id", "when"]


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
            ShapeError: the block has another number of axes, or does not divide the array.

        >>> BlockSpec((2, None)).sizes((4, 3))
        (2, 1)
        """
        if self.block_shape is None:
            return shape
        sizes = tuple([1 if n is None else n for n in self.block_shape])
        if len(sizes) != len(shape) or any(n < 1 or m % n for n, m in zip(sizes, shape)):
            raise ShapeError(f"expected blocks that divide an array of shape {shape}, got "
                             f"{self.block_shape}", hint="pad the array to a multiple")
        return sizes

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
        return [i * n for i, n in zip(at if isinstance(at, tuple | list) else (at,), sizes)]

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


class _Steps(threading.local):
    def __init__(self) -> None:
        self.open: list[tuple[Sequence[Any], tuple[int, ...]]] = []


_steps = _Steps()


@contextlib.contextmanager
def _step(ids: Sequence[Any], grid: tuple[int, ...]) -> Iterator[None]:
    _steps.open.append((ids, grid))
    try:
        yield
    finally:
        _steps.open.pop()


def _of_step(axis: int, which: int) -> Any:
    if not _steps.open or not 0 <= axis < len(_steps.open[-1][1]):
        raise ArgumentError(f"expected an axis of the grid of a kernel, got {axis}",
                            hint="call it in a kernel of pallas_call")
    return _steps.open[-1][which][axis]


def program_id(axis: int) -> Any:
    """Return the index of the step along an axis of the grid.

    Args:
        axis: of the grid.

    Returns:
        An int32 scalar.

    Raises:
        ArgumentError: there is no such axis, or no kernel.

    >>> import fnx
    >>> from fnx.experimental import pallas as pl
    >>> def kernel(o_ref):
    ...     o_ref[pl.program_id(0)] = pl.program_id(0)
    >>> pl.pallas_call(kernel, out_shape=fnx.ShapeDtypeStruct((3,), "int32"), grid=3)()
    Array([0, 1, 2], dtype=int32)
    """
    return _of_step(axis, 0)


def num_programs(axis: int) -> int:
    """Return the number of steps along an axis of the grid.

    Args:
        axis: of the grid.

    Returns:
        An int.

    Raises:
        ArgumentError: there is no such axis, or no kernel.

    >>> import fnx
    >>> from fnx.experimental import pallas as pl
    >>> def kernel(o_ref): o_ref[...] = pl.num_programs(0)
    >>> pl.pallas_call(kernel, out_shape=fnx.ShapeDtypeStruct((), "int32"), grid=3)()
    Array(3, dtype=int32)
    """
    n: int = _of_step(axis, 1)
    return n


def when(condition: Any) -> Callable[[Callable[[], None]], None]:
    """Run the function that is decorated if a condition holds.

    Args:
        condition: a bool scalar.

    Returns:
        A decorator.

    >>> import fnx
    >>> r = fnx.new_ref(0)
    >>> @when(True)
    ... def _(): r[...] = 5
    >>> r[...]
    Array(5, dtype=int32)
    """
    def run(f: Callable[[], None]) -> None:
        def taken() -> None:
            f()
        lax.cond(condition, taken, lambda: None)
    return run


def cdiv(a: Any, b: Any) -> Any:
    """Return the quotient of integers, rounded up.

    Args:
        a: the dividend.
        b: the divisor.

    Returns:
        An integer.

    >>> cdiv(7, 2)
    4
    """
    return -(-a // b)


def ds(start: Any, size: int, stride: int = 1) -> Any:
    """Return the indices of ``size`` elements from ``start`` on, as an index of a reference.

    Args:
        start: the first one, also a traced number.
        size: how many.
        stride: the step between them.

    Returns:
        An index.

    >>> import fnx, fnx.numpy as jnp
    >>> fnx.new_ref(jnp.arange(5))[ds(1, 2)]
    Array([1, 2], dtype=int32)
    """
    return start + stride * jnp.arange(size)


dslice = ds


def pallas_call(kernel: Callable[..., None], out_shape: Any, *, grid_spec: GridSpec | None = None,
                grid: int | Sequence[int] = (), in_specs: Any = None, out_specs: Any = None,
                scratch_shapes: Any = (), input_output_aliases: Mapping[int, int] | None = None,
                debug: bool = False, interpret: Any = False, name: str | None = None,
                compiler_params: Any = None, cost_estimate: Any = None, metadata: Any = None
                ) -> Callable[..., Any]:
    """Return a function of arrays that runs a kernel for each step of a grid.

    Args:
        kernel: takes references to blocks of the inputs, of the outputs, and scratch arrays.
        out_shape: a pytree of objects with ``shape`` and ``dtype``.
        grid_spec: the grid and the blocks, instead of the next arguments.
        grid: the number of steps along each axis.
        in_specs: a BlockSpec for each input; by default the whole arrays.
        out_specs: a BlockSpec for each output.
        scratch_shapes: types of arrays that all steps share.
        input_output_aliases: number of an input -> number of the output that begins as it.
        debug: accepted for compatibility with JAX, as are the arguments after ``name``.
        interpret: accepted for compatibility with JAX: kernels are loops over the grid.
        name: of the kernel.
        compiler_params: see ``debug``.
        cost_estimate: see ``debug``.
        metadata: see ``debug``.

    Returns:
        A function of the inputs that returns arrays like ``out_shape``.

    Raises:
        ShapeError: blocks do not divide their array.
        ArgumentError: the number of blocks is not that of the arrays.

    >>> import fnx, fnx.numpy as jnp
    >>> from fnx.experimental import pallas as pl
    >>> def add(x_ref, y_ref): y_ref[...] = x_ref[...] + pl.program_id(0)
    >>> rows = pl.BlockSpec((1, 2), lambda i: (i, 0))
    >>> pl.pallas_call(add, fnx.ShapeDtypeStruct((2, 2), "int32"), grid=2, in_specs=[rows],
    ...                out_specs=rows)(jnp.zeros((2, 2), int))
    Array([[0, 0],
           [1, 1]], dtype=int32)
    """
    spec = grid_spec or GridSpec(grid, in_specs, out_specs, scratch_shapes)
    types, out_tree = tree.flatten(out_shape)

    def call(*args: Any) -> Any:
        ins = [asarray(x) for x in args]
        specs = _specs(spec.in_specs, len(ins)), _specs(spec.out_specs, len(types))
        outs = [jnp.zeros(t.shape, t.dtype) for t in types]
        for i, o in (input_output_aliases or {}).items():
            outs[o] = ins[i]
        scratch = [jnp.zeros(t.shape, t.dtype) for t in spec.scratch_shapes]
        steps = 1
        for n in spec.grid:
            steps *= n

        def step(t: Any, state: Any) -> Any:
            ids: list[Any] = []
            for n in reversed(spec.grid):
                ids.insert(0, t % n)
                t = t // n
            return _run(kernel, ids, spec.grid, ins, specs, *state)
        outs, _ = lax.fori_loop(0, steps, step, (outs, scratch))
        return out_tree.unflatten(outs)
    call.__name__ = name or str(getattr(kernel, "__name__", "kernel"))
    return call


def _specs(specs: Any, n: int) -> list[BlockSpec]:
    block_specs = [no_block_spec] * n if specs is None else tree.leaves(
        specs, is_leaf=lambda x: isinstance(x, BlockSpec))
    if len(block_specs) != n:
        raise ArgumentError(f"pallas_call: expected a BlockSpec for each of {n} arrays, got "
                            f"{len(block_specs)}")
    return block_specs


def _run(kernel: Callable[..., None], ids: Sequence[Any], grid: tuple[int, ...], ins: Sequence[Any],
         specs: tuple[list[BlockSpec], list[BlockSpec]], outs: list[Any], scratch: list[Any]
         ) -> tuple[list[Any], list[Any]]:
    """Return the outputs and the scratch arrays after a step."""
    where = [(spec, sizes, spec.starts(sizes, ids)) for spec, x in zip(
        [*specs[0], *specs[1]], [*ins, *outs]) for sizes in [spec.sizes(x.shape)]]
    references = [Ref(lax.dynamic_slice(x, starts, sizes).squeeze(spec.squeezed()))
                  for x, (spec, sizes, starts) in zip([*ins, *outs], where)]
    shared = [Ref(x) for x in scratch]
    with _step(ids, grid):
        kernel(*references, *shared)
    blocks = [r[...].reshape(sizes) for r, (_, sizes, _) in zip(references, where)][len(ins):]
    return [lax.dynamic_update_slice(x, block, starts)
            for x, block, (_, _, starts) in zip(outs, blocks, where[len(ins):])], \
        [r[...] for r in shared]


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
