"""The CUDA driver code on a recording library, and its tables against cuda.h; needs no GPU."""

from __future__ import annotations

import ctypes
import gc
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import fnx
import fnx.numpy as jnp
from fnx.backends import cuda, libcuda
from fnx.backends.device.base import get_device
from fnx.backends.gpu import in_order_driver, pinned_memory
from fnx.core.support.config import override
from fnx.core.support.errors import DeviceError, OutOfMemoryError
from tests.devices.recording_cuda import RecordingCuda, recording
from tests.devices.test_faults import endless, interrupted, very_long, works
from tests.devices.test_opencl import EXAMPLES, FUNCTIONS, W, X, train
from tests.graphs import ALL_OPS, Graph, graphs
from tests.helpers import assert_same
from tests.laws.test_jit_eager_interp import FOLDS, run

library: RecordingCuda


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Run the whole test on the device, and check at the end that nothing was wrong."""
    global library
    with recording(monkeypatch) as made, override(device="cuda"):
        library = made.library
        yield made


@pytest.mark.cases(2)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_jitted_function(name: str, device: Any) -> None:
    f = FUNCTIONS[name]
    got = [np.asarray(x) for x in fnx.tree.leaves(fnx.jit(f)(jnp.asarray(X), jnp.asarray(W)))]
    with override(device="cpu"):
        want = fnx.tree.leaves(fnx.jit(f)(jnp.asarray(X), jnp.asarray(W)))
    for a, b in zip(got, map(np.asarray, want), strict=True):
        np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=3e-5, atol=2e-5)
    assert library.ran


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(graphs(allowed=ALL_OPS - FOLDS, steps=8))
def test_elementwise_results_have_the_interpreters_bits(device: Any, graph: Graph) -> None:
    assert_same(run(graph.fn, graph.args, device, False),
                run(graph.fn, graph.args, get_device("interp"), False))


def counted(function: Any) -> dict[str, int]:
    before = library.calls.copy()
    function()
    return {name: library.calls[name] - before[name] for name in
            ("cuLaunchKernel", "cuGraphLaunch", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoDAsync_v2",
             "cuMemAlloc_v2", "cuMemFree_v2", "cuGraphInstantiateWithFlags")}


def test_a_digits_step_is_one_launch_and_at_most_one_small_copy(device: Any) -> None:
    counts: list[dict[str, int]] = []
    before = library.calls.copy()

    def stepped() -> None:
        nonlocal before
        now = library.calls.copy()
        counts.append({name: now[name] - before[name] for name in now})
        before = now

    losses = train(12, stepped)
    with override(device="cpu"):
        np.testing.assert_allclose(losses, train(12, lambda: None), rtol=1e-5)
    for count in counts[2:]:
        assert count["cuGraphLaunch"] == 1 and count.get("cuLaunchKernel", 0) == 0
        assert count.get("cuMemcpyHtoDAsync_v2", 0) <= 1
        assert not count.get("cuGraphInstantiateWithFlags") and not count.get("cuMemHostAlloc")


def test_a_call_on_other_memory_needs_no_other_graph(device: Any) -> None:
    f = fnx.jit(lambda x: jnp.tanh(x @ x.T).sum(0) * 2)
    args = [jnp.asarray(X) + i for i in range(5)]
    f(args[0])
    kept: list[Any] = []
    for x in args:
        counts = counted(lambda x=x: kept.append(f(x)))
        assert counts["cuGraphLaunch"] == 1 and counts["cuMemcpyHtoDAsync_v2"] <= 1
        assert not counts["cuLaunchKernel"] and not counts["cuGraphInstantiateWithFlags"]
    with override(device="cpu"):
        for x, y in zip(args, kept):
            h = np.asarray(x)
            np.testing.assert_allclose(np.asarray(y), np.tanh(h @ h.T).sum(0) * 2, rtol=1e-4,
                                       atol=1e-4)


def test_the_same_memory_again_needs_no_copy(device: Any) -> None:
    f, x = fnx.jit(lambda x: x * 2 + 1), jnp.asarray(X)
    for _ in range(3):
        y = f(x)
        del y
    assert counted(lambda: f(x)) == {
        "cuLaunchKernel": 0, "cuGraphLaunch": 1, "cuMemcpyHtoDAsync_v2": 0,
        "cuMemcpyDtoDAsync_v2": 0, "cuMemAlloc_v2": 0, "cuMemFree_v2": 0,
        "cuGraphInstantiateWithFlags": 0}


@pytest.mark.parametrize("is_new", [False, True])
def test_a_replay_is_one_run_of_machine_code(is_new: bool, device: Any,
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the driver's functions Python calls none; words that changed are copied by machine code.
    """
    f, x = fnx.jit(lambda x: jnp.tanh(x @ x.T).sum(0) * 2), jnp.asarray(X)
    for _ in range(3):
        y = f(x)
        if is_new:
            x += 1
        else:
            del y
    driver, called, runs = device.driver, list[str](), list[Any]()
    for name, function in driver._calls.items():
        monkeypatch.setitem(driver._calls, name, lambda *a, name=name, function=function: (
            called.append(name), function(*a))[1])
    run = driver.runner.run
    monkeypatch.setattr(driver.runner, "run", lambda *a: (runs.append(a), run(*a))[1])
    kept, before = [jnp.asarray(X)], library.calls.copy()
    called.clear()
    for _ in range(50):
        y = f(x)
        if is_new:
            kept.append(y)
        else:
            del y
    counts = library.calls - before
    assert len(runs) == 50 and counts.pop("cuGraphLaunch") == 50
    assert counts.pop("cuMemcpyHtoDAsync_v2", 0) == 50 * is_new
    assert set(called) <= {"cuMemAlloc_v2"} and set(counts) == set(called)


