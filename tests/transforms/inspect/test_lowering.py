"""Lowering: every stage from the graph to the commands prints, for terminals and for notebooks."""

from __future__ import annotations

import gc
import re
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.kernel as k
import fnx.numpy as jnp
from fnx import lax
from fnx.core.ir import dtypes, low_precision
from fnx.core.ir.kernel_code import RunTrace
from fnx.core.rewriting.peak_rates import PeakRates
from fnx.core.support.config import override
from fnx.core.support.errors import ArgumentError
from fnx.core.support.target import Target
from fnx.lower.pipeline import passes
from fnx.transforms.dispatch import machine_limits
from fnx.transforms.dispatch.executable import Executable
from fnx.transforms.dispatch.schedule_trials import measurements
from fnx.transforms.inspect.lowering import STEPS


def layer(params: Any, x: Any) -> Any:
    return jnp.tanh(x @ params["w"] + params["b"])


def stages_of(f: Any = layer) -> Any:
    params = {"w": np.ones((20, 30), "f4"), "b": np.ones(30, "f4")}
    return fnx.jit(f).lower(params, np.ones((5, 20), "f4"))


def test_all_steps_are_shown_in_one_call(capsys: pytest.CaptureFixture[str]) -> None:
    stages_of().show("all")
    text = capsys.readouterr().out
    heads = re.findall(r"^==== (\w+)  \((.*)\)$", text, re.M)
    assert [name for name, _ in heads] == list(STEPS)
    times = " ".join(times for _, times in heads)
    missing = [p.name for p in passes(Target("cpu")) if f"{p.name} " not in times]
    assert not missing, "each pass stands in the head of a stage"
    assert all(" ms" in times for _, times in heads)
    assert "function layer(params_b: float32[30], params_w: float32[20, 30], x: " in text
    assert "group 0 over (5, 30): params_b, params_w, x -> b0" in text
    assert "sum(k < 20: " in text and "define" in text
    assert "the model's choice: a sum of products" in text
    assert re.search(r"contract_\w+\(params_b, x, params_w\) -> out0|\(.*\) -> out0", text)
    assert f"test_lowering.py:{layer.__code__.co_firstlineno + 1}" in text


def test_a_summary_is_short_and_says_what_is_worth_a_look(
        capsys: pytest.CaptureFixture[str]) -> None:
    def deep(x: Any) -> Any:
        for i in range(15):  # no two kernels are equal
            x = jnp.tanh(x @ jnp.full((x.shape[1], 20 + i), x[0, 0]))
        return x
    lines = {}
    for name, lowering in {
            "deep": fnx.jit(deep).lower(np.ones((32, 32), "f4")), "layer": stages_of(),
            "effects": fnx.jit(lambda x: fnx.debug.print("{}", x)).lower(jnp.ones(3))}.items():
        lowering.show()
        lines[name] = capsys.readouterr().out.splitlines()
        assert all(map(str.isascii, lines[name])), "for terminals of any encoding"
        assert len(lines[name]) <= 60 and max(map(len, lines[name])) <= 100
        assert [line.split()[0] for line in lines[name][3:3 + len(STEPS)]] == list(STEPS)
    assert lines["deep"][0].startswith("deep on cpu: ") and "more" in lines["deep"][26]
    assert lines["layer"][0].startswith("layer on cpu: 1 kernel, ")
    assert any("not measured: " in line and "effects" in line for line in lines["effects"])
    with override(x64=True, device="interp"):
        fnx.jit(lambda x: x * 2).lower(np.ones(4)).show()
    assert "1 kernel computes in float64" in capsys.readouterr().out
    fnx.jit(lambda x: jnp.cumsum(x)).lower(np.ones(4000, "f4")).show()
    assert "in float64" not in capsys.readouterr().out, "the arrays are float32"


