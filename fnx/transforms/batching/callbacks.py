"""How a batch axis goes through a CALLBACK.

    with effect   one CALLBACK with a further batch axis: Python is called once per element, in
                  order
    pure          the same, or one call with batch axes, as its ``method`` says
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core.ir import build, dtypes, op_args, ops
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import NotBatchedError
from fnx.transforms.batching.patterns import BatchAxis, BatchedValue, BatchSteps
from fnx.transforms.batching.rules import broadcast_batch

_SEQUENTIAL = ("sequential", "sequential_unrolled")


def batch_callback(node: UOp, src: tuple[UOp, ...], batched: tuple[bool, ...], batch: BatchAxis
                   ) -> BatchSteps[list[BatchedValue]]:
    """Return the results of a CALLBACK over a batch; its token has no batch axis."""
    arg, first, size = node.arg, 1 + node.arg.effect, batch.size
    args, flags = src[first:], batched[first:]
    if not arg.effect and not arg.method:
        raise NotBatchedError(f"expected a vmap_method for {arg.name} under vmap, got none",
                              hint='give it vmap_method="sequential", which calls it once for '
                                   "each element, or another that calls it for all of them",
                              loc=node.loc)
    batch_levels = arg.batch_levels
    if arg.effect or arg.method in _SEQUENTIAL:
        batch_levels = ((size, flags), *batch_levels)
    else:
        args = _widen(args, flags, size, arg.method)
    outs = arg.outs[:arg.effect] + tuple([((size, *shape), t) for shape, t in
                                          arg.outs[arg.effect:]])
    host_arg = op_args.Callback(arg.name, arg.effect, tuple([(x.shape, x.dtype) for x in args]),
                                outs, batch_levels, arg.masked, arg.method)
    results = build.results(UOp(ops.CALLBACK, dtypes.void, (*src[:first], *args), host_arg))
    yield from ()
    return [BatchedValue(x, i >= arg.effect) for i, x in enumerate(results)]


def _widen(xs: Sequence[UOp], batched: Sequence[bool], size: int, method: str) -> tuple[UOp, ...]:
    """Return the operands of one call for the whole batch."""
    if method == "broadcast_all":
        return tuple([broadcast_batch(x, b, size) for x, b in zip(xs, batched)])
    if method == "expand_dims":
        return tuple([x if b else build.reshape(x, (1, *x.shape)) for x, b in zip(xs, batched)])
    return tuple(xs)
