"""Every expression of tests/golden/public.json has JAX's dtype, weak type, shape and values.

Record it again with scripts/record_jax_goldens.py.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.lax as lax
import fnx.nn as nn
import fnx.numpy as jnp
import fnx.random as random

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
RECORDED = json.loads((GOLDEN / "public.json").read_text())
# Values that result from cancellation: absolute error instead of ulps.
TOLERANCE = {"promotion": 2e-6, "indexing": 0.0, "functions": 5e-6, "random": 2e-6,
             "lanes": 5e-6, "loops": 5e-6, "modes": 5e-6}
EXACT = ("PRNGKey", "split", "fold_in", "bits", "uniform(k, (7", "randint", "bernoulli",
         "permutation", "choice", "categorical", "rademacher")

# fnx has no weak bools, though JAX marks some so. Nor is 2.5 to a strong power weak.
WEAK_IN_JAX = {"jnp.power(2.5, b)"}


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    spec = importlib.util.spec_from_file_location("golden_inputs", GOLDEN / "inputs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return dict(module.names(fnx, jnp, lax, nn, random))


@pytest.mark.parametrize("group", TOLERANCE)
def test_answers_as_jax_does(group: str, names: dict[str, Any]) -> None:
    for expression, want in RECORDED[group].items():
        try:
            check(group, expression, want, eval(expression, names))
        except Exception as wrong:
            wrong.add_note(f"in {expression}")
            raise


def check(group: str, expression: str, want: dict[str, Any], got: fnx.Array) -> None:
    values = np.array(want["values"], want["dtype"]).reshape(want["shape"])
    assert (str(got.dtype), got.shape) == (want["dtype"], tuple(want["shape"]))
    if want["dtype"] != "bool" and expression not in WEAK_IN_JAX:
        assert got.weak_type == want["weak"]
    given = np.asarray(got)
    if given.dtype.kind != "f" or any(name in expression for name in EXACT):
        np.testing.assert_array_equal(given, values)
    else:
        np.testing.assert_allclose(given, values, rtol=TOLERANCE[group],
                                   atol=TOLERANCE[group])
        zeros = (values == 0) & (group in ("indexing", "promotion"))
        np.testing.assert_array_equal(np.signbit(given[zeros]), np.signbit(values[zeros]))


def test_the_recording_is_not_empty() -> None:
    assert sum(len(RECORDED[group]) for group in TOLERANCE) > 400
    assert RECORDED["jax"] == "0.10.2"
