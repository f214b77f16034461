"""Measure the queues of devices, each figure with its bound (docs/queues.md).

    python benchmarks/queues.py                    all parts, on the devices of this machine
    python benchmarks/queues.py calls profiles     some

    calls      a call of one kernel, compared with enqueues by the driver's C functions
    overlap    copies and kernels of a pipeline, on the software device and on OpenCL
    profiles   kernel times of a profile, relative to the clock, and what profiling adds
    sorts      a million numbers, and how often the host reads meanwhile

Two loads are measured in turn, round after round. Figures are medians of the clock's time; what a
profile adds is of the least processor time, which other programs disturb less. The exit status is 1
if a figure exceeds its bound.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

import fnx
import fnx.numpy as jnp
from fnx.backends.device.base import get_device
from fnx.backends.gpu import in_order_driver
from fnx.backends.gpu.call_list import CallList
from fnx.core.support.config import override
from fnx.core.support.errors import DeviceError
from tests.devices.soft_pipeline import run_pipeline, soft_pipeline

ROUNDS, CALLS, PROFILES = 15, 200, 9
CHUNKS, LONG_CHUNK = 40, 1 << 20  # of a pipeline; elements of one on OpenCL
MILLION = 1_000_000
Clock = Callable[[], float]
Figure = tuple[str, float, float | None, str]  # what, measured, bound, unit


def seconds(f: Callable[[], Any], clock: Clock = time.perf_counter) -> float:
    start = clock()
    f()
    return clock() - start


def in_turns(*loads: Callable[[], Any], rounds: int = ROUNDS, clock: Clock = time.perf_counter
             ) -> list[list[float]]:
    """Return the seconds of each load in each round."""
    times = [[seconds(load, clock) for load in loads] for _ in range(rounds)]
    return [list(column) for column in zip(*times)]


def median_difference(a: list[float], b: list[float]) -> float:
    return statistics.median([x - y for x, y in zip(a, b)])


# ---- calls


def calls() -> Iterator[Figure]:
    """Yield microseconds of a call, without and with a wait for its result."""
    with override(device="opencl"):
        device: Any = get_device("opencl")
        driver, links, link = device.driver, [], device.driver.link
        driver.link = lambda launches, numbers: links.append(
            (launches, link(launches, numbers))) or links[-1][1]
        f, x = fnx.jit(lambda x: x + 1), jnp.ones(8)
        try:
            for _ in range(3):
                f(x).block_until_ready()
        finally:
            del driver.link
        raw = enqueues(driver, *links[-1], CALLS)
        one = enqueues(driver, *links[-1], 1)

        def finish() -> None:
            driver.wait(driver.signal())

        def call_many() -> None:
            for _ in range(CALLS):
                f(x)
            finish()

        def enqueue_many() -> None:
            raw.run([])
            finish()

        for _ in range(3):
            call_many()
            enqueue_many()
        fnx_times, raw_times = in_turns(call_many, enqueue_many)
        scale = 1e6 / CALLS
        yield "opencl: enqueue of one kernel", scale * statistics.median(raw_times), None, "us"
        yield ("opencl: a call above it", scale * median_difference(fnx_times, raw_times), 15.0,
               "us")

        def enqueue_one() -> None:
            one.run([])
            finish()
        waited, raw_waited = in_turns(lambda: f(x).block_until_ready(), enqueue_one, rounds=CALLS)
        yield ("opencl: an enqueue that is waited for", 1e6 * statistics.median(raw_waited), None,
               "us")
        yield ("opencl: a call that is waited for, above it",
               1e6 * median_difference(waited, raw_waited), 15.0, "us")


def waited_calls(name: str) -> Iterator[Figure]:
    """Yield microseconds of a call on a device, without and with a wait for its result."""
    with override(device=name):
        get_device(name)
        f, x = fnx.jit(lambda x: x + 1), jnp.ones(8)

        def call_many() -> None:
            for _ in range(CALLS):
                y = f(x)
            y.block_until_ready()
        for _ in range(3):
            call_many()
        (many,) = in_turns(call_many)
        (waited,) = in_turns(lambda: f(x).block_until_ready(), rounds=CALLS)
        yield f"{name}: a call", 1e6 / CALLS * statistics.median(many), None, "us"
        yield f"{name}: a call that is waited for", 1e6 * statistics.median(waited), None, "us"


def enqueues(driver: Any, launches: Any, linked: Any, count: int) -> CallList:
    """List calls of the driver's C functions that enqueue a linked kernel ``count`` times."""
    launch, kernel = launches[0], linked.kernels[0]
    listed = CallList(driver.runner, 2 * count, 0)
    for _ in range(count):
        listed.call("clEnqueueNDRangeKernel", driver.cl.addresses["clEnqueueNDRangeKernel"],
                    driver.queue, kernel, 1, 0, listed.word(launch.groups * launch.threads),
                    listed.word(launch.threads), 0, 0, 0)
        listed.call("clFlush", driver.cl.addresses["clFlush"], driver.queue)
    return listed


