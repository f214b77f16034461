"""The compiler predicts nothing to be slower than its alternatives, all with the same values."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.support.target import Target
from fnx.lower.pipeline import lower
from tests.attack import regret
from tests.attack.graphs import Graph
from tests.attack.regret import CHOSEN, predicted_regrets

LARGEST = 1 << 17
# Predicted to be slower, but not when timed.
KNOWN = {0: "lanes that lie apart take less than predicted where all of them stay in a cache"}
# Predicted cycles by the least of the alternatives. Schedules are chosen by other costs, too.
SCHEDULES = 2.5


@pytest.mark.cases(1)
@pytest.mark.parametrize("seed", [*range(3), 16, 29, 37, 54])
def test_graphs_are_not_slower_with_a_fusion_than_without(seed: int) -> None:
    """The last four used to be: parts of a CONCAT, each computed for every element."""
    slower = predicted_regrets(seed, LARGEST)
    assert bool(slower) == (seed in KNOWN), (slower, Graph(seed, LARGEST))


def test_a_fusion_that_does_not_pay_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """It detects that selects compute the stack of seed 29 inside of a reduction."""
    for reason in ("is_expensive", "should_materialize"):  # reasons to materialize it
        monkeypatch.setattr(f"fnx.lower.fusion.concat_in_place.{reason}", lambda *args: False)
    slower = predicted_regrets(29, LARGEST)
    assert slower["concat"] > 2 * regret.LIMIT


@pytest.mark.parametrize("seed", [29])
def test_schedules_are_not_predicted_far_above_others(seed: int) -> None:
    target = Target("cpu", vector_bits=256, vector_registers=16)
    graph, kernels = Graph(seed, 1 << 15), list[Any]()
    fn = fnx.jit(graph.function()).lower(*map(jnp.asarray, graph.parameters)).graph
    lower(fn, target, schedules=kernels.append)
    for kernel in dict.fromkeys(kernels):
        assert regret.predicted_schedule_regret(kernel, target) < SCHEDULES, kernel.arg.name


def test_a_seed_is_a_graph() -> None:
    assert repr(Graph(7)) == repr(Graph(7)) != repr(Graph(8))
    words = [repr(Graph(seed, 1 << 10)) for seed in range(20)]
    assert 1 < sum("scan" in text for text in words) < 10


def test_all_alternatives_have_the_same_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small graph and its kernels, each timed, by a clock that does not run."""
    def in_turns(calls: dict[str, Any]) -> dict[str, float]:
        for call in calls.values():
            call()
        return dict.fromkeys(calls, 1.0)
    monkeypatch.setattr(regret, "in_turns", in_turns)
    monkeypatch.setattr(regret, "LEAST", 0.0)
    units = list(regret.units(20, 1 << 12))
    assert [name for name, *_ in units][0] == "program"
    records = [regret.regret(calls, same) for _, calls, same, _ in units if calls]
    assert {record and record["regret"] for record in records} == {1.0}
    assert max(record["alternatives"] for record in records if record) > 1


def test_what_is_slower_is_measured_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                         capsys: pytest.CaptureFixture[str]) -> None:
    """Offenders are timed in pairs, then in a new process; a run resumes."""
    def nothing() -> None:
        pass
    unit = "program", {CHOSEN: nothing, "without row": nothing, "without all": nothing}, [], ""
    monkeypatch.setattr(regret, "units", lambda seed, **_: [unit])
    monkeypatch.setattr(regret, "in_turns", lambda calls: dict(zip(calls, (3.0, 1.0, 2.0))))
    monkeypatch.setattr(regret, "LEAST", 0.0)
    monkeypatch.setattr(regret, "paired", lambda *calls: 1.4)
    monkeypatch.setattr(regret, "in_new_process", lambda *args: 1.35)
    options = argparse.Namespace(state=tmp_path / "state", seed=3, count=2, seconds=60, above=0.0,
                                 programs=False)
    records = regret.run(options)
    assert [r["regret"] for r in records] == [1.35] * 2
    assert "2 above 1.3, worst 1.35: seed 3, program (3000000 us), without row" in \
        regret.table(records)
    monkeypatch.setattr(regret, "paired", lambda *calls: 1.0)
    assert regret.run(options) == records
    assert regret.run(argparse.Namespace(**{**vars(options), "above": 1.3}))[0]["regret"] == 1.0
    assert [json.loads(line)["seed"] for line in options.state.read_text().splitlines()] == \
        [3, 4, 3, 4]


def test_expensive_parts_are_not_computed_by_selects() -> None:
    """In a reduction, beside a reduction or another result, in a product: each sine is computed
    once."""
    x = np.ones((500, 4), np.float32)

    def sines(x: Any) -> Any:
        return jnp.stack([jnp.sin(x[:, i % 4] * i) for i in range(12)], -1)
    for f in (lambda x: sines(x) + sines(x).sum(-1, keepdims=True),
              lambda x: (jnp.tanh(sines(x)), sines(x)),
              lambda x: sines(x) @ x[:12], lambda x: jnp.cos(sines(x)).sum(0),
              lambda x: sines(x) + jnp.isnan(x[:60].reshape(20, 12)).sum(0)):
        kernels = fnx.jit(f).lower(x).kernels
        assert sum(k.flops for k in kernels if not k.name.startswith("contract")) < 500 * 12 * 8
