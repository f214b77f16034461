"""OpenCL computes what the cpu computes: elementwise bit for bit, sums within a bound."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import fnx
import fnx.numpy as jnp
from fnx.backends.device.base import DeviceBase, get_device
from fnx.core.support.config import override
from fnx.core.support.errors import ArgumentError, DeviceError
from tests.devices.conftest import found
from tests.graphs import ALL_OPS, Graph, graphs
from tests.helpers import assert_same
from tests.laws.test_jit_eager_interp import FOLDS, INTEGERS, run

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import digits

EXAMPLES = int(os.environ.get("TEST_EXAMPLES", "4"))  # more in make device-laws
RNG = np.random.default_rng(0)
X = RNG.normal(size=(33, 70)).astype(np.float32)
W = RNG.normal(size=(70, 40)).astype(np.float32)


def on_both(f: Any, *args: Any) -> tuple[Any, Any]:
    """Return the results of a function on OpenCL and on the cpu."""
    mine = [np.asarray(x) for x in fnx.tree.leaves(fnx.jit(f)(*map(jnp.asarray, args)))]
    with override(device="cpu"):
        other = fnx.tree.leaves(fnx.jit(f)(*map(jnp.asarray, args)))
        return mine, [np.asarray(x) for x in other]


@pytest.mark.cases(4, of="steps")
def test_schedules_are_searched_for(opencl: DeviceBase, tmp_path: Path) -> None:
    f = fnx.jit(lambda x, w: jnp.tanh(x @ w).sum(0))
    want = np.asarray(f(X, W))
    with override(search=1.0, cache_dir=str(tmp_path)):
        np.testing.assert_allclose(np.asarray(f(X, W)), want, rtol=1e-5)
        text = f.lower(X, W).text("schedules")
    assert "found by search among" in text and "the model's choice: " not in text


@settings(max_examples=EXAMPLES)
@given(graphs(types=INTEGERS, steps=14))
def test_integers_have_the_cpus_bits(graph: Graph) -> None:
    device = found("opencl")
    want = run(graph.fn, graph.args, get_device("cpu"), False)
    for lengths_later in (False, True):
        assert_same(run(graph.fn, graph.args, device, lengths_later), want)


@settings(max_examples=EXAMPLES)
@given(graphs(allowed=ALL_OPS - FOLDS, steps=14))
def test_elementwise_results_have_the_cpus_bits(graph: Graph) -> None:
    device = found("opencl")
    assert_same(run(graph.fn, graph.args, device, False),
                run(graph.fn, graph.args, get_device("cpu"), False))


@pytest.mark.cases(4)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float8_e5m2"])
def test_powers_of_zero_and_rounding_have_the_cpus_bits(dtype: str, opencl: DeviceBase) -> None:
    def powers() -> Any:  # PoCL miscompiled rint of a known NaN
        x = jnp.arange(9).astype(dtype)
        return (x ** x).astype("float32")

    edges = np.float32([0.5, 1.5, 2.5, -0.5, -0.3, -0.0, np.nan, np.inf, -np.inf, 8388607.5,
                        8388608, 1e30, 0.49999997, -2.5, 3.5])
    for f, args in ((powers, ()), (lambda x: jnp.round(x), (edges,)),
                    (lambda x: jnp.round(x), (edges.astype(np.float64),))):
        got, want = on_both(f, *args)
        np.testing.assert_array_equal(got[0].view(np.uint8), want[0].view(np.uint8))


def layer_norm(x: Any) -> Any:
    m = x.mean(1, keepdims=True)
    return (x - m) / jnp.sqrt(((x - m) ** 2).mean(1, keepdims=True) + 1e-5)


def looped(x: Any) -> Any:
    carry, ys = fnx.lax.scan(lambda c, row: (c * 0.5 + row, c.sum()), x[0], x)
    n, _ = fnx.lax.while_loop(lambda c: c[1] < 100.0, lambda c: (c[0] + 1, c[1] * 1.5),
                              (0, jnp.abs(x[0, 0]) + 1))
    return carry, ys, n, fnx.lax.cond(n > 3, lambda: x[0] @ x[1], lambda: x[2].sum())


FUNCTIONS = {
    "softmax": lambda x, w: fnx.nn.softmax(x), "layer_norm": lambda x, w: layer_norm(x),
    "columns": lambda x, w: (x.sum(0), x.max(0), x.argmax(0)), "all": lambda x, w: x.sum(),
    "argmax": lambda x, w: x.argmax(1), "loops": lambda x, w: looped(x),
    "gradient": fnx.grad(lambda x, w: fnx.nn.logsumexp(jnp.tanh(x @ w), axis=1).sum(), (0, 1)),
    "sort": lambda x, w: (jnp.sort(x, axis=1), x.argsort(0)),
    "scatter": lambda x, w: jnp.zeros(70).at[jnp.arange(33) % 7].add(x[:, 0]),
    "cumsum": lambda x, w: jnp.cumsum(x, 1), "narrow": lambda x, w: x.astype(jnp.bfloat16) * 3,
    "concat": lambda x, w: jnp.concatenate([x, x[::-1] * 2, w.T]),
    "print": lambda x, w: fnx.pure_callback(lambda v: v * 2, x[0], x[0]),
}


@pytest.mark.cases(1)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_jitted_function(name: str, opencl: DeviceBase) -> None:
    got, want = on_both(FUNCTIONS[name], X, W)
    for a, b in zip(got, want, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=3e-5, atol=2e-5)


def test_one_program_and_one_submission_a_jitted_function(opencl: Any,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    loads = []
    load = opencl.driver.load
    monkeypatch.setattr(opencl.driver, "load",
                        lambda texts: loads.append(len(texts)) or load(texts))

    @fnx.jit
    def step(w: Any, x: Any) -> Any:
        return w - 0.125 * fnx.grad(lambda w: ((x @ w) ** 2).sum() / 3)(w)

    w, x = jnp.asarray(W), jnp.asarray(X)
    loads.clear()
    w = step(w, x)
    assert len(loads) == 1 and loads[0] > 1
    before = opencl.submissions
    for _ in range(3):
        w = step(w, x)
    assert opencl.submissions == before + 3 and len(loads) == 1
    assert np.isfinite(np.asarray(w)).all()


def test_arrays_of_other_devices_are_copied_and_donated_ones_are_written_over(opencl: Any) -> None:
    with override(device="cpu"):
        x = jnp.arange(1000.0) + 0
    f = fnx.jit(lambda x: x * 2 + 1, donate_argnums=0)
    y = f(x)
    z = f(y)
    assert np.asarray(z)[3] == 15.0
    with override(device="cpu"):
        assert np.asarray(f(z))[3] == 31.0


def test_memory_is_given_back_and_taken_again(opencl: Any) -> None:
    f = fnx.jit(lambda x: (x + 1, x * 2))
    x = jnp.ones(100_000)
    f(x)
    for _ in range(20):
        x, _ = f(x)
    held = opencl.stats()["held"]
    for _ in range(20):
        x, _ = f(x)
    assert opencl.stats()["held"] == held
    assert np.asarray(x)[0] == 41.0


def test_too_much_memory_says_what_is_in_use(opencl: Any) -> None:
    with pytest.raises(MemoryError, match=r"opencl: expected [\d,]+ bytes"):
        opencl.alloc(1 << 50)


def _child() -> None:
    try:
        np.asarray(jnp.ones(4) + 1)
    except DeviceError as error:
        raise SystemExit(7 if "a child of it" in str(error) else 8) from None


def test_a_forked_child_is_refused(opencl: Any) -> None:
    np.asarray(jnp.ones(4) + 1)
    child = multiprocessing.get_context("fork").Process(target=_child)
    child.start()
    child.join()
    assert child.exitcode == 7


PROBE = """
import sys, fnx
assert not [m for m in sys.modules if m.startswith("fnx.backends.gpu") or "opencl" in m]
assert "OpenCL" not in open("/proc/self/maps").read()
fnx.config.device = "opencl"
try:
    fnx.numpy.ones(3) + 1
