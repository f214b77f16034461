"""fnx.profile: what ran and for how long, for calls and for blocks."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import profiling
from fnx.backends.cpu import profile_events
from fnx.backends.device.base import get_device
from fnx.core.rewriting.peak_rates import PeakRates
from fnx.core.support.config import override

COMPILED = True


@pytest.fixture(autouse=True)
def _limits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Skip measuring the machine's peak rates."""
    monkeypatch.setattr(profiling, "device_limits", lambda: PeakRates(
        (("float32", 100.0),), (("memory", 0, 10.0),)))
    yield
    assert get_device("cpu").queue.recording is None  # type: ignore[attr-defined]


def test_a_call_gives_its_result_and_its_kernels() -> None:
    f = fnx.jit(lambda x, y: jnp.exp(x @ y).sum())
    x = jnp.ones((96, 96)) / 96
    for _ in range(2):
        seen = fnx.profile(f)(x, y=x)
        assert float(seen.result) == pytest.approx(float(f(x, y=x)))
        product = max(seen.kernels, key=lambda row: row.flops)
        assert product.flops >= 2 * 96 ** 3 and product.count == 1
        assert product.line.startswith("test_profiling.py:")
        assert 0 < seen.nanoseconds <= seen.seconds * 1e9
        assert all(run.stop >= run.start for run in seen.runs)
        assert sum(row.nanoseconds for row in seen.lines) == seen.nanoseconds
    assert f.cache_info().traces == 1  # switched on without a retrace


@pytest.mark.parametrize(("index", "rows"), [(3, 1), (slice(2, 9), 7), (np.array([3, 5, 9]), 3)])
def test_an_eager_lookup_counts_the_rows_that_it_reads(index: Any, rows: int) -> None:
    (row,) = fnx.profile(lambda x: x[index])(jnp.ones((4000, 1000))).kernels
    assert 2 * 4000 * rows <= row.nbytes <= 2 * 4000 * rows + 100  # read and written, and indices


def test_what_lies_outside_of_the_kernels_is_explained() -> None:
    f = fnx.jit(lambda x: jnp.sin(x) @ x + 1.75, donate_argnums=0)
    x = jnp.ones((64, 64))
    cold = fnx.profile(f, warm_up=False)(x.copy())
    warm = fnx.profile(f)(x)
    assert cold.compilation > 0 == warm.compilation and warm.seconds < cold.seconds
    for seen in (cold, warm):
        assert sum(seen.outside_parts.values()) == seen.outside
        assert min(seen.outside_parts.values()) >= 0
    assert "tracing and compiling" in repr(cold) and "compiling" not in repr(warm)


def test_a_block_sees_eager_and_jitted_calls() -> None:
    x = jnp.ones(50_000)
    double = fnx.jit(lambda x: x * 2)
    double(x), x + 1
    with fnx.profile() as seen:
        for _ in range(3):
            double(x)
        y = x + 1
    assert sorted(row.count for row in seen.kernels) == [1, 3]
    assert float(y[0]) == 2
    double(x)
    assert len(seen.runs) == 4  # nothing is recorded afterwards


def test_loops_count_their_steps() -> None:
    def f(x: Any) -> Any:
        return fnx.lax.fori_loop(0, 7, lambda i, x: jnp.sort(x @ x), x)

    x = jnp.ones((8, 8)) / 8
    seen = fnx.profile(fnx.jit(f))(x)
    np.testing.assert_array_equal(seen.result, fnx.jit(f)(x))
    assert {row.count for row in seen.kernels if row.name.startswith("sort")} == {7}


def test_too_many_kernels_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile_events.EventRecording.__init__, "__defaults__", (5,))
    x = jnp.ones(4)
    x + 1
    with fnx.profile() as seen:
        for _ in range(9):
            x + 1
    assert (len(seen.runs), seen.lost) == (5, 4)
    assert "4 more kernels" in repr(seen)


