"""Exact counts of traces, lowerings and compilations."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.ir import ops
from fnx.core.ir.uop import toposort
from fnx.lower.tensor.inline import MIN_CALLS

# ---- eager calls --------------------------------------------------------------------------------

EAGER: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y, "subtract": lambda x, y: x - y, "multiply": lambda x, y: x * y,
    "divide": lambda x, y: x / y, "scale": lambda x, y: x * 2.5, "square": lambda x, y: x ** 2,
    "exp": lambda x, y: jnp.exp(x), "log": lambda x, y: jnp.log(x),
    "tanh": lambda x, y: jnp.tanh(x), "sin": lambda x, y: jnp.sin(x),
    "sqrt": lambda x, y: jnp.sqrt(x), "abs": lambda x, y: abs(x), "negative": lambda x, y: -x,
    "maximum": jnp.maximum, "minimum": jnp.minimum, "where": lambda x, y: jnp.where(x > y, x, y),
    "less": lambda x, y: x < y, "equal": lambda x, y: x == y,
    "clip": lambda x, y: jnp.clip(x, -1, 1), "sum": lambda x, y: x.sum(),
    "sum of columns": lambda x, y: x.sum(0), "sum of rows": lambda x, y: x.sum(-1),
    "mean": lambda x, y: x.mean(), "largest of rows": lambda x, y: x.max(-1),
    "variance of rows": lambda x, y: x.var(-1), "floor": lambda x, y: jnp.floor(x),
    "sign": lambda x, y: jnp.sign(x), "to integers": lambda x, y: x.astype("int32"),
    "first row": lambda x, y: x + y[0], "logical and": lambda x, y: (x > 0) & (y > 0),
}


def count_eager_kernels() -> list[int]:
    """Return how many kernels each of two rounds of all ops on 20 shapes of rank 1 to 3
    compiles."""
    rng = np.random.default_rng(0)
    shapes = [tuple(rng.integers(1, 40, rng.integers(1, 4))) for _ in range(20)]
    device = fnx.transforms.link.get_device("cpu")
    counts = [device.stats()["compiled"]]
    for _ in range(2):
        for shape in shapes:
            x, y = (jnp.asarray(rng.standard_normal(shape).astype("float32")) for _ in range(2))
            for f in EAGER.values():
                f(x, y)
        counts.append(device.stats()["compiled"])
    return [b - a for a, b in zip(counts, counts[1:])]


def test_30_eager_ops_on_20_shapes_compile_at_most_60_kernels_and_then_none() -> None:
    code = "from tests.laws.test_counts import *; print(count_eager_kernels())"
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).resolve().parents[2],
                          text=True, capture_output=True, check=False,
                          env=os.environ | {"FNX_CACHE_DIR": "", "FNX_DEVICE": "cpu"})
    assert done.returncode == 0, done.stderr
    first, second = eval(done.stdout)
    assert len(EAGER) == 30
    assert len(EAGER) / 2 < first <= 60
    assert second == 0


# ---- grad over nested jit -----------------------------------------------------------------------


class Network:
    """Layers of one shape, each a call of one jitted function that counts its traces."""

    def __init__(self, nested: bool) -> None:
        self.traces = 0
        self.layer = fnx.jit(self._layer) if nested else self._layer

    def _layer(self, x: Any, w: Any, b: Any) -> Any:
        self.traces += 1
        return jnp.tanh(x @ w + b) + fnx.nn.softmax(x)

    def loss(self, params: Any, x: Any) -> Any:
        for w, b in params:
            x = self.layer(x, w, b)
        return (x * x).mean()


def problem(layers: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    params = [(rng.standard_normal((32, 32)).astype("float32") / 8,
               rng.standard_normal(32).astype("float32")) for _ in range(layers)]
    return params, rng.standard_normal((24, 32)).astype("float32")


def counts(layers: int, nested: bool) -> dict[str, int]:
    """Return traces of the layer, ops, kernels and distinct kernels of a value_and_grad step."""
    network, args = Network(nested), problem(layers)
    stages = fnx.jit(fnx.value_and_grad(network.loss)).lower(*args)
    nodes = toposort(stages.simplified.src)
    return {"traces": network.traces, "kernels": len(stages.kernels),
            "distinct": len({k.node for k in stages.kernels}),
            "products": sum(k.name.startswith("contract") for k in stages.kernels),
            **{op.name: sum(n.op is op for n in nodes) for op in (ops.TANH, ops.EXP)}}


@pytest.mark.parametrize("layers", [1, 3, MIN_CALLS - 1])
def test_the_forward_of_nested_functions_is_traced_and_runs_once(layers: int) -> None:
    found = counts(layers, True)
    assert found["traces"] == 1
    assert found["TANH"] == found["EXP"] == layers
    assert found["products"] == 3 * layers - 1  # forward, dw, dx; no dx for the first layer
    plain = counts(layers, False)
    assert plain["traces"] == layers
    assert found | {"traces": 0, "distinct": 0} == plain | {"traces": 0, "distinct": 0}


def test_ten_equal_layers_are_lowered_once() -> None:
    """Three layers include a first, an inner and a last one; more layers need no more kernels.

    The ten calls are lowered on their own, once; the cost of not fusing across calls is bounded.
    """
    three, few = counts(3, True), counts(MIN_CALLS - 1, True)
    assert few["distinct"] == three["distinct"] < three["kernels"]
    ten, plain = counts(10, True), counts(10, False)
    assert ten["TANH"] == ten["EXP"] == 1 and ten["products"] == plain["products"]
    assert plain["distinct"] == three["distinct"]
    assert ten["distinct"] == counts(20, True)["distinct"]
    assert ten["kernels"] <= 1.3 * plain["kernels"]


def test_one_trace_serves_value_gradient_and_second_derivative() -> None:
    network, (params, x) = Network(True), problem(2)
    fnx.jit(network.loss)(params, x)
    fnx.value_and_grad(network.loss)(params, x)
    assert network.traces == 1
    slopes = fnx.jit(lambda p: fnx.tree.map(jnp.sum, fnx.grad(network.loss)(p, x))[0][0])
    fnx.jit(fnx.grad(slopes))(params)
    assert network.traces == 1


def test_another_number_is_the_same_eager_program() -> None:
    from fnx.transforms import link

    x = jnp.arange(5.0)
    x * 0.25 - 3.5
    before = len(link._eager)
    for i in range(1, 20):
        np.testing.assert_array_equal(x * (0.25 + i) - (3.5 + i),
                                      np.arange(5, dtype="f4") * (0.25 + i) - (3.5 + i))
    assert len(link._eager) == before