except fnx.errors.DeviceError as error:
    print(error)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_nothing_is_probed_at_import_and_what_is_missing_is_said() -> None:
    nowhere = {**os.environ, "OCL_ICD_VENDORS": "/nowhere"}
    done = subprocess.run([sys.executable, "-c", PROBE], env=nowhere, capture_output=True,
                          text=True, check=True)
    assert "looked" in done.stdout and "apt-get install" in done.stdout


def train(steps: int, after: Any = None) -> list[float]:
    """Train a small net; return the losses."""
    def loss(p: Any) -> Any:
        return -(fnx.nn.log_softmax(fnx.nn.relu(x @ p[0]) @ p[1]) * y).sum(1).mean()

    @fnx.jit
    def step(p: Any) -> Any:
        value, g = fnx.value_and_grad(loss)(p)
        return value, fnx.tree.map(lambda w, d: w - 0.25 * d, p, g)

    rng = np.random.default_rng(5)
    x, y = jnp.asarray(X), jnp.asarray(np.eye(10, dtype=np.float32)[rng.integers(0, 10, 33)])
    p = [jnp.asarray(rng.normal(size=s).astype(np.float32) / 8) for s in ((70, 24), (24, 10))]
    losses = []
    for _ in range(steps):
        value, p = step(p)
        losses.append(float(value))  # otherwise each step needs other memory for it
        if after is not None:
            after()
    return losses


