"""The tools under benchmarks/: measurements are stored, disagreements are detected."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import fnx

HERE = Path(__file__).resolve().parent.parent / "benchmarks"


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(HERE))
    import compare

    return compare


def test_run_stores_times_and_values(tmp_path: Path) -> None:
    times, values = tmp_path / "times.json", tmp_path / "values.npz"
    subprocess.run([sys.executable, str(HERE / "run.py"), "fnx", "dispatch", "--times", str(times),
                    "--values", str(values)], cwd=HERE.parent, check=True,
                   env={"PYTHONPATH": str(HERE.parent)})
    first, steady = json.loads(times.read_text())["dispatch"]
    assert 0 < steady < first
    with np.load(values) as stored:
        np.testing.assert_array_equal(stored["dispatch/0"], np.ones(8, "float32"))


def test_disagreements_are_found(compare: ModuleType, tmp_path: Path) -> None:
    right = np.linspace(0, 1, 8)
    wrong = right + np.where(np.arange(8) == 3, 0.25, 0)
    np.savez(tmp_path / "jax.npz", **{"a/0": right, "b/0": right, "c/0": right})
    np.savez(tmp_path / "fnx.npz", **{"a/0": right, "b/0": wrong})
    found = compare.disagreements(tmp_path, ["a", "b", "c"])
    assert found == {"b": "1 of 8 differ, by 0.25 at most", "c": "no result"}


def test_small_results_among_large_ones_may_differ_more(
        compare: ModuleType, tmp_path: Path) -> None:
    large = np.array([0.0, 100.0, -100.0, 100.0])
    np.savez(tmp_path / "jax.npz", **{"a/0": large, "b/0": large / 100})
    np.savez(tmp_path / "fnx.npz", **{"a/0": large + 5e-4, "b/0": large / 100 + 5e-4})
    found = compare.disagreements(tmp_path, ["a", "b"])
    assert list(found) == ["b"]


def test_ratios_are_taken_inside_a_round(compare: ModuleType) -> None:
    """The second round is ten times slower on both sides, as on a busy machine."""
    measured = {"jax": [{"f": [1.0, 1e-3]}, {"f": [10.0, 1e-2]}, {"f": [1.0, 1e-3]}],
                "fnx": [{"f": [0.5, 2e-3]}, {"f": [5.0, 2e-2]}, {"f": [0.5, 2e-3]}],
                "fnx warm": [{"f": [0.1, 2e-3]}] * 3}
    cells = compare.row("f", measured, {})
    assert cells == ["f", "1 s", "500 ms", "0.50", "100 ms", "1 ms", "2 ms", "2.00", "yes"]
    assert compare.row("g", measured, {})[-1] == "does not run"


@pytest.mark.cases(1)
@pytest.mark.parametrize("name, sizes", [
    ("mlp_step", {"width": 32}),
    ("gpt_step", {"layers": 1, "width": 32, "heads": 2, "length": 16, "batch": 2,
                  "vocabulary": 32})])
def test_16_bits_train_to_the_loss_of_32(name: str, sizes: dict[str, int],
                                         monkeypatch: pytest.MonkeyPatch) -> None:
    """benchmarks/low_precision.py shows it for the whole workloads."""
    monkeypatch.syspath_prepend(str(HERE))
    import low_precision
    from run import load

    found = low_precision.compared(load("fnx")[0], low_precision.WORKLOADS[name], 30, **sizes)
    first, last, *_ = found["float32"]
    assert last < first and not low_precision.far(found), found


@pytest.fixture
def sweep(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(HERE))
    import sweep

    return sweep


def test_cases_of_the_sweep_are_drawn_again_and_differ(sweep: ModuleType) -> None:
    import sweep_cases

    families = list(sweep_cases.FAMILIES)
    drawn = list(sweep_cases.cases(300, 11, families))
    again = sweep_cases.cases(45, 11, families)
    assert [case.name for _, case in again] == [case.name for _, case in drawn[:45]]
    assert len({case.name for _, case in drawn}) == 300
    assert {family for family, _ in drawn} == set(families)


def test_the_sweep_compares_with_the_better_one(sweep: ModuleType, tmp_path: Path) -> None:
    state = tmp_path / "state.jsonl"
    found = [{"name": "a", "family": "f", "agrees": True, "fnx": [2.0, 1.0], "jax": [1.0, 4.0],
              "torch": [4.0, 2.0], "errors": {"fnx": 3e-6, "jax": 1e-6, "torch": 9e-6}},
             {"name": "b", "family": "f", "agrees": False, "fnx": [1.0, 1.0], "jax": [8.0, 2.0]}]
    state.write_text("".join(json.dumps(r) + "\n" for r in found))
    records = sweep.read(state)
    first, all_, *wrong = sweep.table(records).splitlines()[2:]
    assert first == "| f | 2 | 0.50 | 0.50 | 0.50 | 1 | a 2.00; b 0.12 | 3.00 | 1 |"
    assert all_ == "| all | 2 | 0.50 | 0.50 | 0.50 | 1 |  | 3.00 | 1 |"
    assert wrong == ["", "Differs from JAX or fails: b."]


def test_what_is_due_in_the_sweep_is_known_by_its_commit(sweep: ModuleType) -> None:
    known = {"commit": "1", "fnx": [2.0, 1.0], "jax": [1.0, 4.0]}

    def due(known: object, now: str = "2", again: bool = True, above: float = 0.0) -> object:
        options = SimpleNamespace(again=again, above=above)
        return sweep.is_due(known, now, options)

    assert due(None) and due(None, again=False) and not due(None, above=1.1)
    assert due(known) and not due(known, "1") and not due(known, again=False)
    assert due(known, above=1.5) and not due(known, above=2.5)
    assert due(known | {"errors": {"fnx": 3e-6, "jax": 1e-6}}, above=2.5)
    assert due(known | {"commit": ""}, "")


def test_targets_that_lost_take_no_more_turns(sweep: ModuleType) -> None:
    least = {"fnx": 9.0, "jax": 2.5, "torch": 1.0}
    assert sweep.in_play(least, least) == ["fnx", "torch"]
    assert sweep.in_play({}, least) == ["fnx", "jax", "torch"]


def test_a_case_of_the_sweep_is_measured(
        sweep: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    import sweep_cases
    from run import load

    monkeypatch.setattr(sweep, "ROUNDS", 1)
    spaces = {"fnx": load("fnx")[0], "jax": load("fnx")[0]}
    drawn = sweep_cases.cases(1, 1, ["outers"])
    record = sweep.measure(next(drawn)[1], spaces, None)
    assert record["agrees"] and "failed" not in record
    assert record["errors"]["fnx"] == record["errors"]["jax"] < 1e-6
    assert all(seconds > 0 for target in spaces for seconds in record[target])
    again = sweep.measure_alone(
        next(sweep_cases.cases(1, 1, ["outers"]))[1], spaces["fnx"], record, False)
    assert again["jax"] == record["jax"] and again["errors"] == record["errors"]


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(HERE))
    import whole_programs

    return whole_programs


@pytest.mark.cases(1)
@pytest.mark.parametrize("part", range(2))
def test_programs_run_at_small_sizes(programs: ModuleType, part: int) -> None:
    """A sample; all programs were compared with JAX's values at both sizes."""
    from programs import PROGRAMS
    from run import leaves, load

    from fnx.core.support.config import override

    ns = load("fnx")[0]
    assert len(PROGRAMS) >= 150
    for program in [*PROGRAMS.values()][10 * part::20]:
        f, args = program.build(ns, small=True)
        got = f(*args)
        with override(device="interp"):
            f, args = program.build(ns, small=True)
            want = [np.asarray(x) for x in leaves(f(*args))]
        for a, b in zip(leaves(got), want, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-3, err_msg=program.name)


