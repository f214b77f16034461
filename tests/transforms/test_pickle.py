"""Pickling and copies: functions by qualified name; structures and pullbacks by content."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import subprocess
import sys
from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.array import tree

Pair = namedtuple("Pair", "a b")
HERE = "tests.transforms.test_pickle"


@fnx.jit
def doubled(x: Any) -> Any:
    return x * 2


def cube(x: Any) -> Any:
    return x * x * x


STEP = fnx.jit(cube, donate_argnums=0)
SLOPE = fnx.jit(fnx.grad(cube))
BOUNDARY = fnx.call(cube, name="third")
TREES = [(), {"b": 1, "a": (2, [None, 3])}, OrderedDict(z=1, y=2), Pair(1, Pair(2, None)), 5, None]


def of_module(name: str) -> Any:
    """Look up a name as users would: pytest does not import this file under its name."""
    __import__(HERE)
    return getattr(sys.modules[HERE], name)


@pytest.mark.parametrize("name", ["doubled", "STEP", "SLOPE", "BOUNDARY"])
def test_transformed_functions(name: str) -> None:
    f = of_module(name)
    again = pickle.loads(pickle.dumps(f))
    assert (again is f) == (name == "doubled")
    assert type(again) is type(f) and repr(again) == repr(f)
    assert again._options == f._options
    assert float(again(jnp.asarray(3.0))) == float(f(jnp.asarray(3.0)))
    assert copy.deepcopy(f) is f and copy.copy(f) is f


def test_a_local_function_says_that_it_cannot_be_pickled() -> None:
    with pytest.raises((pickle.PicklingError, AttributeError), match="local"):
        pickle.dumps(fnx.jit(lambda x: x))


@pytest.mark.parametrize("k", range(6))
def test_structures(k: int) -> None:
    structure = tree.structure(of_module("TREES")[k])
    again = pickle.loads(pickle.dumps(structure))
    assert again == structure and hash(again) == hash(structure)
    assert copy.deepcopy(structure) == structure
    leaves = list(range(structure.num_leaves))
    assert again.unflatten(leaves) == structure.unflatten(leaves)


@pytest.mark.cases(1)
@pytest.mark.parametrize("depth", [1, 1100])
def test_pullbacks(depth: int) -> None:
    def f(x: Any) -> Any:
        for i in range(depth):
            x = {"y": x["y"] * 1.001 if i % 100 else jnp.sin(x["y"])}
        return x

    _, pull = fnx.vjp(f, {"y": jnp.asarray(np.float32([0.1, 0.2]))})
    want, = pull({"y": jnp.ones(2)})
    for again in (pickle.loads(pickle.dumps(pull)), copy.deepcopy(pull)):
        got, = again({"y": jnp.ones(2)})
        np.testing.assert_array_equal(got["y"], want["y"])


def pool() -> None:
    """A process pool computes a jitted function."""
    with multiprocessing.get_context("spawn").Pool(1) as workers:
        print([float(y) for y in workers.map(of_module("doubled"), [1.0, jnp.asarray(2.0)])])


def test_a_process_pool_is_handed_a_jitted_function() -> None:
    done = subprocess.run([sys.executable, "-c", f"from {HERE} import pool\n"
                           "if __name__ == '__main__': pool()"],
                          capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == "[2.0, 4.0]", done.stderr