def test_what_each_worker_did_is_noted(tmp_path: Path) -> None:
    with override(workers=3):
        x = jnp.ones((1500, 1500))
        f = fnx.jit(lambda x: jnp.tanh(x @ x))
        f(x).block_until_ready()
        seen = fnx.profile(f)(x)
    assert seen.workers == 3 and len(seen.busy) == 3
    long = max(seen.runs, key=lambda run: run.stop - run.start)
    assert len(long.chunks) > 3
    for run in seen.runs:
        for chunk in run.chunks:
            assert run.start <= chunk.start <= chunk.stop <= run.stop
            assert 0 <= chunk.worker < 3
    for worker in range(3):  # one at a time
        own = sorted((c.start, c.stop) for run in seen.runs for c in run.chunks
                     if c.worker == worker)
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(own))
    assert sum(seen.busy) == sum(row.busy for row in seen.kernels)
    assert sum(seen.busy) <= 3 * seen.nanoseconds
    assert "3 workers, busy for" in repr(seen) and "busy" in seen.table()
    seen.save(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {e["args"]["name"] for e in events if e["ph"] == "M"} == {
        "kernels", "worker 0", "worker 1", "worker 2"}
    assert sum(e.get("cat") == "chunk" for e in events) >= len(long.chunks)


def test_callbacks_and_prints_are_seen(capsys: pytest.CaptureFixture[str]) -> None:
    def f(x: Any) -> Any:
        fnx.debug.print("x is {}", x)
        return fnx.pure_callback(lambda a: np.asarray(a) + 1, x, x) * 2

    seen = fnx.profile(fnx.jit(f))(np.float32(3))
    assert float(seen.result) == 8 and capsys.readouterr().out == "x is 3.0\n" * 3
    seen = fnx.profile(fnx.jit(f), warm_up=False)(np.float32(3))
    assert capsys.readouterr().out == "x is 3.0\n"
    assert len(seen.runs) >= 3


def test_tables_are_for_readers(tmp_path: Path) -> None:
    seen = fnx.profile(fnx.jit(lambda x: jnp.sin(x) + 1))(jnp.ones(1000))
    text = repr(seen)
    assert "GFLOP/s" in text and "test_profiling.py" in text and "%" in text
    assert "test_profiling.py" in seen.table("line")
    assert "<table>" in seen._repr_html_() and "width:12.00em" in seen._repr_html_()
    seen.save(tmp_path / "trace.json")
    event, *_ = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert event["ph"] == "X" and event["dur"] >= 0 and event["args"]["bytes"] > 0
    with pytest.raises(fnx.FnxError, match="by='kernel'"):
        seen.table("colour")
    assert repr(profiling.Profile()).endswith("nothing ran")


def test_shares_of_kernels_do_not_depend_on_the_time_outside() -> None:
    runs = [profiling.KernelRun(f"k{i}", (("/x/m.py", 3),), 40, 0, i, i + t)
            for i, t in ((0, 3), (10, 1))]
    head, *rows = profiling.Profile(runs, seconds=1.0).table().splitlines()
    assert head.split()[:5] == ["ms", "%", "%", "of", "kernels"]
    assert [row.split()[1:3] for row in rows[:2]] == [["0.0", "75.0"], ["0.0", "25.0"]]


def test_limits_are_left_out_or_explained() -> None:
    at = (("/x/m.py", 3),)
    fast, routine = (profiling.KernelRun(name, at, 40, flops, 0, 5, arithmetic=kind)
                     for name, flops, kind in (("map", 1000, "float32"), ("eigvalsh", 0, "")))
    rows = profiling.Profile([fast, routine]).table().splitlines()
    assert "200%" in rows[1] and "%" not in rows[2] and "more than 100% of float32: " in rows[-1]
    mixed = profiling.Profile([fast, routine]).table("line")
    assert "more than 100%" not in mixed and "more than" not in profiling.Profile([routine]).table()
    seen = fnx.profile(fnx.jit(jnp.linalg.eigvalsh))(jnp.eye(30))
    row, = [row for row in seen.kernels if row.name == "eigvalsh"]
    assert row.line.startswith("test_profiling.py:") and not row.arithmetic


def test_text_of_the_user_is_escaped() -> None:
    run = profiling.KernelRun("<b>", (("/x/<i>.py", 3),), 1, 1, 0, 5)
    assert "<b>" not in profiling.Profile([run])._repr_html_()
    assert "<i>" not in profiling.Profile([run])._repr_html_()


def test_a_profile_inside_a_trace_or_another_one_is_refused() -> None:
    with pytest.raises(fnx.FnxError, match="being traced"):
        fnx.jit(lambda x: fnx.profile(jnp.sin)(x))(1.0)
    with fnx.profile() as seen:
        with pytest.raises(fnx.FnxError, match="one profile at a time"):
            fnx.profile(jnp.sin)(1.0)
        with pytest.raises(fnx.FnxError, match="not open"):
            seen.__enter__()
        jnp.ones(3) + 1
    assert seen.runs
    with pytest.raises(fnx.FnxError, match="expected a function"):
        fnx.profile(3)  # type: ignore[call-overload]
    with override(device="interp"), pytest.raises(fnx.FnxError, match="timed"), fnx.profile():
        pass


def test_what_fails_inside_ends_the_profile() -> None:
    with pytest.raises(ZeroDivisionError), fnx.profile():
        jnp.ones(3) + 1
        raise ZeroDivisionError
    with fnx.profile() as seen:
        jnp.ones(3) + 1
    assert seen.runs


def test_results_are_the_same_with_and_without() -> None:
    rng = np.random.default_rng(0)
    step = fnx.jit(fnx.value_and_grad(lambda w, x: (jnp.tanh(x @ w) ** 2).mean()))
    w, x = (rng.normal(size=s).astype(np.float32) for s in ((30, 40), (200, 30)))
    plain, seen = step(w, x), fnx.profile(step)(w, x)
    for a, b in zip(plain, seen.result):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