@pytest.mark.cases(1)
@pytest.mark.parametrize("kind", ["grad", "jvp"])
@pytest.mark.parametrize("part", range(4))
def test_derivatives_of_programs_are_those_of_their_graphs(programs: ModuleType, kind: str,
                                                           part: int) -> None:
    """A sample. The graph is evaluated node by node: launches of any device share a plan."""
    from programs import PROGRAMS
    from run import leaves, load

    from fnx.core.levels import interp

    ns, count = load("fnx")[0], 0
    for program in [*PROGRAMS.values()][part + 1::11]:
        try:
            f, (values,) = programs.Transformed(program, kind).build(ns, small=True)
            got = leaves(f(values))
        except (LookupError, fnx.errors.GradError):
            continue  # has no float operands, or results
        traced = fnx.make_jaxpr(f)(values)
        operands = [*values, *traced.consts]
        if any(str(x.dtype).startswith(("key", "bfloat")) for x in operands):
            continue  # NumPy has none of these
        want = interp.apply(traced.function, [np.asarray(x) for x in operands])
        for a, b in zip(got, want, strict=True):
            scale = np.nanmax(np.abs(b), initial=1e-3)  # sums of float32 that cancel
            np.testing.assert_allclose(a, b, rtol=2e-2, atol=2e-2 * scale, err_msg=program.name)
        count += 1
    assert count


def test_programs_are_compared_worst_first(programs: ModuleType) -> None:
    times = {"fast": 1.0, "slow": 9.0, "even": 2.0}
    records = [{"name": n, "theme": "t", "fnx": [2 * s, s], "jax": [2.0, 2.0],
                "first": {"fnx": [1.0, 1.0], "jax": [2.0, 2.0]}, "bytes": {"fnx": 6, "jax": 3},
                "differs": "by 1" if n == "slow" else ""} for n, s in times.items()]
    text = programs.table(records)
    assert "| processor | 1.31 | 1.00 | 4.50 | 4.50 | slow 4.50 | 1 | 1 |" in text
    assert "| memory | 2.00 | 2.00 | 2.00 | 2.00 | slow 2.00 | 3 | 3 |" in text
    assert "Above 1.5 by processor time: slow 4.50." in text and text.endswith("slow: by 1")


def test_differences_of_programs_are_told(programs: ModuleType) -> None:
    one = np.ones(4, "float32")
    tell = programs.difference
    assert tell([one], [one], []) == ""
    assert tell([one], [one.astype("int32")], []) == "result 0 is float32[4], of JAX int32[4]"
    assert tell([one, one * 2], [one, one], []) == "result 1 differs in 4 of 4, by 1"


def test_parts_of_the_programs_are_all_of_them(programs: ModuleType) -> None:
    from programs import PROGRAMS
    options = [programs.options_of(["--part", f"{i}/3"]) for i in (1, 2, 3)]
    found = [p.name for o in options for p in programs.chosen(o, {}, "x")]
    assert sorted(found) == sorted(PROGRAMS)


def test_a_goal_is_compared_with_its_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))
    import goals

    found = {"fnx": 3e-3, "jax": 10e-3, "torch": 4e-3, "agrees": True}
    step, better = goals.GOALS["gpt_step"], goals.GOALS["nbody_grad"]
    assert goals.row("gpt_step", step, found) == [
        "gpt_step", "3", "10", "4", "", "0.75", "0.90 of torch", "yes", "yes"]
    assert goals.row("nbody_grad", better, found)[5:] == ["0.75", "0.25 of better", "no", "yes"]