def test_many_replays_share_an_event(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block of pinned memory has the words of many calls, and one value after all of them."""
    monkeypatch.setattr(pinned_memory, "_RING_BLOCK", 1 << 12)
    f, x = fnx.jit(lambda x, y: x - y), jnp.asarray(np.arange(9, dtype=np.float32))
    before, y = library.calls["cuEventRecord"], x
    for _ in range(200):
        y = f(x, y)
    assert 2 <= library.calls["cuEventRecord"] - before <= 4
    assert (np.asarray(y) == np.asarray(x)).all() and len(library.pinned) < 9


def test_calls_in_flight_do_not_share_blocks(device: Any) -> None:
    f = fnx.jit(lambda x, y: x - 2 * y)
    xs = [jnp.asarray(np.full(300, i, np.float32)) for i in range(40)]
    library.asks = 1 << 30
    kept = [f(x, y) for x, y in zip(xs, xs[1:])]
    assert len(library.stream) > 80
    library.asks = 2
    for i, z in enumerate(kept):
        assert (np.asarray(z) == i - 2 * (i + 1)).all()


def test_threads_share_the_device(device: Any) -> None:
    f, wrong = fnx.jit(lambda x: (x * 3).sum()), []

    def work(k: int) -> None:
        for i in range(10):
            if float(f(jnp.asarray(np.full(50, k + i, np.float32)))) != 150 * (k + i):
                wrong.append((k, i))

    library.alone = False
    threads = [threading.Thread(target=work, args=(100 * k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_uploads_of_any_size_come_through_bounded_pinned_memory(
        device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_order_driver, "MAX_BLOCK", 1 << 16)
    monkeypatch.setattr(pinned_memory, "MAX_PINNED", 1 << 18)
    value = np.arange(1 << 19, dtype=np.float32)
    x = jnp.asarray(value)
    value[:] = 0
    assert float((x + 0)[-1]) == (1 << 19) - 1 and (np.asarray(x) == np.arange(1 << 19)).all()
    assert sum(b.nbytes for b in library.pinned.values()) <= (1 << 18) + (1 << 16)


def test_graphs_go_with_the_function(device: Any) -> None:
    def one(k: int) -> None:
        f = fnx.jit(lambda x: x * float(k) + jnp.sin(x))
        f(jnp.asarray(X))
        fnx.clear_caches()

    for k in range(6):
        one(k)
    device.synchronize()
    gc.collect()
    one(99)
    alive = [k for k, _ in library.things.values() if k == "executable"]
    assert library.calls["cuGraphInstantiateWithFlags"] == 7 and len(alive) <= 3


def test_a_long_row_of_calls_keeps_no_events(device: Any) -> None:
    f, x = fnx.jit(lambda x: x + 1), jnp.asarray(np.zeros(8, np.float32))
    for _ in range(600):
        x = f(x)
    assert library.calls["cuEventCreate"] < 300 and (np.asarray(x) == 600).all()


def test_an_illegal_address_loses_the_device_and_says_so(device: Any) -> None:
    f, x = fnx.jit(lambda x: jnp.exp(x) + 1), jnp.asarray(X)
    y = f(x)
    library.fault = 700
    with pytest.raises(DeviceError, match=r"CUDA_ERROR_ILLEGAL_ADDRESS\); in flight: ") as first:
        np.asarray(y)
    assert "restart the process" in str(first.value)
    with pytest.raises(DeviceError, match="the device is lost"):
        f(x)
    with override(device="cpu"):
        assert float(fnx.jit(lambda v: v + 1)(np.float32(1))) == 2


@pytest.mark.parametrize("kernel", [endless, very_long])
def test_a_kernel_that_never_ends_is_ended(kernel: Any, device: Any) -> None:
    """By a flag in host memory, whose address follows the kernel's scalars."""
    library.unending = {kernel.__name__}
    f = fnx.jit(fnx.call(kernel, out=lambda x: x))
    y = f(jnp.ones(4))
    assert len(library.endless) == 1
    with override(time_limit=0.05), pytest.raises(DeviceError, match=r"within 0\.05 s") as why:
        np.asarray(y)
    assert kernel.__name__ in str(why.value) and "test_cuda.py" in str(why.value)
    assert "reopened" in str(why.value) and not library.stream  # it has ended
    assert works(device)  # the device was reopened, with a flag of its own
    y = f(jnp.ones(4))
    with override(time_limit=0.05), pytest.raises(DeviceError, match=r"within 0\.05 s"):
        np.asarray(y)
    assert works(device)


def test_a_second_ctrl_c_ends_it(device: Any) -> None:
    library.unending = {"endless"}
    y = fnx.jit(lambda x: fnx.call(endless, out=lambda x: x)(x) + 1)(jnp.ones(4))
    for _ in range(2):
        interrupted(device.driver, lambda: np.asarray(y))
    with pytest.raises(DeviceError, match="work was aborted; in flight: .*endless"):
        np.asarray(y)
    assert works(device)


def test_memory_that_is_not_there(device: Any) -> None:
    library.room = 1 << 20
    with pytest.raises(OutOfMemoryError, match="cuda: expected 4,000,000 bytes"):
        jnp.zeros(1000000)
    assert float(jnp.ones(10).sum()) == 10


def test_a_library_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libcuda, "LIBRARY", "libnowhere.so.1")
    with pytest.raises(DeviceError, match=r"looked for libnowhere\.so\.1") as why:
        cuda.device()
    assert "nvidia-driver" in str(why.value)


