"""Queues of the software device: dependencies, overlap, faults."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.backends.device import queues
from fnx.backends.soft import Disturbance
from fnx.core.support.config import override
from fnx.core.support.errors import DeviceError
from tests.devices.conftest import on_device
from tests.devices.soft_graphs import Graph, check_graph, drop_wait, is_detected, planted_faults
from tests.devices.soft_pipeline import soft_pipeline


@pytest.fixture
def device() -> Iterator[Any]:
    with on_device("soft") as device:
        yield device
        device.driver.disturb(Disturbance())


@pytest.mark.cases(2, of="programs")
def test_random_graphs_equal_sequential_execution() -> None:
    for seed in range(100):
        check_graph(seed)


@pytest.mark.cases(2, of="programs")
def test_waits_and_signals_order_all_commands_on_the_same_memory(
        monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(150):
        assert not Graph(seed, devices=1 + seed % 2, length=40).is_unordered()
    monkeypatch.setattr(queues, "_FORGET_AFTER", 0)  # what is done is forgotten at each submission
    for seed in range(40):
        check_graph(seed)


@pytest.mark.cases(2)
@pytest.mark.parametrize("seed", range(5))
def test_planted_faults_change_a_result(seed: int) -> None:
    faults = planted_faults(seed)
    assert len(faults) == 3
    for name, plant in faults:
        assert is_detected(plant, seed), name


def test_no_wait_is_implied_by_another() -> None:
    """Each wait of a schedule is needed: without it two commands are unordered."""
    for seed in range(6):
        graph = Graph(seed)
        assert not graph.is_unordered()
        for which in range(sum([len(step.waits) for step in graph.group.scheduled])):
            without = Graph(seed)
            without.group.change = drop_wait(which)
            assert without.is_unordered()


# ---- programs


@pytest.mark.cases(2, of="programs")
def test_programs_equal_those_of_the_cpu(device: Any) -> None:
    x = np.random.default_rng(0).normal(size=(24, 24)).astype(np.float32)

    def program(x: Any) -> Any:
        y = lax.fori_loop(0, 7, lambda i, y: jnp.tanh(y @ x) + i, x)
        n, z = lax.while_loop(lambda c: c[0] < 50, lambda c: (c[0] + 1, c[1] * 1.01), (0, y))
        s, ys = lax.scan(lambda s, row: (s + row, s * row), jnp.zeros(24), z)
        return n, s, ys, jnp.sort(z), lax.cond(s[0] > 0, jnp.sin, jnp.cos, s), jnp.fft.fft(s)

    loss = lambda x: jnp.sum(program(x)[1] ** 2)
    with override(device="cpu"):
        want = fnx.jit(program)(x), fnx.jit(fnx.grad(loss))(x)
    for seed in range(3):
        device.driver.disturb(Disturbance(seed, {"compute": 1e-4, "upload": 1e-3}))
        got = fnx.jit(program)(x), fnx.jit(fnx.grad(loss))(x)
        for a, b in zip(fnx.tree.leaves(got), fnx.tree.leaves(want)):
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_memory_is_used_again_while_earlier_work_runs(device: Any) -> None:
    f = fnx.jit(lambda x: x * 2 + 1)
    device.driver.disturb(Disturbance(1, {"compute": 2e-3}))
    results = []
    for i in range(60):  # more than one ring of packets; blocks are freed while they are in use
        y = f(jnp.full(1000, i, jnp.float32))
        y = f(y)
        y.copy_to_host_async()
        results.append(y)
    for i, y in enumerate(results):
        np.testing.assert_array_equal(np.asarray(y), np.full(1000, 4 * i + 3, np.float32))


def test_a_ring_has_room_again() -> None:
    graph = Graph(0, length=2500)
    graph.disturb(0, 0.0)
    assert graph.run()


# ---- overlap


def test_copies_and_kernels_overlap(device: Any) -> None:
    """Most of the time of the copies passes while a kernel runs. (benchmarks/queues.py measures
    the whole.)"""
    seen = soft_pipeline(16)
    spans: dict[int, list[tuple[int, int]]] = {}
    for run in seen.runs:
        spans.setdefault(run.chunks[0].worker, []).append((run.start, run.stop))
    assert len(spans) == seen.workers == 3
    by_time = sorted(spans.values(), key=lambda runs: sum([stop - start for start, stop in runs]))
    kernels = by_time[-1]
    for copies in by_time[:2]:
        hidden = sum([max(0, min(a[1], b[1]) - max(a[0], b[0])) for a in copies for b in kernels])
        assert hidden > 0.5 * sum([stop - start for start, stop in copies])


# ---- faults


def doubled(x: Any) -> Any:
    return jnp.sin(x) * 2


@pytest.mark.parametrize("fault", ["dies", "hangs"])
@pytest.mark.parametrize("queue", ["compute", "upload", "download"])
def test_a_fault_names_command_and_line_and_the_device_is_opened_anew(
        fault: str, queue: str, device: Any) -> None:
    x = np.arange(5, dtype=np.float32)
    want = np.asarray(fnx.jit(doubled)(x))
    for _ in range(3):
        before = device.driver
        device.driver.disturb(Disturbance(**{fault: {queue: 0}}))
        with override(time_limit=0.1), pytest.raises(DeviceError) as error:
            np.asarray(fnx.jit(doubled)(jnp.asarray(x)))
        text = str(error.value)
        assert "test_soft.py:" in text and "reopened" in text
        assert {"compute": "sin", "upload": "copy to the device", "download": "copy to the host"}[
            queue] in text.split("in flight")[1]
        np.testing.assert_array_equal(np.asarray(fnx.jit(doubled)(x)), want)
        assert device.driver is not before
    time.sleep(0.05)
    threads = [t for t in threading.enumerate() if t.name.startswith("fnx-soft")]
    assert len(threads) <= 6  # of this device and of the last one


def test_a_process_ends(device: Any) -> None:
    code = ("import os, sys, fnx, fnx.numpy as jnp, numpy as np\n"
            "from fnx.core.support.errors import DeviceError\n"
            "f = fnx.jit(lambda x: x + 1)\n"
            "y = f(jnp.ones(3))\n"
            "pid = os.fork()\n"
            "if not pid:\n"
            "    try: f(jnp.ones(3))\n"
            "    except DeviceError: sys.exit(3)\n"
            "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), np.asarray(y))\n"
            "f(y)\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "FNX_DEVICE": "soft"})
    assert (done.returncode, done.stdout, done.stderr) == (0, "3 [2. 2. 2.]\n", "")
