"""The queues of copies of OpenCL and CUDA: random programs that use memory again equal NumPy's."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.backends.gpu import in_order_driver
from fnx.backends.gpu.copy_order import MIN_QUEUED_COPY, CopyOrder
from fnx.core.support.config import override
from tests.devices.recording_cuda import recording

SIZES = MIN_QUEUED_COPY // 4, MIN_QUEUED_COPY // 2, 100
SHORT = 100  # the least copy that is queued among those of CUDA, whose kernels are interpreted
SHORT_SIZES = 30, 50, 10


def test_a_queue_waits_for_what_the_other_one_did_with_the_same_memory() -> None:
    """All programs of four commands on two memories, with waits drawn as edges: whatever uses the
    same memory on different queues is in order."""
    commands = [(queue, memory) for queue in ("copy", "compute") for memory in (1, 2)]
    for program in itertools.product(commands, repeat=4):
        order, before = CopyOrder(), list[set[int]]()  # by command, those that it comes after
        last: dict[str, set[int]] = {"copy": set(), "compute": set()}
        for i, (queue, memory) in enumerate(program):
            waits: list[int] = []
            if queue == "copy":
                order.before_copy(memory, lambda: waits.append(1))
            else:
                order.before_compute((memory,), lambda: waits.append(1))
            other = "compute" if queue == "copy" else "copy"
            before.append(last[queue] | (last[other] if waits else set()))
            last[queue] = before[i] | {i}
            assert {j for j in range(i) if program[j][1] == memory} <= before[i]


@pytest.mark.parametrize("seed", range(4))
def test_random_programs_of_copies_and_kernels(seed: int, opencl: Any) -> None:
    run_program(seed)


KERNELS, COPIES = 0, 1  # streams of CUDA


@pytest.mark.cases(4)
@pytest.mark.parametrize("eager", [(), (KERNELS,), (COPIES,)])
@pytest.mark.parametrize("seed", range(4))
def test_random_programs_of_two_streams(seed: int, eager: tuple[int, ...],
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever stream runs ahead of the other one."""
    with recording(monkeypatch) as device, override(device="cuda"):
        monkeypatch.setattr(in_order_driver, "MIN_QUEUED_COPY", SHORT)
        device.library.eager = set(eager)
        run_program(seed, SHORT_SIZES)
        assert device.library.calls["cuStreamWaitEvent"] >= 10


@pytest.mark.parametrize("stream", [KERNELS, COPIES])
def test_a_wait_that_is_dropped_is_seen(stream: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with recording(monkeypatch) as device, override(device="cuda"):
        monkeypatch.setattr(in_order_driver, "MIN_QUEUED_COPY", SHORT)
        device.library.eager = device.library.drops_waits = {stream}
        with pytest.raises(AssertionError, match="are not equal"):
            run_program(0, SHORT_SIZES)


def test_programs_of_several_threads(opencl: Any) -> None:
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(run_in_thread, range(6)))


def run_in_thread(seed: int) -> None:
    with override(device="opencl"):
        run_program(seed)


def run_program(seed: int, sizes: Sequence[int] = SIZES) -> None:
    """Run commands drawn at random on arrays that live for different times."""
    rng = np.random.default_rng(seed)
    step = fnx.jit(lambda x: x * 2 + 1)
    over = fnx.jit(lambda x: x - 3, donate_argnums=0)
    long = fnx.jit(lambda x: jnp.sin(jnp.cumsum(x) * 0) + x)
    alive: list[tuple[Any, Any]] = []
    for _ in range(150):
        what = rng.integers(7)
        if what < 2 or not alive:
            x = rng.integers(-9, 9, sizes[rng.integers(3)]).astype(np.float32)
            alive.append((jnp.asarray(x), x))
            continue
        x, want = alive.pop(rng.integers(len(alive)))
        if what == 2:
            alive += [(x, want), (step(x), want * 2 + 1)]
        elif what == 3:
            x.copy_to_host_async()
            alive += [(step(long(x)), want * 2 + 1), (x, want)]
        elif what == 4:
            y = step(x)
            y.copy_to_host_async()
            alive.append((y, want * 2 + 1))
            del x
        elif what == 5:
            y = step(x)
            y.copy_to_host_async()
            alive += [(over(y), want * 2 - 2)]
        else:
            np.testing.assert_array_equal(np.asarray(x), want)
        if len(alive) > 8:
            np.testing.assert_array_equal(np.asarray(alive[0][0]), alive[0][1])
            alive = alive[1:8]
    for x, want in alive:
        np.testing.assert_array_equal(np.asarray(x), want)
