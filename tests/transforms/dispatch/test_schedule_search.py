"""config.search: jitted functions use schedules found by timing if they beat the heuristic."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.support.config import override
from fnx.core.support.errors import ArgumentError, DeviceError
from fnx.core.support.target import Target
from fnx.lower import candidates
from fnx.lower.schedule.heuristics import choose_schedule
from fnx.lower.schedule.knobs import HEURISTIC
from fnx.lower.schedule.tile import tile
from fnx.transforms.dispatch import schedule_search, schedule_trials
from fnx.transforms.dispatch.progress_bar import ProgressBar
from fnx.transforms.dispatch.schedule_trials import measurements
from fnx.transforms.link import disk_cache

pytestmark = pytest.mark.usefixtures("own_disk_cache")

COMPILED = True

CASES: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "product": (lambda x, w: x @ w, ((37, 65), (65, 50))),
    "product and more": (lambda x, w, b: jnp.tanh(x @ w + b), ((20, 129), (129, 40), (40,))),
    "turned": (lambda x: x.T + 1, ((70, 90),)),
    "softmax": (lambda x: jnp.exp(x - x.max(1, keepdims=True)) / jnp.exp(x).sum(1, keepdims=True),
                ((50, 77),)),
    "sums": (lambda x: (x.sum(0), x.sum(1), x.max()), ((60, 70),)),
    "dots": (lambda x, y: x @ y.T, ((30, 200), (3, 200))),
    "batch": (lambda x, y: x @ y, ((4, 20, 30), (4, 30, 10))),
    "take": (lambda x: x[jnp.argsort(x[:, 0])], ((30, 7),)),
}


def operands(name: str) -> list[Any]:
    rng = np.random.default_rng(1)
    return [rng.uniform(0.1, 1, shape).astype("f4") for shape in CASES[name][1]]


@pytest.mark.cases(1)
@pytest.mark.parametrize("name", CASES)
def test_what_is_found_computes_the_same(name: str) -> None:
    f, args = CASES[name][0], operands(name)
    want = fnx.jit(f)(*args)
    with override(search=0.5):
        made = fnx.jit(f)
        got, text = made(*args), made.lower(*args).text("schedules")
        again = fnx.jit(lambda *args: f(*args))(*args)
    fnx.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-6), got, want)
    fnx.tree.map(np.testing.assert_array_equal, got, again)
    assert "found by search among" in text or name == "take"
    assert "found by search" not in fnx.jit(f).lower(*args).text("schedules")


@pytest.mark.cases(12)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("target", [
    Target("cpu"), Target("cpu", vector_bits=128, vector_registers=16)], ids=["wide", "narrow"])
def test_the_model_takes_the_first_and_all_are_distinct_and_mostly_legal(
        name: str, target: Target) -> None:
    lowering = fnx.jit(CASES[name][0]).lower(*operands(name))
    kernels = {ran.after.kernel for ran in lowering.passes if ran.name == "canonicalize"}
    tried = 0
    for kernel in kernels:
        found = list(candidates.candidates(kernel, target))
        assert found[0].schedule == choose_schedule(kernel, target) and found[0].plan == HEURISTIC
        for candidate in found:
            tile(kernel, candidate.schedule)
        tried += len({c.schedule for c in found})
    assert tried > len(kernels)


def test_the_setting_is_part_of_the_key_and_is_checked() -> None:
    f = fnx.jit(CASES["product"][0])
    args = operands("product")
    f(*args)
    made = f.cache_info().compiles
    with override(search=0.01):
        f(*args)
    assert f.cache_info().compiles == made + 1
    with pytest.raises(ArgumentError, match="config.search: expected a number from 0"):
        fnx.config.search = -1.0


def test_what_was_found_is_kept_for_other_processes(monkeypatch: pytest.MonkeyPatch,
                                                    tmp_path: Path) -> None:
    f, args = CASES["product"][0], operands("product")
    with override(search=0.3):
        want = fnx.jit(f).lower(*args).text("schedules")
    fnx.cache.export(str(tmp_path / "taken"))
    measurements.clear()  # as in another process
    monkeypatch.setattr(schedule_search, "_HillClimb", None)
    with override(search=0.001, cache_dir=str(tmp_path / "taken")):
        assert fnx.jit(lambda x, w: f(x, w)).lower(*args).text("schedules") == want


def test_no_disk_to_write_to(tmp_path: Path) -> None:
    f, args = CASES["product"][0], operands("product")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    for folder in ("", str(closed), str(tmp_path / "none" / "deep")):
        measurements.clear()
        with override(search=0.1, cache_dir=folder):
            made = fnx.jit(lambda x, w: f(x, w))
            np.testing.assert_allclose(made(*args), args[0] @ args[1], rtol=1e-5)


def shorten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave few candidates at each step, so that a search ends before its time is up."""
    for name in ("near", "further"):
        every = getattr(candidates, name)
        monkeypatch.setattr(candidates, name, lambda *args, every=every: islice(every(*args), 9))


def climb(monkeypatch: pytest.MonkeyPatch, in_turns: Any, name: str = "product") -> str:
    """Return the schedules that a search with this clock chooses."""
    monkeypatch.setattr(schedule_trials.Trials, "time_both", in_turns)
    shorten(monkeypatch)
    with override(search=5.0):
        return fnx.jit(CASES[name][0]).lower(*operands(name)).text("schedules")


def always_faster(self: Any, ours: Any, theirs: Any, times: int = 1) -> tuple[float, float]:
    return (1.0, 1.0) if ours is theirs else (1.0, 2.0)


def test_the_fastest_is_taken_and_the_gain_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "neighbors", lambda *_: ())
    text = climb(monkeypatch, always_faster)
    assert re.search(r"found by search among \d+: 1 ms, the model's choice 2 ms \(2\.00x\)", text)
    assert "is the fastest" in climb(monkeypatch, lambda *_: (1.0, 1.0), "batch")


