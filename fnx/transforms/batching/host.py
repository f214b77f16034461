"""How a batch axis goes through a HOST.

    with effect   one HOST with a further batch axis: Python is called once per element, in order
    pure          the same, or one call with batch axes, as its ``method`` says
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core import build, dtypes, op_args, ops
from fnx.core.errors import NotBatchedError
from fnx.core.uop import UOp
from fnx.transforms.batching.rules import spread
from fnx.transforms.batching.values import Asking, Lanes, Lifted

_BY_LANES = ("sequential", "sequential_unrolled")


def host(node: UOp, src: tuple[UOp, ...], batched: tuple[bool, ...], lanes: Lanes
         ) -> Asking[list[Lifted]]:
    """Return the results of a HOST over a batch; its token has no batch axis."""
    arg, first, size = node.arg, 1 + node.arg.effect, lanes.size
    given, flags = src[first:], batched[first:]
    if not arg.effect and not arg.method:
        raise NotBatchedError(f"expected a vmap_method for {arg.name} under vmap, got none",
                              hint='give it vmap_method="sequential", which calls it once for '
                                   "each element, or another that calls it for all of them",
                              site=node.site)
    each = arg.lanes
    if arg.effect or arg.method in _BY_LANES:
        each = ((size, flags), *each)
    else:
        given = _wide(given, flags, size, arg.method)
    outs = arg.outs[:arg.effect] + tuple([((size, *shape), t) for shape, t in
                                          arg.outs[arg.effect:]])
    called = op_args.Host(arg.name, arg.effect, tuple([(x.shape, x.dtype) for x in given]), outs,
                          each, arg.masked, arg.method)
    found = build.results(UOp(ops.HOST, dtypes.void, (*src[:first], *given), called))
    yield from ()
    return [Lifted(x, i >= arg.effect) for i, x in enumerate(found)]


def _wide(xs: Sequence[UOp], batched: Sequence[bool], size: int, method: str) -> tuple[UOp, ...]:
    """Return the operands of one call for the whole batch."""
    if method == "broadcast_all":
        return tuple([spread(x, b, size) for x, b in zip(xs, batched)])
    if method == "expand_dims":
        return tuple([x if b else build.reshape(x, (1, *x.shape)) for x, b in zip(xs, batched)])
    return tuple(xs)
