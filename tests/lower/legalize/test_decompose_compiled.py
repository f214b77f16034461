"""Compiled decomposed ops equal their expansion bit for bit, in scalar and in vector code."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from fnx.backends.llvm import binding, object_files
from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp
from fnx.lower.code_generation import kernel_code
from fnx.lower.driver import Driver
from fnx.lower.legalize.decompose import EXPANSIONS
from tests.graphs import COMPUTED
from tests.helpers import same_bits_each
from tests.lower.legalize.elementary_references import FUSED, UNFUSED, decomposed

Array = np.ndarray[Any, Any]
N = 512


def _kernel(op: Op, dtype: DType, lanes: int, arg: Any) -> UOp:
    outer, lane = build.range_(N // lanes, 0), build.range_(lanes, 1, "VEC")
    at = build.add(build.mul(outer, build.index_const(lanes)), lane)
    operands = [build.load(build.index_into(build.ref(s, dtype, (N,)), at))
                for s in range(op.arity or 0)]
    value = build.elementwise(op, *operands, arg=arg)
    place = build.index_into(build.ref(len(operands), value.dtype, (N,)), at)
    return build.kernel([build.store(place, value)], "k", (0, 1))


def _aligned(x: Array) -> Array:
    """Copy to a 64-byte boundary, as kernels expect of a buffer."""
    room = np.zeros(x.nbytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    copy = room[start:start + x.nbytes].view(x.dtype)
    copy[:] = x
    return copy


def compiled(op: Op, xs: list[Array], dtype: DType, lanes: int, arg: Any) -> Array:
    """Return the results of op in machine code that calls no functions."""
    target = binding.host_target()
    code = kernel_code(_kernel(op, dtype, lanes, arg), Driver(target))
    data = binding.compile_ir(code.text(), target)
    assert object_files.undefined_symbols(data) == set()
    library = binding.link([(data, [code.symbol])])
    memory = [_aligned(x) for x in (*xs, np.zeros(N, dtype.np))]
    pointers = (ctypes.c_void_p * len(memory))(*[x.ctypes.data for x in memory])
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64,
                           ctypes.c_int64, ctypes.c_void_p)(library.addresses[code.symbol])
    run(pointers, None, 0, 1, None)
    return memory[-1]


def _operands(op: Op, dtype: DType) -> list[Array]:
    """Random bit patterns and ordinary values, with corner cases first; then only ordinary values,
    with which unlikely branches are not taken."""
    rng = np.random.default_rng(op.code)
    unsigned = np.dtype(f"u{dtype.itemsize}")
    corners = np.array([0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 0.5]) if dtype.is_float else \
        np.array([0, 1, 2, 2 ** 31, 2 ** 31 - 1, 2 ** 32 - 1, 2 ** 32 - 2, 7])
    columns = []
    for i in range(op.arity or 0):
        bits = rng.integers(0, np.iinfo(unsigned).max, N, unsigned, True)
        column = bits.view(dtype.np)
        if dtype.is_float:
            place, usual = np.arange(N), rng.uniform(-9, 9, N)
            column = np.where((place % 2 == 0) & (place < N // 2), column, usual).astype(dtype.np)
            column[:64] = np.resize(np.repeat(corners, 8 ** i), 64)
        else:
            column[:64] = np.resize(np.repeat(corners, 8 ** i), 64).astype(unsigned).view(dtype.np)
        columns.append(np.ascontiguousarray(column))
    return columns


CASES = [(op, t) for op in EXPANSIONS for t in COMPUTED
         if op is not ops.THREEFRY and {"float": "f", "bool": "b"}.get(t.kind, "i") in op.accepts
         ] + [(ops.THREEFRY, dtypes.uint32)]


@pytest.mark.cases(12)
@pytest.mark.parametrize("op,dtype", CASES, ids=str)
def test_scalar_and_vector_code_have_the_bits_of_the_expansion(op: Op, dtype: DType) -> None:
    xs, arg = _operands(op, dtype), 1 if op is ops.THREEFRY else None
    target = FUSED if binding.host_target().fma else UNFUSED
    want = decomposed(op, *xs, arg=arg, target=target)
    for lanes in (1, binding.host_target().vector_lanes(dtype.itemsize)):
        assert same_bits_each(compiled(op, xs, dtype, lanes, arg), want).all()
