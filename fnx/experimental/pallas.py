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
from fnx.core.array.recorded_calls import record_call
from fnx.core.support.errors import ArgumentError, lazy_module
from fnx.core.support.process import lazy_import
from fnx.core.tracing.references import Ref
from fnx.experimental.pallas_blocks import (
    ANY,
    BlockSpec,
    CompilerParams,
    CostEstimate,
    GridSpec,
    MemorySpace,
    no_block_spec,
)

__all__ = ["ANY", "BlockSpec", "CompilerParams", "CostEstimate", "GridSpec", "MemorySpace",
           "align_to", "cdiv", "debug_print", "ds", "dslice", "loop", "multiple_of",
           "next_power_of_2", "no_block_spec", "num_programs", "pallas_call", "program_id",
           "run_scoped", "when"]

debug = lazy_import("fnx.debug")


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


def multiple_of(x: Any, values: Any) -> Any:
    """Return the number, of which JAX's compilers are told that it is a multiple.

    Args:
        x: an integer.
        values: what it is a multiple of.

    Returns:
        ``x``.

    >>> multiple_of(8, 4)
    8
    """
    return x


def align_to(x: int, a: int) -> int:
    """Return the next multiple.

    Args:
        x: an integer.
        a: of what.

    Returns:
        An int.

    >>> align_to(5, 4)
    8
    """
    return a * int(cdiv(x, a))


def next_power_of_2(x: int) -> int:
    """Return the smallest power of two that is not smaller.

    Args:
        x: a positive int.

    Returns:
        An int.

    >>> next_power_of_2(5)
    8
    """
    return 1 << (x - 1).bit_length()


def debug_print(fmt: str, *args: Any) -> None:
    """Print values in a kernel.

    Args:
        fmt: a format string; values that it does not name follow it.
        args: arrays.

    >>> import fnx
    >>> debug_print("at {}", 3); fnx.effects_barrier()
    at 3
    """
    debug.print(fmt if "{" in fmt else f"{fmt}{' {}' * len(args)}", *args)


def loop(lower: Any, upper: Any, *, init_carry: Any = None, step: Any = 1, unroll: Any = None
         ) -> Callable[[Callable[..., Any]], Any]:
    """Run the function that is decorated for each index of a range.

    Args:
        lower: the first index.
        upper: the end.
        init_carry: what the function takes after the index, and returns; None: nothing.
        step: the step between indices.
        unroll: as for ``lax.fori_loop``.

    Returns:
        A decorator, which returns the last carry.

    >>> import fnx
    >>> r = fnx.new_ref(0)
    >>> @loop(0, 4)
    ... def _(i): r[...] += i
    >>> r[...]
    Array(6, dtype=int32)
    """
    def run(f: Callable[..., Any]) -> Any:
        def body(i: Any, carry: Any) -> Any:
            index = lower + i * step
            if init_carry is None:
                f(index)
                return carry
            return f(index, carry)
        return lax.fori_loop(0, cdiv(upper - lower, step), body, init_carry, unroll=unroll)
    return run


def run_scoped(f: Callable[..., Any], *types: Any, collective_axes: Any = (), **kw_types: Any
               ) -> Any:
    """Call a function with references to new memory.

    Args:
        f: the function.
        types: types of arrays, in pytrees.
        collective_axes: accepted for compatibility with JAX.
        kw_types: types of arrays that it takes by name.

    Returns:
        What it returns.

    >>> import fnx
    >>> run_scoped(lambda r: r[...], fnx.ShapeDtypeStruct((2,), "float32"))
    Array([0., 0.], dtype=float32)
    """
    references = tree.map(lambda t: Ref(jnp.zeros(t.shape, t.dtype)), (types, kw_types))
    return f(*references[0], **references[1])


def pallas_call(kernel: Callable[..., Any], out_shape: Any, *, grid_spec: GridSpec | None = None,
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
        ShapeError: blocks have another number of axes than their array.
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
    several = isinstance(out_shape, tuple | list)
    types, out_tree = tree.flatten(tuple(out_shape) if several else out_shape)

    def call(*args: Any) -> Any:
        leaves, in_tree = tree.flatten(args)
        arrays = ins = [asarray(x) for x in leaves]

        def run_on(ins_outs: Sequence[Ref], scratch: Sequence[Ref]) -> None:
            outs = out_tree.unflatten(ins_outs[len(ins):])
            out = kernel(*in_tree.unflatten(ins_outs[:len(ins)]), *(outs if several else [outs]),
                         *scratch)
            if out is not None:
                raise ArgumentError(f"expected a kernel to return None, got {type(out).__name__}",
                                    hint="write results to the references of the outputs")
        specs = _specs(spec.in_specs, len(ins)), _specs(spec.out_specs, len(types))
        outs = [jnp.zeros(t.shape, t.dtype) for t in types]
        for i, o in (input_output_aliases or {}).items():
            outs[o] = ins[i]
        ins = [s.padded(x) for s, x in zip(specs[0], ins)]
        outs = [s.padded(x) for s, x in zip(specs[1], outs)]
        scratch = [jnp.zeros(t.shape, t.dtype) for t in spec.scratch_shapes]
        steps = 1
        for n in spec.grid:
            steps *= n

        def step(t: Any, state: Any) -> Any:
            ids: list[Any] = []
            for n in reversed(spec.grid):
                ids.insert(0, t % n)
                t = t // n
            return _run(run_on, ids, spec.grid, ins, specs, *state)
        outs, _ = lax.fori_loop(0, steps, step, (outs, scratch))
        out = out_tree.unflatten([x[tuple([slice(n) for n in t.shape])]
                                  if x.shape != tuple(t.shape) else x
                                  for x, t in zip(outs, types)])
        return record_call("pallas_call", lambda *xs: call(*in_tree.unflatten(xs)), call.__name__,
                           arrays, out)
    call.__name__ = name or str(getattr(kernel, "__name__", "kernel"))
    return call


def _specs(specs: Any, n: int) -> list[BlockSpec]:
    block_specs = [no_block_spec] * n if specs is None else tree.leaves(
        specs, is_leaf=lambda x: isinstance(x, BlockSpec))
    if len(block_specs) != n:
        raise ArgumentError(f"pallas_call: expected a BlockSpec for each of {n} arrays, got "
                            f"{len(block_specs)}")
    return block_specs


def _run(kernel: Callable[[Sequence[Ref], Sequence[Ref]], None], ids: Sequence[Any],
         grid: tuple[int, ...], ins: Sequence[Any],
         specs: tuple[list[BlockSpec], list[BlockSpec]], outs: list[Any], scratch: list[Any]
         ) -> tuple[list[Any], list[Any]]:
    """Return the outputs and the scratch arrays after a step."""
    where = [(spec, sizes, spec.starts(sizes, ids)) for spec, x in zip(
        [*specs[0], *specs[1]], [*ins, *outs]) for sizes in [spec.sizes(x.shape)]]
    references = [Ref(lax.dynamic_slice(x, starts, sizes).squeeze(spec.squeezed()))
                  for x, (spec, sizes, starts) in zip([*ins, *outs], where)]
    shared = [Ref(x) for x in scratch]
    with _step(ids, grid):
        kernel(references, shared)
    blocks = [r[...].reshape(sizes) for r, (_, sizes, _) in zip(references, where)][len(ins):]
    return [lax.dynamic_update_slice(x, block, starts)
            for x, block, (_, _, starts) in zip(outs, blocks, where[len(ins):])], \
        [r[...] for r in shared]


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
