"""Random programs with collectives give what JAX gives (scripts/compare_shards.py --record)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fnx
from tests.sharding import programs

GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).resolve().parents[1] / "golden" / "shards.json").read_text())


@pytest.mark.cases(2)
@pytest.mark.parametrize("seed", GOLDEN)
def test_a_random_program(seed: str) -> None:
    ours = programs.summary(programs.run(fnx, programs.draw(int(seed))))
    theirs = GOLDEN[seed]
    if "value" in theirs[0] and "value" not in ours[0] and theirs[2] is not None:
        theirs = theirs[2]  # fnx proves that the result is replicated
    no_rule = {stage for stage, kind in theirs[0].items() if kind == "NotImplementedError"}
    assert ours[0].keys() - no_rule == theirs[0].keys() - no_rule
    for name in ours[1].keys() & theirs[1].keys():
        assert ours[1][name][:-1] == theirs[1][name][:-1]
        np.testing.assert_allclose(ours[1][name][-1], theirs[1][name][-1], rtol=1e-3, atol=1e-3)