def test_the_summary_names_what_can_be_done(capsys: pytest.CaptureFixture[str]) -> None:
    def loop(w: Any, x: Any) -> Any:
        return lax.scan(lambda h, y: (jnp.sort(jnp.tanh(h @ w + y)), h.sum()), x[0], x)
    lowering = fnx.jit(loop).lower(jnp.ones((20, 20)), jnp.ones((900, 20)))
    lowering.show()
    summary = " ".join(capsys.readouterr().out.split())
    assert "<lambda> (test_lowering.py:" in summary and "in each of 900 iterations" in summary
    assert "its kernels are launched in each iteration" in lowering.text("schedules")
    fnx.jit(jnp.linalg.eigvalsh).lower(jnp.eye(90)).show()
    assert "of the time in a library routine: fewer or smaller calls" in \
        " ".join(capsys.readouterr().out.split())


def test_the_time_of_a_callback_is_that_of_python(capsys: pytest.CaptureFixture[str]) -> None:
    def slow(x: Any) -> Any:
        time.sleep(0.01)
        return x
    f = fnx.jit(lambda x: fnx.pure_callback(slow, x, x) + 1)
    f.lower(jnp.ones(2)).show()
    shown = " ".join(capsys.readouterr().out.split())
    assert "in Python: call it less often" in shown and "library routine" not in shown


def test_sizes_count_a_thousand_bytes_as_the_profile_does(
        capsys: pytest.CaptureFixture[str]) -> None:
    f = fnx.jit(lambda x: jnp.sin(x) + 1)
    f.lower(jnp.ones(1_000_000)).show()
    assert " 8 MB " in " ".join(capsys.readouterr().out.split())
    assert "before the first and after the last" in repr(fnx.profile(f)(jnp.ones(1000)))


def halve(i: Any, x: Any) -> Any:
    return x * 0.5 + i


@pytest.mark.parametrize("loop, name", [
    (lambda x: lax.fori_loop(0, 9, halve, x), "fori_loop_halve"),
    (lambda x: lax.fori_loop(0, x.astype(int), halve, x), "fori_loop_halve"),
    (lambda x: lax.scan(lambda c, _: (halve(0, c), None), x, None, 9)[0], "scan_<lambda>"),
    (lambda x: lax.while_loop(lambda c: c > 1, lambda c: halve(0, c), x), "while_loop_<lambda>")])
def test_a_loop_has_the_name_that_the_user_wrote(loop: Any, name: str) -> None:
    kind, _, body = name.rpartition("_")
    assert fnx.jit(loop).lower(9.0).text("schedules").startswith(f"{kind} {body} (")
    session = fnx.debug.step(loop)(9.0)
    step = session.run("halve")
    assert step is not None and step.loops[-1].loop == kind


def test_some_steps_are_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    stages_of().show("kernels", "commands")
    heads = re.findall(r"^==== (\w+)", capsys.readouterr().out, re.M)
    assert heads == ["kernels", "commands"]
    with pytest.raises(ArgumentError, match="expected a step of graph, simplified.*'kernel'"):
        stages_of().show("kernel")


def test_a_page_for_notebooks_is_escaped() -> None:
    f = lambda params, x: layer(params, x) * 2
    f.__name__ = "<b>&f"
    page = stages_of(f)._repr_html_()
    assert page.count("<details>") == len(STEPS) and "<b>&f" not in page
    assert "&lt;b&gt;&amp;f" in page
    for head in ("kernel", "line", "loops", "FLOP", "bytes", "schedule", "chosen by"):
        assert f"<th>{head}</th>" in page
    assert "vectorize(&#x27;" in page and "vec(16)" in page or "vec(" in page


def test_stages_of_a_hand_written_kernel_under_its_schedule() -> None:
    @fnx.call(out=lambda x: x, schedule=[k.split("i", 8), k.vectorize("ii")])
    def double(x: Any, o: Any) -> None:
        i = k.range(x.shape[0], "i")
        o[i] = x[i] * 2.0
    shown = fnx.jit(lambda x: double(x)).lower(jnp.zeros(16))
    assert shown.text("schedules").startswith("double: as the user wrote it")
    assert "for io in seq(2), ii in vec(8):" in shown.text("tiled")


