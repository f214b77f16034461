"""Trace a user-written kernel: Python code over references -> an untiled KERNEL.

    i = k.range(o.shape[0], "i")          KERNEL(STORE(o[i], LOAD(x[i]) * LOAD(x[i])))
    o[i] = x[i] * x[i]
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

from fnx.core import build, ops, parts
from fnx.core.dtypes import DType
from fnx.core.errors import KernelError
from fnx.core.ops import Shape
from fnx.core.uop import UOp, current_site, inherit, toposort
from fnx.transforms.kernels import carried, places
from fnx.transforms.kernels.kernel_prints import Prints, finished
from fnx.transforms.kernels.references import Reference, check_order
from fnx.transforms.kernels.tracing import OPEN, Tracing
from fnx.transforms.kernels.values import make_range


def trace_kernel(f: Callable[..., Any], name: str,
                 make_args: Callable[[Callable[[DType, Shape, bool, str], Reference]],
                                     Sequence[Any]]) -> tuple[UOp, Prints]:
    """Trace f into an untiled KERNEL and its prints.

    ``make_args`` builds the arguments of f from references.
    """
    tracing = Tracing(name)
    outputs: list[Reference] = []
    count = 0

    def reference(dtype: DType, shape: Shape, written: bool, label: str) -> Reference:
        nonlocal count
        made = Reference(build.ref(count, dtype, shape, label), shape, written)
        count += 1
        if written:
            outputs.append(made)
        return made

    OPEN.tracings.append(tracing)
    old, current_site.site = current_site.site, None  # stores have their own location
    try:
        args = make_args(reference)
        tracing.slots = count
        returned = f(*args)
        if returned is not None:
            raise KernelError(f"kernel {name}: expected no return value, got "
                              f"{type(returned).__name__}", hint="write results: o[i] = value")
        _complete(tracing)
        prints, hidden = finished(tracing, count + len(tracing.checks))
        outputs += [Reference(ref, shape, True) for ref, shape in hidden]
        for o in outputs:
            _fill(o, tracing)
    finally:
        current_site.site = old
        OPEN.tracings.pop()
    used = set(toposort(tracing.stores))
    order = [r.arg.id for r in tracing.ranges if r in used]
    return build.kernel(tracing.stores, name, order), prints


def _complete(tracing: Tracing) -> None:
    """Complete the carried values, then check the order of STOREs inside loops."""
    if not tracing.loops:
        return
    stores = carried.completed(tracing.stores)
    for i, (written, store) in enumerate(zip(tracing.stores, stores)):
        if written in tracing.written:
            check_order(store, stores[:i], tracing.written[written])
    tracing.stores[:] = stores


def _fill(o: Reference, tracing: Tracing) -> None:
    """Initialize elements that no store writes: 0, or the identity of the kernel's combine."""
    stores = [s for s in tracing.stores if parts.buffer(s) is o._buffer]
    size = math.prod(o.shape)
    if not size:
        return
    if not stores:
        raise KernelError(f"kernel {tracing.name}: expected a store to {o.name!r}, got none",
                          hint=f"write {o.name}[i] = value")
    plain = list(itertools.takewhile(
        lambda s: s.arg is None and not carried.may_be_skipped(s), stores))
    if places.is_covered(plain, size):
        return
    combining = [s for s in stores if s.arg is not None][:1]
    start = 0 if not combining or combining[0].arg is ops.STORE else \
        combining[0].arg.identity(o._buffer.dtype)
    zero = build.const(start, o._buffer.dtype)
    if plain and len(plain[0].src) == 3 and not carried.is_inside(plain[0]):
        place, value, valid = plain[0].src
        whole = build.store(place, build.where(valid, value, zero))
        outside = any(any(places.limits(i, n, None)) for i, n in zip(parts.indices(place), o.shape))
        if not outside and places.is_written_once(whole) and places.is_covered([whole], size):
            tracing.stores[tracing.stores.index(plain[0])] = inherit(whole, plain[0])
            return
    index = [build.index_const(0) if n == 1 else
             make_range(n, f"fill{o._buffer.arg.slot}_{axis}").node
             for axis, n in enumerate(o.shape)]
    fill = build.store(build.at(o._buffer, *index), zero)
    tracing.stores.insert(0, inherit(fill, stores[0]))


