"""After a call that fails, donated arguments are still the caller's, or say where they went.

The failure is a Ctrl-C at each point of a call where the Python interpreter checks for one (after a
call, at the start of a function, at a loop's back edge), one after the other.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.backends.device.base import get_device
from fnx.core.support.config import OWN_MEMORY, config, override
from fnx.core.support.errors import CallbackError, DonatedError, OutOfMemoryError
from tests.attack.instants import Instant

N = 1000
SMALL, LONG = np.arange(N, dtype=np.float32), np.arange(400_000, dtype=np.float32)


def update(w: Any) -> Any:
    return w * 2 + 1


def failed_at(n: int, f: Callable[..., Any], *args: Any) -> tuple[bool, int]:
    """Return whether the call failed at its n-th check point, and how many it has."""
    instant = Instant(n)
    kind, _ = instant.run(f, *args)
    return kind == "KeyboardInterrupt", instant.count


def as_it_was_or_donated(w: Any, memory: Any, value: np.ndarray[Any, Any]) -> bool:
    """Return whether the array is still intact; otherwise check that it names its consumer and that
    its memory is overwritten."""
    try:
        np.testing.assert_array_equal(np.asarray(w), value)
        return True
    except DonatedError as e:
        assert "donated to update (" in str(e) and "test_donation_failures.py:" in str(e)
        get_device(config.device).synchronize()
        # On GPUs the interrupt may come after the donation and before the first work is queued.
        if config.device not in OWN_MEMORY:
            assert not np.array_equal(np.frombuffer(memory.window(), value.dtype), value)
        return False


@pytest.fixture
def without_gc() -> Iterator[None]:
    """Finalizers and callbacks of the collector would add check points, where exceptions are
    ignored."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.cases(1)
@pytest.mark.parametrize(("value", "warm", "stride"), [(SMALL, 8, 1), (SMALL, 1, 13), (LONG, 8, 7)],
                         ids=["launcher", "general path", "queued"])
def test_wherever_it_is_interrupted(value: Any, warm: int, stride: int, without_gc: None) -> None:
    kept = 0
    count = min(failed_at(0, _warm(value, warm), jnp.asarray(value) + 0)[1] for _ in range(12))
    assert count > 20
    step = _warm(value, warm)
    last = max(1, count - 60)  # around the donation
    for n in (*range(1, last, stride), *range(last, count + 1)):
        if warm == 1:  # stay on the general path: the second call takes the fast path
            step = _warm(value, warm)
        w = jnp.asarray(value) + 0
        memory = w._storage
        failed, _ = failed_at(n, step, w)
        assert failed or n > count - 40
        kept += as_it_was_or_donated(w, memory, value)
        np.testing.assert_array_equal(step(jnp.asarray(value) + 0), value * 2 + 1)
    assert kept > count // stride // 4


def _warm(value: Any, calls: int) -> Any:
    step = fnx.jit(update, donate_argnums=0)
    w = jnp.asarray(value) + 0
    for _ in range(calls):
        w = step(w)
    return step


@pytest.mark.parametrize("device", ["cpu", "interp"])
def test_no_memory_for_the_result(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with override(device=device):
        step = fnx.jit(lambda w, v: (update(w), v @ v), donate_argnums=0)
        w, v = jnp.asarray(SMALL) + 0, jnp.ones((64, 64))
        step(w + 0, v)
        executable, = {r.value.executable for r in step._traces.values()}

        def fresh() -> Any:
            raise OutOfMemoryError("expected free memory, got none")

        monkeypatch.setattr(executable, "allocate_results", fresh)
        with pytest.raises(MemoryError):
            step(w, v)
        np.testing.assert_array_equal(w, SMALL)


@override(device="cpu")
def test_an_earlier_failure_is_told_before_anything_is_taken() -> None:
    def bad(_: Any) -> None:
        raise ValueError("no")

    @fnx.jit
    def fails_later(x: Any) -> Any:
        fnx.debug.callback(bad, x)
        return x * 2

    step, x = _warm(SMALL, 8), jnp.ones(3)
    w = jnp.asarray(SMALL) + 0
    fails_later(x)
    queue: Any = get_device("cpu")
    while queue.queue._failure is None:
        time.sleep(0.001)
    with pytest.raises(CallbackError):
        step(w)
    np.testing.assert_array_equal(w, SMALL)