@pytest.mark.cases(4, of="steps")
def test_each_training_step_is_one_run_of_machine_code(opencl: Any,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []
    run = opencl.driver.runner.run
    monkeypatch.setattr(opencl.driver.runner, "run", lambda *a: (runs.append(1), run(*a))[1])
    counts = [0]
    losses = train(24, lambda: counts.append(len(runs)))
    assert set(np.diff(counts)[1:]) == {1}
    with override(device="cpu"):
        np.testing.assert_allclose(losses, train(24), rtol=2e-5)


def test_a_call_of_one_kernel_is_one_run_of_machine_code(opencl: Any,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    f, x = fnx.jit(lambda x: x * 2 + 1), jnp.arange(12.0)
    for _ in range(4):
        y = f(x)
    seen: list[str] = []
    calls = opencl.driver.cl.calls
    for name, call in calls.items():
        monkeypatch.setitem(calls, name, lambda *args, _name=name, _call=call: (
            seen.append(_name) or _call(*args)))
    for _ in range(5):
        y = f(x)
    assert not seen
    np.testing.assert_array_equal(np.asarray(y), np.arange(12.0, dtype=np.float32) * 2 + 1)


def test_a_handle_of_memory_that_was_freed_means_other_memory(opencl: Any) -> None:
    f = fnx.jit(lambda x: x * 2 + 1)
    for i in range(6):
        x = jnp.full(3000, float(i))
        np.testing.assert_array_equal(np.asarray(f(x)), np.full(3000, 2 * i + 1, np.float32))
        del x
        opencl.pool.trim()


_ASIDE = ("clEnqueueMarkerWithWaitList", "clEnqueueMapBuffer")  # no work; memory is made once


def driver_calls(device: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the calls into the driver that enqueue work from now on."""
    seen: list[str] = []
    for functions in (device.driver.cl, device.driver.recording):
        for name, call in functions.calls.items() if functions is not None else ():
            if name.startswith("clEnqueue") and name not in _ASIDE:
                def counted(*args: Any, _name: str = name, _call: Any = call) -> Any:
                    seen.append(_name)
                    return _call(*args)
                monkeypatch.setitem(functions.calls, name, counted)
    launch = device.driver.launch
    monkeypatch.setattr(device.driver, "launch", lambda linked, memory: seen.extend(
        ["clEnqueueNDRangeKernel"] * len(linked.kernels)) or launch(linked, memory))
    return seen


def digits_losses(steps: int, donate: Any, after: Any = None, epoch: int = 1 << 30) -> list[Any]:
    """Return the losses, all retained, of some steps of examples/digits.py; the last batch of an
    epoch of so many steps is shorter."""
    step = fnx.jit(digits.adam_step, donate_argnums=donate)
    rng = np.random.default_rng(5)
    x = rng.normal(size=(16, 64)).astype(np.float32)
    y = rng.integers(0, 10, 16).astype(np.int32)
    params = digits.init(fnx.random.key(0))
    zeros = fnx.tree.map(jnp.zeros_like, params)
    state = params, zeros, fnx.tree.map(jnp.zeros_like, params), jnp.asarray(0.0)
    losses = []
    for i in range(steps):
        rate = digits.RATE * (1 + i) / steps  # each call uploads NumPy data and a number
        n = 16 if i % epoch < epoch - 1 else 7
        value, state = step(state, x[:n], y[:n], rate)
        losses.append(value)
        if after is not None:
            after()
    return losses


@pytest.mark.cases(1)
@pytest.mark.parametrize("donate", [0, None], ids=["donated", "in turns"])
def test_a_digits_step_is_one_enqueue_and_one_copy(donate: Any, opencl: Any,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    if opencl.driver.recording is None:
        pytest.skip("the driver has no command buffers")
    calls, steps = driver_calls(opencl, monkeypatch), []
    losses = digits_losses(20, donate, lambda: (steps.append(tuple(calls)), calls.clear()))
    assert steps[0].count("clEnqueueNDRangeKernel") >= 8
    for step in steps[-3:]:
        assert step == ("clEnqueueWriteBuffer",) * 3 + \
            ("clEnqueueCommandBufferKHR", "clEnqueueCopyBuffer")
    with override(device="cpu"):
        want = [float(v) for v in digits_losses(20, donate)]
    np.testing.assert_allclose([float(v) for v in losses], want, rtol=1e-3)


@pytest.mark.cases(4, of="steps")
def test_a_shorter_last_batch_is_one_enqueue_too(opencl: Any, monkeypatch: pytest.MonkeyPatch
                                                 ) -> None:
    """Two programs pass one state back and forth: it needs two buffers, not two per program."""
    if opencl.driver.recording is None:
        pytest.skip("the driver has no command buffers")
    calls, steps = driver_calls(opencl, monkeypatch), []
    losses = digits_losses(26, None, lambda: (steps.append(tuple(calls)), calls.clear()), 5)
    for step in steps[-6:]:
        assert step.count("clEnqueueCommandBufferKHR") == 1
        assert "clEnqueueNDRangeKernel" not in step
    with override(device="cpu"):
        want = [float(v) for v in digits_losses(26, None, epoch=5)]
    np.testing.assert_allclose([float(v) for v in losses], want, rtol=1e-3)


LARGE = 5000  # elements of arrays for which re-recording is cheaper than copying


@pytest.mark.cases(4, of="steps")
def test_results_that_are_kept_and_dropped_at_random(opencl: Any) -> None:
    """Whatever callers retain, and for however long, no live buffer is overwritten."""
    @fnx.jit
    def step(state: Any, x: Any) -> Any:
        a, b = state
        for i in range(3):
            a, b = jnp.cumsum(b[::-1]) * 0.25 + x, jnp.sort(a)[::-1] + i
        return (a, b), a.sum(), b * 2, jnp.stack([a.max(), b.min()])

    @fnx.jit
    def chain(state: Any, x: Any) -> Any:
        a, b = state
        for i in range(5):
            a, b = jnp.cumsum(b[::-1]) * 0.25 + x, a[::-1] * 0.5 + i
        return (a, b), a.sum(), b * 2, jnp.stack([a.max(), b.min()])

    rng = np.random.default_rng(int(os.environ.get("FNX_TEST_SEED", "3")))
    for f in (step, chain):
        state = want = (np.arange(40.0, dtype=np.float32), np.ones(40, np.float32))
        kept: list[tuple[Any, Any]] = []
        for i in range(10 * EXAMPLES):
            x = np.float32(rng.normal())
            state, *more = f(state, x)
            with override(device="cpu"):
                want, *others = f(want, x)
                want = fnx.tree.map(np.asarray, want)
            pairs = [*zip(more, others), *zip(state, want)]
            kept += [pair for pair in pairs if rng.random() < 0.3]
            while kept and rng.random() < 0.4 or len(kept) > 40:
                got, expected = kept.pop(int(rng.integers(len(kept))))
                np.testing.assert_allclose(np.asarray(got), np.asarray(expected), rtol=1e-4,
                                           atol=1e-4)
            if i % 20 == 19:
                opencl.pool.trim()


@pytest.mark.cases(4, of="steps")
def test_memory_that_is_freed_between_calls(opencl: Any) -> None:
    def chain(x: Any) -> Any:
        for i in range(10):
            x = jnp.sin(x[::-1]).cumsum() * 0.01 + i
        return x

    f, x = fnx.jit(chain), jnp.arange(300.0)
    want = np.asarray(f(x))
    for _ in range(3):
        for _ in range(6):
            np.testing.assert_array_equal(np.asarray(f(x)), want)
        opencl.pool.trim()
        opencl.pool.driver.free(opencl.pool.driver.alloc(2048))


def test_a_function_that_is_jitted_for_a_device_runs_there() -> None:
    device: Any = found("opencl")
    plain = fnx.jit(lambda x: jnp.tanh(x) * 2)
    there = fnx.jit(lambda x: jnp.tanh(x) * 2, device="opencl")
    x, before = jnp.asarray(X), device.submissions
    want = np.asarray(plain(x))
    assert device.submissions == before
    for _ in range(4):
        np.testing.assert_array_equal(np.asarray(there(x)), want)
    assert device.submissions == before + 4
    np.testing.assert_array_equal(np.asarray(there(x) + 1), want + 1)  # the source stays as it is
    assert device.submissions == before + 6
    with pytest.raises(ArgumentError, match="expected a device of cpu, .*, got 'tpu'"):
        fnx.jit(lambda x: x, device="tpu")


@pytest.mark.cases(4, of="steps")
def test_eager_products_of_any_lengths(opencl: DeviceBase) -> None:
    for m, k, n in ((2, 3, 2), (33, 70, 40), (1, 5, 9), (64, 16, 64)):
        x, y = RNG.normal(size=(m, k)).astype(np.float32), RNG.normal(size=(k, n)).astype("f4")
        got = jnp.asarray(x) @ jnp.asarray(y)
        np.testing.assert_allclose(np.asarray(got), x @ y, rtol=1e-4, atol=1e-4)