def test_what_each_kernel_costs() -> None:
    def f(x: Any) -> Any:
        return jnp.exp(x @ x), x.T + 1.0
    found = fnx.jit(f).lower(np.ones((128, 128), "f4")).roofline()
    product = max(found.rows, key=lambda row: row.flops)
    assert product.flops >= 2 * 128 ** 3 and product.bound == "float32"
    assert product.line.startswith("test_lowering.py:") and "vec(" in product.loops
    for row in found.rows:
        assert row.chosen == "model" and row.predicted > 0 and row.nbytes > 0
        assert row.measured and row.least and row.limit == row.least / row.measured
    text = str(found)
    assert "limits of this machine: float32" in text and f"% {product.bound}" in text
    assert found.limits
    assert {name for name, *_ in found.limits.memory_levels} >= {"L1", "L2", "memory"}
    assert all(rate > 0 for _, rate in found.limits.flops)
    wide = fnx.jit(lambda x: x @ x).lower(np.ones((64, 64), "f8")).roofline(measured=False)
    assert all(row.measured is None and row.limit is None for row in wide.rows)


def preempted(traces: Sequence[RunTrace], nanoseconds: int) -> list[RunTrace]:
    """Let another program take the processor in each call for a while: in call i from run i."""
    return [trace.replace(runs=[run.replace(stop=run.stop + nanoseconds * (i == k))
                                for k, run in enumerate(trace.runs)])
            for i, trace in enumerate(traces)]


