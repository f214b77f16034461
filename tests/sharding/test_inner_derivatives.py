"""Derivatives inside of functions of shards are JAX's: the cotangent of what is the same on all
shards is summed over them (golden values: scripts/compare_shards.py --record)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.lax as lax
import fnx.numpy as jnp
from fnx import P
from tests.sharding import inner_derivatives

GOLDEN: dict[str, Any] = json.loads((Path(__file__).resolve().parents[1] / "golden" /
                                     "shard_derivatives.json").read_text())


@pytest.mark.cases(12)
@pytest.mark.parametrize("name", inner_derivatives.PROGRAMS)
def test_a_derivative_inside(name: str) -> None:
    np.testing.assert_allclose(inner_derivatives.run(fnx, name), GOLDEN[name], rtol=2e-4, atol=2e-5)


def test_without_the_check_derivatives_are_those_of_the_shard(mesh: fnx.sharding.Mesh) -> None:
    def mean_gradient(w: Any, x: Any) -> Any:
        return lax.pmean(fnx.grad(lambda w: (x * w).sum())(w), "a")

    x = jnp.arange(8.0)
    by_check = {check: fnx.shard_map(mean_gradient, mesh=mesh, in_specs=(P(), P("a")),
                                     out_specs=P(), check_vma=check)(1.0, x)
                for check in (False, True)}
    assert by_check == {False: x.sum() / 4, True: x.sum()}


def test_a_function_differentiated_outside_first_is_differentiated_anew(mesh: fnx.sharding.Mesh
                                                                        ) -> None:
    loss = fnx.jit(lambda w, x: lax.stop_gradient(w) * 0 + (x * w).sum() + w * w)
    x = jnp.arange(8.0)
    assert fnx.grad(loss)(2.0, x) == x.sum() + 4
    inside = fnx.shard_map(fnx.grad(loss), mesh=mesh, in_specs=(P(), P("a")), out_specs=P())
    assert inside(2.0, x) == x.sum() + 4 * 4
    assert fnx.grad(loss)(2.0, x) == x.sum() + 4
