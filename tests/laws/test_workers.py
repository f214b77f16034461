"""Results are bitwise equal from run to run and for 1, 2, 3 workers: cases of the sweep."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax, random
from fnx.core.array.tree import flatten
from fnx.core.support.config import override

COMPILED = True
EACH = 5                # cases per family
MOST = 1 << 21          # elements of all operands of a case
NAMES = SimpleNamespace(jax=fnx, jnp=jnp, lax=lax, random=random)


def bits(f: Any, operands: list[Any]) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in flatten(f(*operands))[0]]


@pytest.mark.cases(1)
@pytest.mark.parametrize("family", [
    "reductions", "products", "mlp_steps", "convolutions", "norms", "chains", "transcendentals",
    "permutes", "joins", "gathers", "places", "cumulative", "sorts", "outers", "attentions"])
def test_any_number_of_workers_gives_the_same_bits(
        family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "benchmarks"))
    import sweep_cases
    drawn = (case for _, case in sweep_cases.cases(100, 11, [family]))
    small = [c for c in drawn if sum(map(math.prod, c.shapes)) <= MOST][:EACH]
    assert len(small) == EACH
    for case in small:
        f = fnx.jit(case.of(NAMES))
        operands = [jnp.asarray(x) for x in case.operands()]
        found = []
        for workers in (1, 2, 3, 2):
            with override(workers=workers):
                found.append(bits(f, operands))
        assert all(other == found[0] for other in found[1:]), case.name


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "cummin"])
@pytest.mark.parametrize("n", [1 << 15, 30011])
def test_long_running_folds_have_the_same_bits(name: str, n: int) -> None:
    """The strips depend on the length only; the results are those of float64, rounded once."""
    x = np.random.default_rng(n).normal(1, 0.001, n).astype(np.float32)
    fold = {"cumsum": np.add, "cumprod": np.multiply, "cummax": np.maximum, "cummin": np.minimum}
    f = fnx.jit(getattr(fnx.lax, name))
    found = []
    for workers in (1, 2, 3):
        with override(workers=workers):
            found.append(np.asarray(f(jnp.asarray(x))))
    assert all(other.tobytes() == found[0].tobytes() for other in found[1:])
    np.testing.assert_allclose(found[0], fold[name].accumulate(x.astype(np.float64)), rtol=6.1e-8)
