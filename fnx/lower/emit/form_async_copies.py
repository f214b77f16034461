"""Turn a load and a store to shared memory into an asynchronous copy.

    before  v = LOAD p mask                       after   ASYNC_COPY q p mask
            STORE q v  ASYNC

A STORE with arg ASYNC becomes an ASYNC_COPY if its value is all lanes of one LOAD, else a plain
STORE. The data of an ASYNC_COPY is available after an ASYNC_WAIT.

>>> from fnx.core.ir import build, dtypes, kernel_args
>>> x = UOp(ops.REF, dtypes.float32, (), kernel_args.Ref(0))
>>> zero = build.index_const(0)
>>> q = UOp(ops.SCRATCH, dtypes.float32, (zero,), kernel_args.Stage(0, "SHARED"))
>>> v = UOp(ops.LOAD, dtypes.float32, (UOp(ops.ADDRESS, dtypes.float32, (x, zero), 64),))
>>> to = UOp(ops.ADDRESS, dtypes.float32, (q, zero), 64)
>>> lines = q, v.src[0], v, to, UOp(ops.STORE, dtypes.void, (to, v), "ASYNC")
>>> made = form_async_copies(UOp(ops.PROGRAM, dtypes.void, lines))
>>> [line.op for line in made.src]
[SCRATCH, ADDRESS, ADDRESS, ASYNC_COPY]
"""

from __future__ import annotations

from fnx.core.ir import dtypes, ops
from fnx.core.ir.uop import UOp
from fnx.lower.emit.shared_memory import ASYNC
from fnx.lower.emit.vectorize_accesses import drop_unused


def form_async_copies(program: UOp) -> UOp:
    """Return the PROGRAM with FETCHes."""
    if not any(line.arg == ASYNC for line in program.src if line.op is ops.STORE):
        return program
    rewritten = [_form_copy(line) if line.op is ops.STORE and line.arg == ASYNC else line
                 for line in program.src]
    return program.replace(src=drop_unused(rewritten, {ops.LOAD, ops.EXTRACT, ops.VECTOR}))


def _form_copy(store: UOp) -> UOp:
    address, value = store.src
    load = _source_load(value)
    if load is None:
        return store.replace(arg=None)
    source, *mask = load.src
    mask = [m.src[0] if m.op is ops.SPLAT else m for m in mask]
    return UOp(ops.ASYNC_COPY, dtypes.void, (address, source, *mask))


def _source_load(value: UOp) -> UOp | None:
    """Return the LOAD of which a value is all lanes in order, or None."""
    if value.op is ops.LOAD:
        return value
    if value.op is not ops.VECTOR:
        return None
    first = value.src[0]
    is_full_load = first.op is ops.EXTRACT and first.src[0].op is ops.LOAD and \
        first.src[0].dtype is value.dtype
    in_order = all(s.op is ops.EXTRACT and s.src[0] is first.src[0] and s.arg == i
                   for i, s in enumerate(value.src))
    return first.src[0] if is_full_load and in_order else None