def test_old_drivers_and_none(monkeypatch: pytest.MonkeyPatch) -> None:
    old = RecordingCuda()
    monkeypatch.setattr(cuda, "load_library", lambda: old)
    old.version = 11040
    with pytest.raises(DeviceError, match=r"of CUDA 12\.0 or later, got 11\.4"):
        cuda.CudaDriver()
    old.version, old.devices = 12040, 0
    with pytest.raises(DeviceError, match="expected a GPU"):
        cuda.CudaDriver()
    del old.functions["cuGraphLaunch"]
    with pytest.raises(DeviceError, match="looked for cuGraphLaunch"):
        cuda.CudaDriver()


# ---- the header


def header() -> str:
    for folder in sys.path:
        path = Path(folder, "nvidia", "cuda_runtime", "include", "cuda.h")
        if path.exists():
            return path.read_text()
    raise AssertionError("expected cuda.h: pip install nvidia-cuda-runtime-cu12")


HANDLES = ("CUcontext", "CUmodule", "CUfunction", "CUstream", "CUevent", "CUgraph", "CUgraphNode",
           "CUgraphExec", "CUkernel")
SCALARS: dict[str, Any] = {
    "unsigned int": ctypes.c_uint, "int": ctypes.c_int, "size_t": ctypes.c_size_t,
    "unsigned long long": ctypes.c_ulonglong, "CUdevice": ctypes.c_int,
    "CUdeviceptr": ctypes.c_uint64, "CUresult": ctypes.c_int, "CUdevice_attribute": ctypes.c_int,
    **dict.fromkeys(HANDLES, ctypes.c_void_p)}


