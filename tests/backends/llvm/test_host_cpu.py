"""Processors without AVX-512, without AVX, without SSE4.1, and of another architecture.

``config.cpu`` forces an instruction set level: SSE2 alone (x86-64), AVX2 (x86-64-v3) and AVX-512
(x86-64-v4) run here, if the processor has them. Kernels for NEON are only compiled, and must not
call functions.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.nn as nn
import fnx.numpy as jnp
from fnx import lax
from fnx.backends.device.base import get_device
from fnx.backends.llvm import binding, object_files
from fnx.backends.llvm.host_cpu import restrict_features
from fnx.core.ir import ops
from fnx.core.support.config import INSTRUCTIONS, override
from fnx.core.support.errors import ArgumentError, DeviceError
from fnx.core.support.target import Target
from fnx.lower.pipeline import lower
from fnx.transforms.link import preprocess
from tests.attack.programs import attack
from tests.laws.collected import collected

COMPILED = True
RANDOM = np.random.default_rng(5)
TRIPLE = binding.host_target().triple
ALL = INSTRUCTIONS.get("aarch64" if TRIPLE.startswith("arm64") else TRIPLE.split("-")[0], {})


def _is_here(level: str) -> bool:
    try:
        binding.host_target(level)
    except DeviceError:
        return False
    return True


LEVELS = [level for level in ALL if _is_here(level)]
NEON = binding.target_with_features("aarch64-unknown-linux-gnu", "generic", ["+fp-armv8", "+neon"])


FORCED = [level for level in LEVELS if level != "x86-64-v2"]  # same vectors as x86-64


@pytest.fixture(params=FORCED)
def level(request: pytest.FixtureRequest) -> Iterator[str]:
    with override(cpu=request.param):
        yield request.param


def test_this_processor_has_a_level() -> None:
    assert LEVELS[:1] == list(ALL)[:1] and (LEVELS or platform.machine() not in
                                            ("x86_64", "AMD64", "aarch64", "arm64"))


def test_a_level_has_its_vectors_and_no_more(level: str) -> None:
    target = get_device("cpu").target
    bits = {"x86-64-v3": 256, "x86-64-v4": 512}.get(level, 128)
    assert (target.vector_bits, target.cpu) in ((bits, level), (128, "generic"))
    assert target.unit_names == ()
    assert target.fma == (level not in ("x86-64", "x86-64-v2"))
    text = get_device("cpu").assembly("define <16 x float> @f(<16 x float> %x) {\n"
                                      "  %y = fadd <16 x float> %x, %x\n  ret <16 x float> %y\n}")
    assert ("zmm" in text, "ymm" in text and "zmm" not in text) == (bits == 512, bits == 256)


CASES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "product": (lambda x, w: jnp.tanh(x @ w), [(37, 65), (65, 51)]),
    "transposed": (lambda x, w: x.T @ w.T, [(64, 33), (40, 64)]),
    "gradient": (fnx.grad(lambda x, w: ((x @ w) ** 2).sum()), [(17, 70), (70, 19)]),
    "convolution": (lambda x, w: lax.conv_general_dilated(x, w, (2, 1), "SAME"),
                    [(2, 3, 15, 16), (5, 3, 3, 3)]),
    "depthwise": (lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME",
                                                        feature_group_count=6),
                  [(2, 6, 15, 16), (6, 1, 3, 3)]),
    "softmax": (lambda x: nn.softmax(x, axis=0), [(33, 70)]),
    "layer norm": (lambda x: (x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True) + 1e-5),
                   [(19, 130)]),
    "attention": (lambda q, k, v: nn.softmax(jnp.where(jnp.tri(33, dtype=bool), q @ k.T / 4,
                                                       -jnp.inf)) @ v, [(33, 16)] * 3),
    "sort": (lambda x: jnp.sort(x, axis=-1), [(7, 301)]),
    "argsort": (lambda x: jnp.argsort(x), [(1000,)]),
    "cumsum": (lambda x: jnp.cumsum(x, axis=1), [(9, 400)]),
    "scatter": (lambda x: x.at[jnp.arange(50) % 7].add(2.0), [(50, 9)]),
    "turned": (lambda x, y: x.T + y, [(61, 130), (130, 61)]),
    "scan": (lambda x: lax.scan(lambda c, v: (jnp.sin(c) + v, c * v), x[0], x), [(12, 40)]),
    "rounding": (lambda x: (jnp.floor(x * 9), jnp.ceil(x * 9), jnp.trunc(x * 9), jnp.round(x * 9),
                            jnp.fmod(x, .3), x % .3, x // .3), [(1001,)]),
}


@pytest.mark.cases(3)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_kernels_of_a_level_mean_what_the_interpreter_says(level: str, name: str, dtype: str
                                                           ) -> None:
    f, shapes = CASES[name]
    random = np.random.default_rng(5)  # its own: the data do not depend on the order of tests
    with override(x64=True):
        args = [fnx.device_put(jnp.asarray(random.standard_normal(s), dtype)) for s in shapes]
        got = fnx.tree.leaves(fnx.jit(f)(*args))
        with override(device="interp"):
            want = fnx.tree.leaves(fnx.jit(f)(*args))
        for g, w in zip(got, want, strict=True):
            assert (g.dtype, g.shape) == (w.dtype, w.shape)
            tolerance = {"float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2, "float64": 1e-12}
            np.testing.assert_allclose(np.asarray(g, np.float64), np.asarray(w, np.float64),
                                       rtol=tolerance[dtype], atol=tolerance[dtype] * 4)


@pytest.mark.cases(1)
def test_programs_of_a_level_mean_the_same_in_every_way(level: str) -> None:
    counts, wrong = attack(first=31_000 + 100 * LEVELS.index(level), count=5, seconds=20)
    assert not wrong
    assert counts["differentiated"] + counts["ran"] > 0


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(["float32", "float64", "float16"]), st.integers(0, 2**32 - 1))
def test_rounding_has_the_bits_of_numpy_at_any_level(dtype: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    bits = np.dtype(f"u{np.dtype(dtype).itemsize}")
    x = np.concatenate([rng.integers(0, (1 << 8 * bits.itemsize) - 1, 300, bits).view(dtype),
                        (rng.standard_normal(100) * 10).astype(dtype),
                        (rng.integers(-40, 40, 100) / 2).astype(dtype),
                        np.array([0.0, -0.0, 0.5, -0.5, 1.5, -1.5, 2.5, np.inf, -np.inf], dtype)])
    x[np.isnan(x)] = 1  # one length, so one kernel
    for level in LEVELS:
        with override(cpu=level, x64=True):
            for f, of in ((jnp.floor, np.floor), (jnp.ceil, np.ceil), (jnp.trunc, np.trunc),
                          (jnp.round, np.rint)):
                np.testing.assert_array_equal(np.asarray(fnx.jit(f)(x)).view(bits),
                                              of(x).view(bits), err_msg=f"{level} {of}")
            assert np.isnan(fnx.jit(jnp.floor)(np.array([np.nan], dtype)))[0]


def test_the_number_of_workers_changes_no_bit(level: str) -> None:
    x = jnp.asarray(RANDOM.standard_normal((301, 4000)), "float32")

    def f(x: Any) -> Any:
        return nn.softmax(x).sum(0), x @ x.T, x.sum()

    results = []
    for workers in (1, 2, 3):
        with override(workers=workers):
            results.append([np.asarray(y).tobytes() for y in fnx.jit(f)(x)])
    assert results[0] == results[1] == results[2]


def test_changing_the_level_compiles_again() -> None:
    f = fnx.jit(lambda x: jnp.exp(x) * 3)
    x = jnp.arange(100.0)
    before = np.asarray(f(x))
    for level in (*LEVELS, ""):
        with override(cpu=level):
            np.testing.assert_allclose(np.asarray(f(x)), before, rtol=1e-6)


# ---- other architectures -----------------------------------------------------------------------


@pytest.mark.cases(1)
@pytest.mark.parametrize("target", [NEON, *[binding.host_target(name) for name in FORCED]],
                         ids=["neon", *FORCED])
def test_all_kernels_compile_and_call_nothing(target: Target) -> None:
    device: Any = type("Elsewhere", (), {"target": target})
    count = 0
    for found in collected(6, seed=3):
        for kernel, code in lower(preprocess(found.fn, device), target).code.items():
            if kernel.op in (ops.KERNEL, ops.SORT):
                data = binding.compile_ir(code.text(), target)
                assert object_files.undefined_symbols(data) <= object_files.ALLOWED, found.name
                count += 1
    assert count > 6


def test_neon_has_vectors_of_its_own() -> None:
    text = "define <4 x float> @f(<4 x float> %x) {\n  %y = fadd <4 x float> %x, %x\n" \
           "  ret <4 x float> %y\n}"
    assert "fadd\tv0.4s" in binding.assembly(text, NEON)


# ---- invalid levels ----------------------------------------------------------------------------


def test_a_level_of_another_processor_says_which_there_are() -> None:
    other = "x86-64-v3" if TRIPLE.startswith(("aarch64", "arm64")) else "armv8-a"
    with override(cpu=other), pytest.raises(DeviceError, match=f"got '{other}'") as error:
        fnx.jit(lambda x: x + 1)(jnp.ones(3))
    assert str(list(ALL)[0]) in str(error.value)
    assert fnx.jit(lambda x: x + 1)(1.0) == 2.0


def test_a_level_that_the_processor_lacks_says_what_is_missing() -> None:
    have = [f"+{f}" for name in ("x86-64", "x86-64-v2") for f in
            INSTRUCTIONS["x86_64"][name].split()]
    with pytest.raises(DeviceError, match="needs avx, avx2, bmi"):
        restrict_features("x86-64-v3", "x86_64-linux", have)
    assert restrict_features("x86-64", "x86_64-linux", have)[-1].startswith("-")


def test_no_level_at_all_is_refused_at_once() -> None:
    with pytest.raises(ArgumentError, match="config.cpu: expected"):
        fnx.config.cpu = "avx2"
