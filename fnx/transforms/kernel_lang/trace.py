"""Trace a user-written kernel: Python code over references -> an untiled KERNEL.

    i = k.range(o.shape[0], "i")          KERNEL(STORE(o[i], LOAD(x[i]) * LOAD(x[i])))
    o[i] = x[i] * x[i]
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

from fnx.core.ir import accessors, build, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.ops import Shape
from fnx.core.ir.uop import UOp, copy_locs, current_loc, toposort
from fnx.core.support.errors import KernelError, warn
from fnx.transforms.kernel_lang import accesses, carried_values
from fnx.transforms.kernel_lang.kernel_prints import Prints, collect_prints
from fnx.transforms.kernel_lang.references import Reference, check_order
from fnx.transforms.kernel_lang.trace_state import OPEN, KernelTrace
from fnx.transforms.kernel_lang.values import make_range

MANY_STORES = 256  # of one kernel: above, a loop was meant


def trace_kernel(f: Callable[..., Any], name: str,
                 make_args: Callable[[Callable[[DType, Shape, bool, str], Reference]],
                                     Sequence[Any]]) -> tuple[UOp, Prints]:
    """Trace f into an untiled KERNEL and its prints.

    ``make_args`` builds the arguments of f from references.
    """
    tracing = KernelTrace(name)
    outputs: list[Reference] = []
    count = 0

    def reference(dtype: DType, shape: Shape, written: bool, label: str) -> Reference:
        nonlocal count
        ref = Reference(build.ref(count, dtype, shape, label), shape, written)
        count += 1
        if written:
            outputs.append(ref)
        return ref

    OPEN.tracings.append(tracing)
    old, current_loc.loc = current_loc.loc, None  # stores have their own location
    try:
        args = make_args(reference)
        tracing.slots = count
        _check_parameters(f, name, args)
        returned = f(*args)
        if returned is not None:
            raise KernelError(f"kernel {name}: expected no return value, got "
                              f"{type(returned).__name__}", hint="write results: o[i] = value")
        if len(tracing.stores) > MANY_STORES:
            warn(f"kernel {name}: {len(tracing.stores)} stores were traced, as a Python loop is "
                 "unrolled: use k.range for a loop of the kernel", RuntimeWarning)
        _complete_carries(tracing)
        prints, hidden = collect_prints(tracing, count + len(tracing.checks))
        outputs += [Reference(ref, shape, True) for ref, shape in hidden]
        for o in outputs:
            _initialize_output(o, tracing)
    finally:
        current_loc.loc = old
        OPEN.tracings.pop()
    used = set(toposort(tracing.stores))
    order = [r.arg.id for r in tracing.ranges if r in used]
    return build.kernel(tracing.stores, name, order), prints


def _check_parameters(f: Callable[..., Any], name: str, args: Sequence[Any]) -> None:
    """Raise unless the kernel has a parameter for each input and each output."""
    try:
        signature = inspect.signature(f)
    except (TypeError, ValueError):  # of a function in C there is none
        return
    try:
        signature.bind(*args)
    except TypeError:
        raise KernelError(f"kernel {name}: expected a parameter for each of {len(args)} inputs and "
                          f"outputs, got {name}{signature}",
                          hint="the inputs come first, then the outputs, which it writes: "
                               "def kernel(x, o): ... o[i] = x[i]") from None


def _complete_carries(tracing: KernelTrace) -> None:
    """Complete the carried values, then check the order of STOREs inside loops."""
    if not tracing.loops:
        return
    stores = carried_values.complete_carries(tracing.stores)
    for i, (traced, store) in enumerate(zip(tracing.stores, stores)):
        if traced in tracing.written:
            check_order(store, stores[:i], tracing.written[traced])
    tracing.stores[:] = stores


def _initialize_output(o: Reference, tracing: KernelTrace) -> None:
    """Initialize elements that no store writes: 0, or the identity of the kernel's combine."""
    stores = [s for s in tracing.stores if accessors.buffer(s) is o._buffer]
    size = math.prod(o.shape)
    if not size:
        return
    if not stores:
        raise KernelError(f"kernel {tracing.name}: expected a store to {o.name!r}, got none",
                          hint=f"write {o.name}[i] = value")
    plain = list(itertools.takewhile(
        lambda s: s.arg is None and not carried_values.may_be_skipped(s), stores))
    if accesses.covers_buffer(plain, size):
        return
    combining = [s for s in stores if s.arg is not None][:1]
    start = 0 if not combining or combining[0].arg is ops.STORE else \
        combining[0].arg.identity(o._buffer.dtype)
    initial = build.const(start, o._buffer.dtype)
    if plain and len(plain[0].src) == 3 and not carried_values.is_in_loop(plain[0]):
        access, value, valid = plain[0].src
        unmasked = build.store(access, build.where(valid, value, initial))
        outside = any(any(accesses.may_be_outside(i, n, None))
                      for i, n in zip(accessors.indices(access), o.shape))
        if not outside and accesses.is_written_once(unmasked) and \
                accesses.covers_buffer([unmasked], size):
            tracing.stores[tracing.stores.index(plain[0])] = copy_locs(unmasked, plain[0])
            return
    index = [build.index_const(0) if n == 1 else
             make_range(n, f"fill{o._buffer.arg.slot}_{axis}").node
             for axis, n in enumerate(o.shape)]
    fill = build.store(build.index_into(o._buffer, *index), initial)
    tracing.stores.insert(0, copy_locs(fill, stores[0]))