def test_wrong_answers_and_failures_are_never_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    results, count = schedule_trials.Trials.results, 0

    def wrong(self: Any, made: Any) -> Any:
        nonlocal count
        count += 1
        if count % 3 == 0:
            raise DeviceError("a fault")
        found = results(self, made)
        if count > 1:  # all but the heuristic schedule
            found[-1].view("f4")[-1] *= 1.01
        return found

    monkeypatch.setattr(schedule_trials.Trials, "results", wrong)
    text = climb(monkeypatch, always_faster)
    assert "the model's choice, 1 ms, is the fastest" in text
    assert "for other results" in text and "for DeviceError: a fault" in text


def test_code_that_takes_long_to_compile_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule_trials, "_EXTRA_CODE", 0)
    monkeypatch.setattr(schedule_trials, "_CODE_RATIO", 0.5)
    text = climb(monkeypatch, always_faster)
    assert "the model's choice, 1 ms, is the fastest" in text
    assert "KernelError: expected code of at most" in text


def test_what_is_far_slower_is_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def seconds(self: Any, program: Any, count: int) -> float:
        if program not in made:
            made.append(program)
        return 1.0 if program is made[0] else 100.0

    results, computed = schedule_trials.Trials.results, []
    monkeypatch.setattr(schedule_trials.Trials, "_seconds", seconds)
    monkeypatch.setattr(schedule_trials.Trials, "results",
                        lambda self, program: computed.append(program) or results(self, program))
    shorten(monkeypatch)
    with override(search=5.0):
        text = fnx.jit(CASES["product"][0]).lower(*operands("product")).text("schedules")
    assert "is the fastest" in text and len(made) > 1
    assert all(program is made[0] for program in computed)


def test_an_entry_of_another_version_is_as_nothing() -> None:
    f, args = CASES["product"][0], operands("product")
    with override(search=0.3):
        fnx.jit(f)(*args)
        place = disk_cache()
        key, = [k for k in measurements.keys() if type(k) is bytes]
        place.put(key, b'[[["Twist", 1]], 1, 1, 2, []]')
        measurements.clear()
        got = fnx.jit(lambda x, w: f(x, w))(*args)
        assert schedule_search._decode(place.get(key)) is not None  # rewritten
    np.testing.assert_allclose(got, args[0] @ args[1], rtol=1e-5)


def test_an_interrupt_leaves_with_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = 0

    def interrupted(self: Any, ours: Any, theirs: Any, times: int = 1) -> tuple[float, float]:
        nonlocal turns
        turns += 1
        if turns == 5:
            raise KeyboardInterrupt
        return always_faster(self, ours, theirs)

    with pytest.raises(KeyboardInterrupt):
        climb(monkeypatch, interrupted)
    assert fnx.config.search == 0 and fnx.config.check == ""
    monkeypatch.setattr(schedule_search, "_HillClimb", None)  # no new search
    assert "the model's choice 2 ms (2.00x)" in climb(monkeypatch, always_faster)


def test_under_transforms_and_in_loops() -> None:
    x, w = operands("product")
    f = lambda x: jnp.tanh(x @ w).sum()

    def value(name: str) -> Any:
        g = fnx.jit(lambda x: f(x))
        if name == "grad":
            return fnx.grad(g)(x)
        if name == "vmap":
            return fnx.vmap(g)(jnp.stack([x, x]))
        if name == "scan":
            return fnx.jit(lambda x: fnx.lax.scan(
                lambda c, _: (c + g(x) * 1e-3, None), 0.0, None, length=3)[0])(x)
        if name == "in a trace":
            return fnx.jit(lambda y: y + g(x))(1.0)
        with fnx.disable_jit():
            return g(x)
    for name in ("grad", "vmap", "scan", "in a trace", "no jit"):
        want = value(name)
        with override(search=0.2):
            np.testing.assert_allclose(value(name), want, rtol=1e-5)


def test_devices_without_code_do_not_search() -> None:
    with override(search=5.0, device="interp"):
        x, w = operands("product")
        np.testing.assert_allclose(fnx.jit(lambda x, w: x @ w)(x, w), x @ w, rtol=1e-5)


def test_two_processes_at_once_end_with_one_schedule(tmp_path: Path) -> None:
    program = (
        "import fnx, numpy as np\n"
        "fnx.config.search = 0.5\n"
        "x = np.arange(1200, dtype='f4').reshape(30, 40) % 7\n"
        "f = fnx.jit(lambda x: fnx.numpy.tanh(x @ x.T))\n"
        "f(x); print(f.lower(x).text('schedules').splitlines()[1:])\n")
    environment = {**os.environ, "FNX_CACHE_DIR": str(tmp_path / "both")}

    def begun() -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, "-c", program], env=environment, text=True,
                                stdout=subprocess.PIPE)
    for process in [begun(), begun()]:
        assert process.wait(300) == 0 and process.stdout is not None
        process.stdout.close()
    last, again = (begun().communicate(timeout=300)[0] for _ in range(2))
    assert last == again and "split" in last


def test_a_bar_is_for_who_looks(capsys: pytest.CaptureFixture[str],
                                monkeypatch: pytest.MonkeyPatch) -> None:
    with ProgressBar("searching", 2.0) as progress:
        progress.update_bar(1.0, "kernel 1 of 2")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with ProgressBar("searching", 2.0) as progress:
        progress.update_bar(1.0, "kernel 1 of 2")
        progress.update_bar(1.1, "too soon")
    text = capsys.readouterr().err
    assert "searching [############............] 1.0 of 2 s: kernel 1 of 2" in text
    assert "too soon" not in text and text.endswith("\r")
