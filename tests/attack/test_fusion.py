"""The compiler predicts no graph to be slower with a kind of fusion than without it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.support.config import FUSIONS
from tests.attack import fusion
from tests.attack.fusion import Graph, predicted_slower

LARGEST = 1 << 17
# Predicted to be slower, but not when timed.
KNOWN = {0: "lanes that lie apart take less than predicted where all of them stay in a cache"}


@pytest.mark.parametrize("seed", [*range(8), 16, 29, 37, 54])
def test_graphs_are_not_slower_with_a_fusion_than_without(seed: int) -> None:
    """The last four used to be: parts of a CONCAT, each computed for every element."""
    slower = predicted_slower(seed, LARGEST)
    assert bool(slower) == (seed in KNOWN), (slower, Graph(seed, LARGEST))


def test_a_fusion_that_does_not_pay_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It detects that selects compute the stack of seed 29 inside of a reduction."""
    for reason in ("is_expensive", "should_materialize"):  # reasons to materialize it
        monkeypatch.setattr(f"fnx.lower.fusion.concat_in_place.{reason}", lambda *args: False)
    slower = predicted_slower(29, LARGEST)
    assert slower["concat"] > 2 * fusion.LIMIT


def test_a_seed_is_a_graph() -> None:
    assert repr(Graph(7)) == repr(Graph(7)) != repr(Graph(8))


@pytest.mark.parametrize("seed", [2, 19])
def test_a_graph_has_the_same_values_without_each_fusion(
        seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def least(calls: dict[str, Any]) -> dict[str, tuple[float, float]]:
        for call in calls.values():
            call()
        return dict.fromkeys(calls, (1.0, 1.0))
    monkeypatch.setattr(fusion, "least", least)
    assert fusion.timed(seed).endswith("kinds")


def test_what_is_slower_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    times = dict.fromkeys(FUSIONS, (1.0, 1.0)) | {"fnx": (1.5, 1.5)}
    monkeypatch.setattr(fusion, "least", lambda calls: times)
    with pytest.raises(fusion.Slower, match="1500000 us, without .* 1000000 us"):
        fusion.timed(2)


def test_only_what_a_new_process_confirms_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def slower(seed: int) -> str:
        raise fusion.Slower("here")
    monkeypatch.setattr(fusion, "timed", slower)
    monkeypatch.setattr(fusion, "in_new_process", lambda seed: "")
    assert fusion.check(2) == "slower here alone"
    monkeypatch.setattr(fusion, "in_new_process", lambda seed: "there, too")
    with pytest.raises(AssertionError, match="there, too"):
        fusion.check(2)


def test_a_new_process_tells_what_is_wrong() -> None:
    assert "ValueError" in fusion.in_new_process(-1)  # an invalid seed


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