# ---- overlap


def overlap() -> Iterator[Figure]:
    """Yield the time of a pipeline relative to that of its longer part."""
    with override(device="soft"):
        seen = soft_pipeline(CHUNKS)
    whole = max(run.stop for run in seen.runs) - min(run.start for run in seen.runs)
    print(timeline(seen))
    yield "soft: the longest of kernels, copies in, copies out", max(seen.busy) / 1e6, None, "ms"
    yield "soft: the pipeline, relative to it", whole / max(seen.busy), 1.1, ""


def opencl_overlap() -> Iterator[Figure]:
    """Yield the time of a pipeline of long copies, beside that with copies among the kernels.

    A processor that computes the kernels also copies, so little is to be gained there.
    """
    data = np.random.default_rng(0).normal(size=(CHUNKS // 4, LONG_CHUNK)).astype(np.float32)
    with override(device="opencl"):
        f = fnx.jit(lambda x: jnp.sin(x) + 1)
        run_pipeline(f, data)
        least = in_order_driver.MIN_QUEUED_COPY

        def in_one_queue() -> None:
            in_order_driver.MIN_QUEUED_COPY = data.nbytes
            try:
                run_pipeline(f, data)
            finally:
                in_order_driver.MIN_QUEUED_COPY = least
        two, one = in_turns(lambda: run_pipeline(f, data), in_one_queue)
        yield "opencl: a pipeline, copies in a queue of their own", 1e3 * statistics.median(two), \
            None, "ms"
        yield "opencl: ... relative to copies among the kernels", \
            statistics.median(two) / statistics.median(one), None, ""


def timeline(seen: Any, width: int = 96) -> str:
    """Draw when each queue was busy during the first and the last commands of a profile."""
    first, last = min(r.start for r in seen.runs), max(r.stop for r in seen.runs)
    rows = [[" "] * width for _ in range(seen.workers)]
    names = [""] * seen.workers
    for run in seen.runs:
        for chunk in run.chunks:
            names[chunk.worker] = run.name
            for i in range(int((chunk.start - first) / (last - first) * width),
                           int((chunk.stop - first) / (last - first) * width)):
                rows[chunk.worker][i] = "#"
    return "\n".join(f"{name[:20]:20} |{''.join(row)}|" for name, row in zip(names, rows))


# ---- profiles


def profiled_functions() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    def chain(x: Any) -> Any:
        for _ in range(4):
            x = jnp.tanh(x @ x)
        return x

    def loss(w: Any, x: Any) -> Any:
        for layer in w:
            x = jnp.tanh(x @ layer)
        return (x ** 2).mean()

    def step(w: Any, x: Any) -> Any:
        return [layer - 0.1 * d for layer, d in zip(w, fnx.grad(loss)(w, x))]
    weights = [jnp.ones((192, 192)) / 192 for _ in range(3)]
    return {"chain of products": (fnx.jit(chain), (jnp.ones((256, 256)) / 256,)),
            "training step": (fnx.jit(step), (weights, jnp.ones((192, 192))))}


def finish(f: Any, args: tuple[Any, ...]) -> Any:
    """Call a function and wait for its results."""
    return fnx.tree.map(lambda y: y.block_until_ready(), f(*args))


def profiles(name: str) -> Iterator[Figure]:
    """Yield kernel times of a profile relative to the clock, and processor times relative to those
    before the first profile."""
    with override(device=name):
        get_device(name)
        functions = profiled_functions()
        plain = {}
        for what, (f, args) in functions.items():
            call = partial(finish, f, args)
            for _ in range(3):
                call()
            plain[what] = call, min(in_turns(call, rounds=PROFILES, clock=time.process_time)[0])
        for what, (call, before) in plain.items():
            yield from profile_figures(f"{name}: {what}", call, before)


def profile_figures(name: str, call: Callable[[], Any], before: float) -> Iterator[Figure]:
    """Yield those of a call that took so many seconds of the processors before."""
    shares: list[float] = []

    def profiled() -> None:
        with fnx.profile() as seen:
            call()
        shares.append(seen.nanoseconds / seen.seconds / 1e9)
    profiled()
    without, inside = in_turns(call, profiled, rounds=PROFILES, clock=time.process_time)
    while min(without) > before and len(without) < 4 * PROFILES:  # others disturbed all
        more = in_turns(call, profiled, rounds=PROFILES, clock=time.process_time)
        without, inside = without + more[0], inside + more[1]
    yield f"{name}, of the processors", 1e3 * min(without), None, "ms"
    yield f"{name}, not in kernels by its profile", 100 * (1 - statistics.median(shares)), 5.0, "%"
    yield f"{name}, added by a profile", 100 * (min(inside) / min(without) - 1), 3.0, "%"
    yield f"{name}, added when it is off", 100 * (min(without) / before - 1), 3.0, "%"


# ---- sorts


def sorts(name: str) -> Iterator[Figure]:
    """Yield the time of a sort, and how often the host reads meanwhile."""
    with override(device=name):
        device: Any = get_device(name)
        x = np.random.default_rng(0).standard_normal(MILLION).astype(np.float32)
        f, given = fnx.jit(jnp.sort), jnp.asarray(x)
        f(given).block_until_ready()
        reads, read = [], device.driver.read
        device.driver.read = lambda *args: reads.append(1) or read(*args)
        try:
            took = seconds(lambda: f(given).block_until_ready())
        finally:
            del device.driver.read
        np.testing.assert_array_equal(np.asarray(f(given)), np.sort(x))
        yield f"{name}: sort of a million", 1e3 * took, None, "ms"
        yield f"{name}: reads by the host meanwhile", len(reads), 0, ""


PARTS: dict[str, Callable[[], list[Iterator[Figure]]]] = {
    "calls": lambda: [calls(), waited_calls("webgpu")],
    "overlap": lambda: [overlap(), opencl_overlap()],
    "profiles": lambda: [profiles("opencl"), profiles("webgpu")],
    "sorts": lambda: [sorts("opencl"), sorts("webgpu")]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help=", ".join(PARTS))
    above = 0
    for part in parser.parse_args().parts or PARTS:
        for figures in PARTS[part]():
            try:
                for what, measured, bound, unit in figures:
                    is_above = bound is not None and measured > bound
                    above += is_above
                    limit = "" if bound is None else f"at most {bound:g}"
                    print(f"{what:60} {measured:10.2f} {unit:3} {limit:14}"
                          f"{'ABOVE' if is_above else ''}".rstrip(), flush=True)
            except DeviceError as why:
                print(f"{part}: left out: {why.message}")
    return int(above > 0)


if __name__ == "__main__":
    sys.exit(main())
