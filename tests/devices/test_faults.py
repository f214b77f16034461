"""A device that fails reports the kernel and the user's line, is reopened, and others go on."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.kernel as k
import fnx.numpy as jnp
from fnx.backends.device.base import get_device
from fnx.core.support.config import override
from fnx.core.support.errors import DeviceError, DonatedError
from tests.devices.conftest import on_device_or_recording


def scaled(x: Any) -> Any:
    return jnp.sin(x) * 3


def failing(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the driver report from now on that queued work failed."""
    def done(value: int) -> bool:
        raise DeviceError("opencl: queued work failed with OUT_OF_RESOURCES (-5)")
    monkeypatch.setattr(device.driver, "done", done)


def test_a_fault_names_kernel_and_line_and_the_device_is_opened_anew(
        opencl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    f = fnx.jit(scaled)
    x = jnp.asarray(np.arange(5.0, dtype=np.float32))
    kept = f(x) + 0
    want = np.asarray(f(x))
    failing(opencl, monkeypatch)
    y = f(x)
    with pytest.raises(DeviceError) as error:
        np.asarray(y)
    text = str(error.value)
    assert "(-5); in flight: " in text and "test_faults.py" in text
    assert "reopened" in text
    with pytest.raises(DeviceError, match="memory of a device that works, got one that was lost"):
        np.asarray(kept)
    with override(device="cpu"):  # others go on
        np.testing.assert_array_equal(np.asarray(fnx.jit(scaled)(np.arange(5, dtype=np.float32))),
                                      want)
    fresh = jnp.asarray(np.arange(5.0, dtype=np.float32))
    for _ in range(3):  # the same program on the reopened device
        np.testing.assert_array_equal(np.asarray(f(fresh)), want)
    monkeypatch.undo()


@pytest.mark.parametrize("name", ["opencl", "webgpu", "cuda"])
def test_a_queue_that_never_signals(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with on_device_or_recording(name, monkeypatch) as device:
        f, x = fnx.jit(scaled), jnp.asarray(np.ones(3, np.float32))
        want = np.asarray(f(x))
        for ask in (np.asarray, lambda y: y.block_until_ready(), lambda y: f(y)[0] + 1):
            y, old = f(jnp.asarray(np.ones(3, np.float32))), device.driver
            with monkeypatch.context() as patch:
                patch.setattr(old, "done", lambda value: False)
                start = time.monotonic()
                with override(time_limit=0.05), pytest.raises(
                        DeviceError, match="ends within 0.05 s; in flight: .*sin") as error:
                    float(np.asarray(ask(y)).sum())
                assert time.monotonic() - start < 10
            assert f"test_faults.py:{scaled.__code__.co_firstlineno + 1}" in str(error.value)
            np.testing.assert_array_equal(np.asarray(f(np.ones(3, np.float32))), want)
            assert device.driver is not old


def test_ctrl_c_leaves_the_wait(opencl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    y = fnx.jit(scaled)(jnp.ones(3))
    with monkeypatch.context() as patch:
        patch.setattr(opencl.driver, "done", lambda value: False)
        interrupted(opencl.driver, lambda: np.asarray(y))
    np.testing.assert_allclose(np.asarray(y), 3 * np.sin(np.ones(3)), rtol=1e-6)


def endless(x: Any, out: Any) -> None:
    i = k.range(4)
    out[i] = k.loop(1 << 50, lambda t, s: s * 0.5 + x[i], 0.0, until=lambda t, s: s < -1.0)


def very_long(x: Any, out: Any) -> None:
    i = k.range(4)
    out[i] = k.loop(1 << 50, lambda t, s: s * 0.5 + x[i], 0.0)


def works(device: Any) -> bool:
    """Whether the device computes, unaffected by earlier failures."""
    x = jnp.asarray(np.arange(4.0, dtype=np.float32))
    return bool((np.asarray(fnx.jit(lambda x: x + 1)(x)) == [1, 2, 3, 4]).all())


@pytest.mark.cases(1)
@pytest.mark.parametrize("kernel", [endless, very_long])
def test_a_kernel_that_never_ends_is_ended(kernel: Any, opencl: Any) -> None:
    f = fnx.jit(fnx.call(kernel, out=lambda x: x))
    y = f(jnp.ones(4))
    old = opencl.driver
    with override(time_limit=0.2), pytest.raises(DeviceError, match="ends within 0.2 s") as why:
        np.asarray(y)
    assert kernel.__name__ in str(why.value) and "test_faults.py" in str(why.value)
    old.aborted = False
    assert old.done(old._signals)  # nothing runs any more
    assert works(opencl)


def test_a_second_ctrl_c_ends_it(opencl: Any) -> None:
    y = fnx.jit(fnx.call(endless, out=lambda x: x))(jnp.ones(4))
    for _ in range(2):
        interrupted(opencl.driver, lambda: np.asarray(y))
    with pytest.raises(DeviceError, match="work was aborted; in flight: .*endless"):
        np.asarray(y)
    assert works(opencl)


def test_a_process_ends_though_a_kernel_does_not(opencl: Any) -> None:
    code = ("import signal, threading, fnx, fnx.numpy as jnp\n"
            "from tests.devices.test_faults import endless\nfnx.config.device = 'opencl'\n"
            "y = fnx.jit(fnx.call(endless, out=lambda x: x))(jnp.ones(4))\n"
            "threading.Timer(0.1, signal.raise_signal, (signal.SIGINT,)).start()\n"
            "try: y.block_until_ready()\nexcept KeyboardInterrupt: print('left')\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "left\n" and not done.returncode, done.stderr


def gone(device: Any) -> None:
    """Make the driver lose the device."""
    device.driver.gpu.destroy()


def test_a_lost_device_is_marked_and_opened_anew(webgpu: Any) -> None:
    f = fnx.jit(scaled)
    x = jnp.asarray(np.arange(5.0, dtype=np.float32))
    kept = f(x) + 0
    want = np.asarray(f(x))
    old = webgpu.driver
    gone(webgpu)
    with pytest.raises(DeviceError, match="webgpu: the device is lost: .*; in flight: ") as error:
        np.asarray(f(x))
    text = str(error.value)
    assert f"test_faults.py:{scaled.__code__.co_firstlineno + 1}" in text
    assert "(test_faults.py:" in text and "reopened" in text
    for read in (lambda: np.asarray(kept), lambda: np.asarray(f(kept)), lambda: kept + 1,
                 lambda: fnx.device_put(kept, "cpu"), lambda: float(kept[0])):
        with pytest.raises(DeviceError, match="got one that was lost when .*sin.* failed") as why:
            read()
        assert "test_faults.py" in str(why.value) and "recompute it" in str(why.value)
    with override(device="cpu"):  # others go on
        np.testing.assert_allclose(
            np.asarray(fnx.jit(scaled)(np.arange(5, dtype=np.float32))), want, rtol=1e-6)
    assert works(webgpu) and webgpu.driver is not old
    fresh = jnp.asarray(np.arange(5.0, dtype=np.float32))
    for _ in range(3):  # the same program on the reopened device
        np.testing.assert_array_equal(np.asarray(f(fresh)), want)


LOST: dict[str, Any] = {
    "read": lambda x: np.asarray(x), "call": lambda x: fnx.jit(scaled)(x),
    "write": lambda x: x + jnp.asarray(np.ones(5, np.float32)),
    "large": lambda x: x[0] + jnp.zeros(1 << 20), "wait": lambda x: x.block_until_ready(),
    "send": lambda x: fnx.device_put(x, "cpu"),
    "loop": lambda x: fnx.jit(lambda x: fnx.lax.while_loop(
        lambda s: s.sum() < 1e3, lambda s: s + 1, x))(x),
    "callback": lambda x: fnx.jit(lambda x: fnx.pure_callback(np.sin, x, x))(x),
}


@pytest.mark.cases(5)
@pytest.mark.parametrize("name", LOST)
def test_whatever_is_asked_of_a_lost_device_says_so(name: str, webgpu: Any) -> None:
    x, other = (jnp.asarray(np.arange(5.0, dtype=np.float32)) + i for i in range(2))
    LOST[name](other)  # compile the programs on a device that works
    gone(webgpu)
    with pytest.raises(DeviceError, match="device is lost|was lost when") as why:
        np.asarray(LOST[name](x))
    assert "test_faults.py" in str(why.value) and "  Fix: " in str(why.value)
    assert works(webgpu)


FREED: dict[str, Any] = {
    "call": lambda driver, linked, freed, other: driver.launch(linked, [freed, other]),
    "first call": lambda driver, linked, freed, other: driver.launch(
        driver.link(linked.launches, 2), [freed, other]),
    "fetch": lambda driver, linked, freed, other: driver.fetch(freed, 0, 4),
    "copy": lambda driver, linked, freed, other: driver.copy(freed, 0, other, 0, 4),
    "copy to": lambda driver, linked, freed, other: driver.copy(other, 0, freed, 0, 4),
    "write": lambda driver, linked, freed, other: driver.write(freed, 0, np.zeros(4, np.uint8)),
    "free": lambda driver, linked, freed, other: driver.free(freed),
}


@pytest.mark.parametrize("use", FREED)
def test_memory_that_was_freed_does_not_end_the_process(
        use: str, webgpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """wgpu-native aborts when work on a buffer is submitted that was destroyed."""
    driver, f, x = webgpu.driver, fnx.jit(lambda x: x * 3 + 1), jnp.ones(1 << 20)
    links: list[Any] = []
    fnx.clear_caches()  # of another case: the program is linked again
    with monkeypatch.context() as patch:
        link = driver.link
        patch.setattr(driver, "link", lambda *args: links.append(link(*args)) or links[-1])
        f(x).block_until_ready()
    linked, = links
    memory, other = [driver.alloc(4 << 20) for _ in range(2)]
    driver.launch(linked, [memory, other])  # its calls are prepared
    driver.free(memory)
    with pytest.raises(DonatedError, match="got one whose memory was freed"):
        FREED[use](driver, linked, memory, other)
    driver.free(other)
    assert works(webgpu) and (np.asarray(f(x)) == 4).all()


def long(x: Any, out: Any) -> None:
    i = k.range(x.shape[0])
    out[i] = k.loop(60_000, lambda t, s: s * 0.5 + x[i], 0.0)


def long_input() -> Any:
    """Return an input for which ``long`` takes a software adapter a few seconds, by the best of
    several timings, as a single one may be slowed down by other load."""
    f, x = fnx.jit(fnx.call(long, out=lambda x: x)), jnp.ones(2000 * (os.cpu_count() or 1))
    best = 3.0
    for _ in range(5):
        start = time.perf_counter()
        np.asarray(f(x))
        best = min(best, time.perf_counter() - start)
    return jnp.asarray(np.ones(int(x.size * 4.0 / best), np.float32))


@pytest.fixture
def software(webgpu: Any) -> Any:
    """The WebGPU device, if ``long`` takes long enough on it."""
    if not webgpu.target.max_steps:
        pytest.skip("a GPU computes it before anybody can interrupt")
    return webgpu


def interrupted(driver: Any, work: Any) -> None:
    """Send SIGINT to the waiting thread in the middle of the driver's wait, as a terminal does. The
    garbage collector is off, since an exception raised in a finalizer is lost."""
    timer = threading.Timer(0.1, signal.pthread_kill,
                            (threading.main_thread().ident, signal.SIGINT))
    waited = driver.waited

    def begun(value: int, limit: float) -> Any:
        if timer.ident is None:
            timer.start()
        return waited(value, limit)

    driver.waited = begun
    gc.disable()
    try:
        with pytest.raises(KeyboardInterrupt):
            work()
            timer.join()  # a late signal must not hit the next test
    finally:
        gc.enable()
        del driver.waited


def ctrl_c_twice() -> None:
    """The first Ctrl-C leaves the wait; the second one, behind the same work, aborts the work."""
    device: Any = get_device("webgpu")
    f, x = fnx.jit(fnx.call(long, out=lambda x: x)), long_input()
    np.asarray(x + 1)  # compiled in advance: the second Ctrl-C must arrive in a wait
    y = f(x)
    interrupted(device.driver, lambda: np.asarray(y))
    assert device.driver.has_interrupted_work()  # it has not ended
    interrupted(device.driver,  # later calls do not wait either
                lambda: [np.asarray(f(x + i)) for i in range(50)])
    with pytest.raises(DeviceError, match="work was aborted; in flight: long") as why:
        np.asarray(y)
    assert "test_faults.py" in str(why.value) and works(device)


@pytest.mark.cases(2, of="ended")
def test_ctrl_c_leaves_the_wait_and_a_second_one_the_device(software: Any) -> None:
    """In a process of its own: work that earlier tests left on the adapter would be timed, too."""
    code = ("import fnx\nfrom tests.devices.test_faults import ctrl_c_twice\n"
            "fnx.config.device = 'webgpu'\nctrl_c_twice()\nprint('aborted')\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout == "aborted\n" and not done.returncode, done.stderr


@pytest.mark.cases(2, of="ended")
def test_the_limit_of_time_gives_the_device_up(software: Any) -> None:
    x = long_input()
    y = fnx.jit(fnx.call(long, out=lambda x: x))(x)
    with override(time_limit=0.2), pytest.raises(DeviceError, match="ends within 0.2 s") as why:
        np.asarray(y)
    assert "long (test_faults.py" in str(why.value) and works(software)


@pytest.mark.cases(2, of="ended")
def test_a_process_ends_though_work_of_webgpu_was_left(software: Any) -> None:
    code = ("import signal, threading, numpy as np, fnx, fnx.numpy as jnp\n"
            "from fnx.backends.device.base import get_device\n"
            "from tests.devices.test_faults import interrupted, long, long_input\n"
            "fnx.config.device = 'webgpu'\n"
            "y = fnx.jit(fnx.call(long, out=lambda x: x))(long_input())\n"
            "driver = get_device('webgpu').driver\n"
            "interrupted(driver, lambda: y.block_until_ready())\nprint('left')\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout == "left\n" and not done.returncode, done.stderr
