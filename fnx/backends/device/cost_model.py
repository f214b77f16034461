"""Cost model: the time of a kernel in nanoseconds, accurate to a factor of a few.

It decides where a command buffer runs (on the calling thread or on the workers) and into how many
chunks a PAR range is split; no result depends on it. The estimate is the maximum of compute time
and memory traffic of the buffers (a roofline).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from fnx.core.ir import build, op_args, ops
from fnx.core.ir.accessors import buffer, dims, extent, index_node
from fnx.core.ir.linalg import matrix_lengths
from fnx.core.ir.uop import UOp, toposort
from fnx.core.rewriting.algebra import evaluate

VECTOR_NS = 1 / 32  # nanoseconds per element in vector code
SCALAR_NS = 1 / 2  # ... and in scalar code
CACHE_BYTE_NS = 1 / 80  # nanoseconds per byte in cache
MEMORY_BYTE_NS = 1 / 20   # ... and not in cache
STRIP_NS = 40_000.0  # of one strip of a loop that is relaunched: lower/loops/loop_kernels.py
FLOP_NS = 1 / 8  # ... of LAPACK
LINALG_CALL_NS = 300.0  # nanoseconds of a call of LAPACK
LINALG_FLOPS = {"cholesky": 0.4, "qr": 4.0, "eigh": 12.0, "eigvalsh": 4.0, "svd": 25.0,
                "svdvals": 6.0, "schur": 25.0, "eig": 25.0,
                "eigvals": 10.0, "solve_sylvester": 60.0}  # times n**3; others: 1
CACHE_BYTES = 16 << 20  # bytes that caches hold


def estimate_ns(kernel: UOp, scalars: Mapping[UOp | int, int]) -> float:
    """Estimate the time of a KERNEL whose VARs have these values (by slot)."""
    if kernel.op is ops.SORT:
        elements = math.prod([scalars[0], scalars[1]] if kernel.arg.lengths else
                             kernel.arg.ins[0][0]) * len(kernel.arg.ins)
        return (VECTOR_NS if kernel.arg.selects else SCALAR_NS) * kernel.op.cost * elements
    if kernel.op is ops.FFT_STEP:
        lengths = [scalars[i] for i in range(3)] if kernel.arg.lengths is None else \
            kernel.arg.lengths
        return VECTOR_NS * kernel.op.cost * math.prod(lengths)
    if kernel.op is ops.LINALG:
        return _linalg_ns(kernel.arg, scalars)
    if kernel.op is ops.CMD_LOOP:
        if kernel.arg.strip_length:
            return STRIP_NS
        return (kernel.arg.trips or 1) * sum([_command_ns(c) for s in kernel.src for c in s.src])
    extents: dict[UOp, int] = {}
    total = 0.0
    buffer_elements: dict[UOp, int] = {}  # elements of each buffer
    store_ranges = _store_ranges(kernel)
    for node in toposort([kernel]):
        if not node.op.cost or node.dtype.kind == "index" or node.op is ops.REDUCE:
            continue
        count, vector = 1, False
        for r in store_ranges.get(node, node.ranges):
            if r not in extents:
                extents[r] = max(0, evaluate(extent(r), scalars))
            count *= extents[r]
            vector = vector or r.arg.kind == "VEC"
        total += node.op.cost * count * (VECTOR_NS if vector else SCALAR_NS)
        if node.op in (ops.LOAD, ops.STORE) and buffer(node).op is ops.REF:
            moved_elements = math.prod([extents[r] for r in index_node(node).ranges])
            buffer_elements[buffer(node)] = max(moved_elements,
                                                buffer_elements.get(buffer(node), 0))
    nbytes = sum([min(n, math.prod([evaluate(d, scalars) for d in dims(ref)])) * ref.dtype.itemsize
                  for ref, n in buffer_elements.items()])
    return max(total, nbytes * (CACHE_BYTE_NS if nbytes <= CACHE_BYTES else MEMORY_BYTE_NS))


def _linalg_ns(arg: op_args.Linalg, scalars: Mapping[UOp | int, int]) -> float:
    """Estimate the time of a LINALG by the cube of the longest axis."""
    if arg.any_size:
        count, *lengths = [scalars[i] for i in range(len(scalars))]
    else:
        of = arg.of_complex or arg
        batch, by_letter = matrix_lengths(of.routine, of.options, of.ins)
        count, lengths = math.prod(batch), [*by_letter.values()]
    flops = LINALG_FLOPS.get(arg.routine, 1.0) * max(lengths)**3
    return count * (LINALG_CALL_NS + FLOP_NS * flops)


def _command_ns(command: UOp) -> float:
    """Estimate the time of a command in a CMD_LOOP; for a BRANCH, of the longest one."""
    if command.op is ops.BRANCH:
        return max([sum(map(_command_ns, s.src)) for s in command.src[1:]])
    if command.op is ops.CMD_LOOP:
        return estimate_ns(command, {})
    scalars = [build.const_of(s) for s in command.src if s.op is ops.CONST]
    return estimate_ns(command.src[0], dict(enumerate(scalars)))


def _store_ranges(kernel: UOp) -> dict[UOp, frozenset[UOp]]:
    """Return the ranges that enclose each STORE: all ranges of its operands."""
    return {s: frozenset().union(*(o.ranges for o in s.src)) for s in kernel.src
            if s.op is ops.STORE}
