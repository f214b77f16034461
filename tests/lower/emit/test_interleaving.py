"""Strided lanes: values for every type and CPU level, and when shuffles are used."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.numpy as jnp
from fnx import errors
from fnx.backends.llvm import binding
from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.uop import UOp
from fnx.core.support.config import override
from fnx.core.support.target import Target
from fnx.lower.emit.emit import emit_program
from fnx.lower.schedule.heuristics import choose_schedule
from fnx.lower.schedule.tile import tile

COMPILED = True
WIDE = Target("cpu", vector_bits=256)  # permutes bytes
PLAIN = WIDE.replace(permute_bytes=4)  # permutes 32-bit elements
TYPES = ("uint8", "int8", "int16", "uint16", "float16", "bool", "float32")


def _is_here(level: str) -> bool:
    try:
        binding.host_target(level)
    except errors.DeviceError:
        return False
    return True


LEVELS = [level for level in ("x86-64", "x86-64-v3", "x86-64-v4", "") if _is_here(level)]


def strided_copy(t: DType, step: int) -> UOp:
    """o[i] = x[i, 0]: lanes with a stride of so many elements."""
    i = build.range_(4096, 0)
    x = build.index_into(build.ref(0, t, (4096, step)), i, build.index_const(0))
    return build.kernel([build.store(build.index_into(build.ref(1, t, (4096,)), i), build.load(x))],
                        "apart", (0,))


def mirrored_image() -> UOp:
    """o[i, j] = x[n - 1 - i, j]: three channels of each pixel, the last pixel first."""
    i, j = build.range_(4096, 0), build.range_(3, 1)
    x, o = (build.ref(s, dtypes.float32, (4096, 3)) for s in range(2))
    last = build.sub(build.index_const(4095), i)
    return build.kernel([build.store(build.index_into(o, i, j),
                                     build.load(build.index_into(x, last, j)))], "mirror", (0, 1))


def test_a_mirrored_image_is_shuffled_not_gathered() -> None:
    kernel = mirrored_image()
    lines = emit_program(tile(kernel, choose_schedule(kernel, WIDE)), WIDE).src
    assert all(n.src[0].dtype.lanes > 1 and n.src[0].src[1].dtype.lanes == 1
               for n in lines if n.op is ops.LOAD)


@pytest.mark.parametrize("target,t,step,is_shuffled", [
    (WIDE, dtypes.uint8, 2, True), (WIDE, dtypes.float16, 8, True), (WIDE, dtypes.bool_, 3, True),
    (WIDE, dtypes.uint8, 9, False), (PLAIN, dtypes.uint8, 2, False),
    (PLAIN, dtypes.uint16, 3, False), (PLAIN, dtypes.float32, 3, True)])
def test_they_are_shuffles_where_a_target_has_them(target: Target, t: DType, step: int,
                                                   is_shuffled: bool) -> None:
    kernel = strided_copy(t, step)
    lines = emit_program(tile(kernel, choose_schedule(kernel, target)), target).src
    assert any(line.op is ops.SHUFFLE for line in lines) is is_shuffled


@st.composite
def views(draw: Any) -> tuple[Any, Any]:
    """An array of a narrow type, and a function of it that reads or writes strided lanes."""
    t = draw(st.sampled_from(TYPES))
    inner = draw(st.sampled_from([1, 2, 3, 4, 5, 7, 8]))
    shape = (*draw(st.sampled_from([(), (2,), (3, 5)])),
             draw(st.sampled_from([1, 3, 17, 33, 64, 99, 193])), inner)
    x = np.random.default_rng(draw(st.integers(0, 99))).integers(0, 100, shape)
    order = draw(st.permutations(range(len(shape))))
    kind, step, start = draw(st.integers(0, 8)), draw(st.integers(2, 9)), draw(st.integers(0, 2))
    out = draw(st.sampled_from([t, "float32", "int32"]))

    def f(m: Any, x: Any) -> Any:
        flat = x.reshape(*x.shape[:-2], -1)
        y = [lambda: flat[..., start::step], lambda: m.transpose(x, order), lambda: x.max(-1),
             lambda: m.stack([flat, flat[..., ::-1], flat], -1), lambda: flat[..., ::-1][..., ::2],
             lambda: m.concatenate([flat[..., 0::step], flat[..., 1::step]], -1),
             lambda: x[..., ::-1, :], lambda: flat[..., ::-step],
             lambda: m.concatenate([x[..., ::-1, :], x], -2)][kind]()
        y = y.astype(out)
        return ~y if out == "bool" else y + np.asarray(1, out)
    return (x > 50 if t == "bool" else x.astype(t)), f


@pytest.mark.cases(1)
@pytest.mark.parametrize("level", LEVELS)
@settings(max_examples=25, deadline=None)
@given(drawn=views())
def test_values_are_numpy_s(level: str, drawn: Any) -> None:
    x, f = drawn
    with override(cpu=level):
        np.testing.assert_array_equal(fnx.jit(lambda x: f(jnp, x))(x), f(np, x))


@pytest.mark.parametrize("level", LEVELS)
@settings(max_examples=8, deadline=None)
@given(length=st.integers(9, 40), rows=st.sampled_from([16, 63, 200]), start=st.integers(0, 9),
       step=st.sampled_from([1, 1, 2]), t=st.sampled_from(["float32", "int16", "int32"]))
def test_columns_of_long_rows(level: str, length: int, rows: int, start: int, step: int, t: str
                              ) -> None:
    x = np.arange(rows * length).reshape(rows, length).astype(t)

    def f(x: Any) -> Any:
        first, *others = [x[:, i] for i in range(start % length, length, step)]
        for column in others:
            first = 3 * first - column
        return first
    with override(cpu=level):
        np.testing.assert_array_equal(fnx.jit(f)(x), f(x))


def test_columns_are_transposed_not_gathered() -> None:
    i = build.range_(4096, 0)
    x = build.ref(0, dtypes.float32, (4096, 9))
    columns = [build.load(build.index_into(x, i, build.index_const(c))) for c in range(9)]
    total = columns[0]
    for column in columns[1:]:
        total = build.mul(total, column)
    out = build.index_into(build.ref(1, dtypes.float32, (4096,)), i)
    kernel = build.kernel([build.store(out, total)], "product", (0,))
    lines = emit_program(tile(kernel, choose_schedule(kernel, WIDE)), WIDE).src
    loads = [line for line in lines if line.op is ops.LOAD]
    assert loads and all(load.src[0].dtype.lanes == load.dtype.lanes and not any(
        n.op is ops.LANES for n in load.src[0].src) for load in loads)
