"""A smoke test of five seconds: one test for each thing that fnx can do.

    pytest tests/tiny
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.kernel as k
import fnx.lax as lax
import fnx.nn as nn
import fnx.numpy as jnp
from fnx.core.support.config import override

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_eager() -> None:
    np.testing.assert_array_equal(jnp.asarray(X) * 2 + 1, X * 2 + 1)


def test_jit() -> None:
    f = fnx.jit(lambda x: jnp.sin(x).sum())
    np.testing.assert_allclose([f(X), f(X)], [np.sin(X).sum()] * 2, rtol=1e-6)
    assert f.cache_info().traces == 1


def test_grad() -> None:
    np.testing.assert_array_equal(fnx.grad(lambda x: (x ** 2).sum())(X), 2 * X)


def test_a_second_derivative() -> None:
    assert float(fnx.grad(fnx.grad(lambda x: x ** 3))(2.0)) == 12


def test_matmul() -> None:
    np.testing.assert_allclose(jnp.asarray(X) @ X.T, X @ X.T)


def test_reductions_and_movement() -> None:
    got = jnp.concatenate([jnp.asarray(X).T[::-1], jnp.ones((1, 2))]).max(1)
    np.testing.assert_array_equal(got, [5, 4, 3, 1])


def test_indexing() -> None:
    at = jnp.asarray([1, 0, 1])
    np.testing.assert_array_equal(jnp.asarray(X)[at], X[[1, 0, 1]])
    np.testing.assert_array_equal(jnp.zeros(2).at[at].add(1.0), [1, 2])


def test_lax_and_nn() -> None:
    np.testing.assert_allclose(nn.softmax(X).sum(1), [1, 1], rtol=1e-6)
    np.testing.assert_array_equal(lax.dynamic_slice(jnp.asarray(X), (0, 1), (2, 1)), X[:, 1:2])


def test_random() -> None:
    key = fnx.random.key(0)
    np.testing.assert_array_equal(fnx.random.normal(key, (4,)), fnx.random.normal(key, (4,)))


def test_tree() -> None:
    leaves, structure = fnx.tree.flatten({"a": 1, "b": (2, 3)})
    assert fnx.tree.unflatten(structure, leaves) == {"a": 1, "b": (2, 3)}


def test_hand_written_kernel() -> None:
    @fnx.call(out=lambda x: fnx.ShapeDtypeStruct(x.shape[:1], x.dtype))
    def rows(x: Any, o: Any) -> None:
        i, j = k.range(x.shape[0]), k.range(x.shape[1])
        o[i] = k.sum(x[i, j], over=j)
    np.testing.assert_array_equal(rows(X), X.sum(1))


def test_training() -> None:
    @fnx.jit
    def step(w: Any) -> Any:
        return w - 0.03 * fnx.grad(lambda w: ((X @ w - 1) ** 2).mean())(w)
    w = jnp.zeros(3)
    for _ in range(200):
        w = step(w)
    assert float(((X @ w - 1) ** 2).mean()) < 5e-2


def test_interpreter() -> None:
    with override(device="interp"):
        np.testing.assert_array_equal(fnx.jit(lambda x: x + x)(X), X + X)


def test_stages() -> None:
    shown = fnx.jit(lambda x: x + 1).lower(X)
    assert "for " in shown.text("kernels") and "out0" in shown.text("commands")


def test_errors_name_the_line() -> None:
    with pytest.raises(fnx.FnxError, match="test_tiny.py:"):
        jnp.ones(2) + jnp.ones(3)


def test_arrays_pickle() -> None:
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(jnp.asarray(X))), X)


def test_a_fresh_process_finds_the_object_cache() -> None:
    script = "import fnx.numpy as jnp; print(float((jnp.arange(3.0) + 1).sum()))"
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "6.0"