def test_a_kernel_that_lost_the_processor_is_not_called_slow(
        monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """In a loop and outside, in each of the calls that are timed."""
    def f(w: Any, x: Any) -> Any:
        h, _ = lax.scan(lambda h, xt: (jnp.sort(jnp.tanh(h @ w) + xt), None), x[0], x)
        return (x @ w).sum() + h
    lowering = fnx.jit(f).lower(jnp.eye(300) / 2, jnp.ones((20, 300)))
    recorded = lowering._recorded(1) * 3  # a clock that says the same in each call
    monkeypatch.setattr(lowering, "_recorded", lambda most: recorded)
    quiet = lowering.roofline()
    monkeypatch.setattr(lowering, "_recorded", lambda most: preempted(recorded, 10 ** 9))
    busy = lowering.roofline()
    for row, other in zip(quiet.rows, busy.rows, strict=True):
        assert row.runs == other.runs and row.measured == other.measured
    assert busy.total < 10 ** 9 < busy.slowdown * busy.total and quiet.slowdown == 1
    lowering.show()
    assert "this machine is busy" in " ".join(capsys.readouterr().out.split())


def test_a_lookup_reads_some_rows_of_its_table() -> None:
    """Bytes are those that a kernel reads and writes, in a program from the disk cache, too."""
    def f(table: Any, i: Any) -> Any:
        return table[i] * 2, lax.dynamic_slice(table, (i[0], 0), (9, 16)) + 1
    table, i = jnp.ones((10_000, 16)), jnp.arange(50)
    rows = fnx.jit(f).lower(table, i).roofline(measured=False).rows
    assert sum(row.nbytes for row in rows) < 20_000
    written = fnx.jit(lambda t, i: t.at[i].add(1.0), donate_argnums=0)
    assert all(row.nbytes < 20_000 for row in written.lower(table, i).roofline(False).rows)
    whole, = fnx.jit(lambda t: t[1:] + t[:-1]).lower(table).roofline(measured=False).rows
    assert whole.nbytes == 3 * 4 * 16 * 9_999
    for _ in range(2):  # the second time as LINKED
        seen = fnx.profile(fnx.jit(f))(table, i)
        assert sum(row.nbytes for row in seen.kernels) < 20_000
        fnx.clear_caches()


def test_equal_kernels_of_one_line_are_one_row(capsys: pytest.CaptureFixture[str]) -> None:
    """A line of a Python loop takes the time of all its kernels, and is worth a look for that."""
    def f(x: Any) -> Any:
        for _ in range(8):
            x = jnp.sort(jnp.tanh(x), -1)
        return x
    lowering = fnx.jit(f).lower(jnp.ones((300, 200)))
    assert len(lowering.roofline(measured=False).rows) == 16
    lowering.show()
    shown = capsys.readouterr().out
    rows = [line.split() for line in shown.splitlines() if "test_lowering.py:" in line]
    assert sorted(row[3] for row in rows if "takes" not in row) == ["8", "8"], shown
    assert sum(float(row[2]) for row in rows if "takes" not in row) == pytest.approx(100, abs=2)
    assert "sort (test_lowering.py:" in shown and "use lax.top_k" in shown


def test_nothing_in_a_short_call_is_worth_a_look(monkeypatch: pytest.MonkeyPatch,
                                                 capsys: pytest.CaptureFixture[str]) -> None:
    lowering = fnx.jit(jnp.sin).lower(jnp.ones(3))
    recorded = [trace.replace(runs=[run.replace(stop=run.start + 9000) for run in trace.runs])
                for trace in lowering._recorded(1)]
    monkeypatch.setattr(lowering, "_recorded", lambda most: recorded)
    lowering.show()
    assert "look here first" not in capsys.readouterr().out


def test_the_type_of_the_arithmetic_says_which_limit_counts() -> None:
    with override(x64=True):
        found = fnx.jit(lambda x: x @ x).lower(np.ones((200, 200))).roofline(measured=False)
    assert max(found.rows, key=lambda row: row.flops).bound == "float64"


def test_what_does_not_run_for_a_reader_is_not_measured() -> None:
    def f(x: Any) -> Any:
        fnx.debug.print("{}", x[0])
        return x * 2
    found = fnx.jit(f).lower(jnp.ones(40)).roofline()
    assert all(row.measured is None for row in found.rows)
    assert "not measured: expected a program that can be run for its times; this one has " \
        "effects" in str(found)
    with fnx.profile():  # only one profile at a time; limits are not measured within one either
        found = fnx.jit(lambda x: x * 2).lower(jnp.ones(40)).roofline()
    assert "expected one profile at a time" in found.why and found.limits is None
    with override(device="interp"):
        found = fnx.jit(lambda x: x * 2).lower(jnp.ones(40)).roofline()
    assert found.limits is None and found.why and found.rows[0].predicted > 0


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[list[np.ndarray[Any, Any]]]:
    """The bytes of the arguments of each call of a program."""
    seen: list[list[np.ndarray[Any, Any]]] = []
    run = Executable.run

    def noted(self: Executable, ins: Any, *rest: Any) -> Any:
        if len(ins) > 2:  # a call of these tests
            seen.append([np.array(s.view(np.dtype(np.uint8), (s.nbytes,))) for s in ins])
        return run(self, ins, *rest)
    monkeypatch.setattr(Executable, "run", noted)
    return seen


def test_times_are_of_the_arguments(calls: list[list[np.ndarray[Any, Any]]]) -> None:
    """Zeros would be masks that end loops. Donated arguments are neither written nor consumed."""
    def f(x: Any, seen: Any, length: Any) -> Any:
        return x.at[0].set(jnp.where(seen & (jnp.arange(8) < length), x, -1.0).sum())
    x, seen = jnp.arange(8.0), np.arange(8) % 3 == 0
    lowering = fnx.jit(f, donate_argnums=0).lower(x, seen, 5)
    lowering.roofline()
    with lowering.view(browser=False):
        assert lowering.timeline.runs
    assert len(calls) >= 6
    for ins in calls:
        held = [ins[0].view("f4"), ins[1].view("?"), ins[2].view("i4")]
        assert all(np.array_equal(a[:np.size(b)].reshape(np.shape(b)), b)
                   for a, b in zip(held, (np.arange(8.0), seen, 5), strict=True))
    assert np.array_equal(x, np.arange(8.0))


def test_arguments_that_are_gone_or_only_types_leave_nothing_out(
        calls: list[list[np.ndarray[Any, Any]]]) -> None:
    def f(x: Any, seen: Any, length: Any, key: Any) -> Any:
        return jnp.where(seen & (jnp.arange(90) < length), x, -1.0), fnx.random.normal(key)
    jitted: Any = fnx.jit(f, donate_argnums=0)
    structs = [fnx.ShapeDtypeStruct(shape, dtype) for shape, dtype in (
        ((4, 90), "bfloat16"), ((4, 90), "bool"), ((4, 1), "int8"))]
    gone = jnp.ones((4, 90), "bfloat16")
    lowering = jitted.lower(gone, *structs[1:], fnx.random.key(0))
    gone.delete()
    for made in (jitted.lower(*structs, fnx.random.key(0)), lowering):
        made.roofline()
        x, seen, length, _ = calls[-1]
        assert x.any()
        assert np.isfinite(low_precision.decode_bits(x.view("u2")[:360], dtypes.bfloat16)).all()
        assert all(row[80:].any() for row in seen[:360].reshape(4, 90))
        assert length.view("i1")[:4].min() >= 45


def test_what_is_compiled_keeps_no_arguments() -> None:
    x = jnp.ones(1000)
    compiled = fnx.jit(lambda x: x + 1).lower(x).compile()
    alive = weakref.ref(x._storage)
    del x
    gc.collect()
    assert alive() is None and compiled(jnp.ones(1000))[0] == 2


def test_kernels_in_loops_are_counted_as_often_as_they_run(
        capsys: pytest.CaptureFixture[str]) -> None:
    def f(w: Any, x: Any) -> Any:
        def step(h: Any, xt: Any) -> Any:
            inner = lax.fori_loop(0, 3, lambda i, h: jnp.sort(jnp.tanh(h @ w)), h)
            return jnp.sort(inner + xt), h.sum()
        h, sums = lax.scan(step, jnp.zeros(43), x)
        return sums.sum() + jnp.linalg.eigvalsh(h[:, None] * h + jnp.eye(43)).sum()
    jitted, args = fnx.jit(f), (jnp.eye(43) / 2, jnp.ones((500, 43)))
    lowering = jitted.lower(*args)
    seen = fnx.profile(jitted)(*args)
    # by name: an equal node of another live program adds that program's line
    ran: dict[str, int] = {}
    for kernel in seen.kernels:
        ran[kernel.name] = ran.get(kernel.name, 0) + kernel.count
    for measured in (False, True):
        costs = lowering.roofline(measured)
        counts: dict[str, int] = {}
        for row in costs.rows:
            counts[row.name] = counts.get(row.name, 0) + row.runs
        assert counts == ran and {1500, 500, 1} <= {row.runs for row in costs.rows}
    assert costs.total == sum(row.runs * (row.measured or 0) for row in costs.rows)
    routine, = [row for row in costs.rows if row.name == "eigvalsh"]
    assert routine.limit is None and routine.line.startswith("test_lowering.py:")
    assert {line.name for line in seen.lines}.isdisjoint({"?", ""})
    lowering.show()
    assert re.match(r"f on cpu: \d+ kernels in \d,\d{3} runs, ", capsys.readouterr().out)


def test_branches_count_if_they_run_and_endless_loops_for_one_iteration(
        capsys: pytest.CaptureFixture[str]) -> None:
    def branch(flag: Any, x: Any) -> Any:
        return lax.cond(flag, lambda x: jnp.sort(x), lambda x: x @ x, x)
    rows = fnx.jit(branch).lower(True, jnp.ones((90, 90))).roofline().rows
    runs = {row.name.partition("_")[0]: (row.runs, row.total > 0) for row in rows}
    assert set(runs.values()) == {(0, False), (1, True)} and runs["sort"][0]

    def endless(x: Any) -> Any:
        return lax.while_loop(lambda x: x[0] < 9, lambda x: lax.fori_loop(
            0, 4, lambda i, x: jnp.sort(x) + 1, x), x)
    lowering = fnx.jit(endless).lower(jnp.ones(40))
    assert {row.runs for row in lowering.roofline().rows if row.name == "sort"} == {4}
    assert "counted for one iteration" in str(lowering.roofline(measured=False))
    lowering.show()
    assert "are counted for one iteration" in capsys.readouterr().out


def test_stages_of_a_device_without_code() -> None:
    with override(device="interp"):
        shown = stages_of()
        assert shown.text("llvm") == "" and "kernel" in shown.text("tiled")


def test_why_a_loop_is_one_kernel_or_is_not() -> None:
    def loops(x: Any, w: Any) -> Any:
        inside = lax.scan(lambda c, y: (jnp.sin(c) + y, None), x[0], x)[0]
        outside = lax.scan(lambda c, y: (c @ w + y, None), x[0], x)[0]
        return inside, outside, lax.while_loop(lambda c: c < 9, lambda c: c * c + 1, x[0, 0])
    text = fnx.jit(loops).lower(jnp.ones((4, 20)), jnp.ones((20, 20))).text("schedules")
    lines = text.splitlines()
    assert re.fullmatch(r"scan <lambda> \(test_lowering.py:\d+\): one kernel: 1 scalar carried in "
                        r"each of 20 lanes", lines[0])
    assert lines[1].endswith("its kernels are launched in each iteration: a carry of more than 16 "
                             "scalars")
    assert lines[2].startswith("while") and lines[2].endswith("one kernel: 1 scalar carried")
    assert "scan_<lambda>: the model's choice: a loop with carried values, in registers" in text


def test_a_long_chain_is_cut_into_equal_kernels() -> None:
    def chain(x: Any) -> Any:
        for _ in range(100):
            x = jnp.sin(x)
        return x
    stages = fnx.jit(chain).lower(jnp.ones(50))
    assert len(stages.kernels) == 4 and len({k.node for k in stages.kernels}) == 2
    assert stages.text("schedules").startswith(
        "group 1: split off after 1200 additions, to compile faster: it reads SIN (")
    in_loop = fnx.jit(lambda x: lax.fori_loop(0, 3, lambda i, x: chain(x), x)).lower(jnp.ones(50))
    assert "a step of more work than 2400 additions" in in_loop.text("schedules")


def test_programs_with_sorts_and_with_calls_of_python_are_shown() -> None:
    x = np.arange(12, dtype="f4").reshape(4, 3)

    def twice(x: Any) -> Any:
        return fnx.pure_callback(lambda a: 2 * np.asarray(a),
                                 fnx.ShapeDtypeStruct(x.shape, x.dtype), x)

    def printed(x: Any) -> Any:
        fnx.debug.print("{}", x.sum())
        return x + 1

    for f, line in ((lambda x: jnp.sort(x, 0), "sort("), (twice, "host["), (printed, "host["),
                    (lambda x: x[jnp.argsort(x[:, 0])], "sort(")):
        for device in ("cpu", "interp"):
            with override(device=device):
                stages = fnx.jit(f).lower(x)
                assert line in stages.text("tiled") and "tiled" in stages._repr_html_()
                for info in stages.kernels:
                    assert all(isinstance(text(), str)
                               for text in stages.kernel_texts(info.node).values())


def test_limits_that_a_kernel_is_beyond_are_measured_again(monkeypatch: pytest.MonkeyPatch,
                                                           tmp_path: Path) -> None:
    def at(speed: float) -> PeakRates:
        return PeakRates((("float32", 1e4 * speed), ("float64", 1e4 * speed)),
                         (("memory", 0, 1e4 * speed),))

    measured = [at(1e-9), at(1.0), at(2.0)]
    monkeypatch.setattr(machine_limits, "_measure", lambda *_: measured.pop(0))
    with override(device="cpu", cache_dir=str(tmp_path)):
        measurements.clear()
        monkeypatch.setattr(machine_limits, "_remeasured", set())
        stages = fnx.jit(lambda x: x @ x).lower(np.ones((64, 64), "f4"))
        found = stages.roofline()
        assert found.limits == at(1.0) and len(measured) == 1
        assert all(row.limit is not None and row.limit < 1 for row in found.rows)
        measurements.clear()  # as in another process
        assert stages.roofline().limits == at(1.0) and len(measured) == 1
        measurements.clear()


@pytest.mark.parametrize("data", [None, b"", b"[", b"[1, 2]", b"null", b'[[["float32"]], []]'])
def test_limits_that_cannot_be_read_are_as_nothing(data: bytes | None) -> None:
    assert machine_limits._decode(data) is None
