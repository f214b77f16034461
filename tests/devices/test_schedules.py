"""One source and one user-written schedule for thread groups run on every device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
import fnx.kernel as k
from fnx.core.support.config import override
from fnx.core.support.errors import KernelError
from fnx.core.support.target import Target
from fnx.lower.pipeline import lower
from tests.devices.conftest import found

SHAPES = (40, 33, 70), (64, 64, 64), (1, 5, 3)
DEVICES = "interp", "cpu", "opencl", "webgpu"
TILES: list[Any] = [
    k.split("m", 16, "mg", "mt"), k.split("n", 16, "ng", "nt"), k.split("kk", 8, "ko", "ki"),
    k.grid("mg"), k.grid("ng"), k.thread("mt"), k.thread("nt"),
    k.order("mg", "ng", "mt", "nt", "ko", "ki"),
    k.stage("x", at="ko", space="SHARED"), k.stage("w", at="ko", space="SHARED")]


def product(schedule: list[Any]) -> Any:
    @fnx.call(out=lambda x, w: fnx.ShapeDtypeStruct((x.shape[0], w.shape[1]), x.dtype),
              schedule=schedule)
    def matmul(x: Any, w: Any, o: Any) -> None:
        m, n = k.range(o.shape[0], "m"), k.range(o.shape[1], "n")
        kk = k.range(x.shape[1], "kk")
        o[m, n] = k.sum(x[m, kk] * w[kk, n], over=kk)
    return matmul


def row_sums(threads: int) -> Any:
    @fnx.call(out=lambda x: fnx.ShapeDtypeStruct((x.shape[0],), x.dtype),
              schedule=[k.split("c", threads, "co", "ct"), k.grid("r"), k.thread("ct"),
                        k.order("r", "ct", "co")])
    def sums(x: Any, o: Any) -> None:
        r, c = k.range(x.shape[0], "r"), k.range(x.shape[1], "c")
        o[r] = k.sum(x[r, c], over=c)
    return sums


def normal(*shape: int) -> Any:
    values = np.random.default_rng(len(shape)).normal(size=shape)
    return fnx.numpy.asarray(values.astype("float32"))


@pytest.mark.cases(4)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_product_under_tiles_of_groups(device: str, shape: tuple[int, int, int]) -> None:
    found(device)
    x, w = normal(shape[0], shape[1]), normal(shape[1], shape[2])
    with override(device=device):
        got = np.asarray(product(TILES)(x, w))
    np.testing.assert_allclose(got, np.asarray(x) @ np.asarray(w), rtol=2e-5, atol=2e-5)


@pytest.mark.cases(5)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("columns", [5, 64, 300])
def test_threads_fold_together(device: str, columns: int) -> None:
    found(device)
    x = normal(7, columns)
    with override(device=device):
        got = np.asarray(row_sums(64)(x))
    np.testing.assert_allclose(got, np.asarray(x).sum(1), rtol=2e-5, atol=2e-5)


def test_it_is_text_for_a_device_that_is_not_here() -> None:
    chip = Target("cuda", triple="nvptx64-nvidia-cuda", cpu="sm_80", features="+ptx80",
                  kind="nvptx", threads=256, shared=16 << 10, private=256, vector_bits=128)
    f = fnx.jit(product(TILES)).lower(normal(64, 64), normal(64, 64))
    code, = lower(f.graph, chip).code.values()
    assert "nvvm.barrier0" in code.text() and "reqntid" in code.text()


def test_what_a_device_has_not_is_refused() -> None:
    found("opencl")
    x, w = normal(8, 8), normal(8, 8)
    with override(device="opencl"):
        with pytest.raises(KernelError, match="got PAR") as workers:
            np.asarray(product([k.parallel("m")])(x, w))
    assert "k.grid" in str(workers.value) and "test_schedules.py" in str(workers.value)


def test_a_group_has_no_part_of_a_sum() -> None:
    with pytest.raises(KernelError, match="range of the result"), override(device="interp"):
        np.asarray(product([k.order("kk", "m", "n"), k.grid("kk")])(normal(4, 4), normal(4, 4)))