def passed_as(text: str) -> Any:
    """Return the type of a parameter or a member, from its declaration."""
    if "*" in text:
        return ctypes.c_void_p
    words = text.replace("const ", "").split()
    return SCALARS[" ".join(words[:-1])]


def test_functions_have_the_types_of_the_header() -> None:
    text = header()
    versioned = dict(re.findall(
        r"#define (cu\w+)\s+(?:__CUDA_API_PT[SD][ZS]\()?(\w+)", text))
    own = text[:text.index("#if defined(__CUDA_API_VERSION_INTERNAL)",
                           text.index("CUresult CUDAAPI cuInit"))]
    declared = {versioned.get(name, name): parameters for name, parameters in
                re.findall(r"CUresult CUDAAPI (\w+)\s*\(([^;]*)\);", own)}
    for name, types in libcuda.SIGNATURES.items():
        want = [passed_as(" ".join(p.split())) for p in declared[name].split(",")]
        got = [ctypes.c_void_p if t is ctypes.c_char_p else t for t in types]
        assert got == want, name


def test_numbers_are_those_of_the_header() -> None:
    text = header()
    flag = re.search(r"#define CU_MEMHOSTALLOC_DEVICEMAP\s+(0x[0-9a-fA-F]+)", text)
    assert flag is not None and int(flag[1], 0) == libcuda.CU_MEMHOSTALLOC_DEVICEMAP
    for name, number in {**libcuda.ENUMS,
                         **{k: v for k, (v, _) in libcuda.STICKY_ERRORS.items()}}.items():
        found = re.search(rf"\b{name}\s*=\s*(0x[0-9a-fA-F]+|\d+)", text)
        if found is None:  # an enumerator without a value
            kind = "CU_JIT_" if name.startswith("CU_JIT") else name
            block = text[text.index("typedef enum CUjit_option_enum"):]
            names = re.findall(rf"^\s+({kind}\w+)", block[:block.index("}")], re.M)
            assert names.index(name) == number, name
            continue
        assert int(found[1], 0) == number, name


def test_the_structure_has_the_layout_of_the_header() -> None:
    text = header()
    body = re.search(r"typedef struct CUDA_KERNEL_NODE_PARAMS_v2_st \{(.*?)\}", text, re.S)
    assert "typedef CUDA_KERNEL_NODE_PARAMS_v2 CUDA_KERNEL_NODE_PARAMS;" in text
    assert body is not None
    members = re.findall(r"^\s*([^/\n;]*[\s*](\w+));", body[1], re.M)
    assert [(name, passed_as(whole)) for whole, name in members] == [*libcuda.KernelNode._fields_]
    assert ctypes.sizeof(libcuda.KernelNode) == 72
