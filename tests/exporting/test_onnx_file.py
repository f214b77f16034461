"""An exported ONNX model is valid, and gives the same values when it is loaded."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import fnx
import fnx.numpy as jnp
import fnx.onnx
from fnx import lax, nn
from fnx.core.array import tree
from fnx.errors import ArgumentError
from tests.exporting.test_graph_file import FUNCTIONS, W, X

REFUSED = {"sort": "SORT", "scatter": "SCATTER", "random": "SHL", "narrow": "bfloat16"}
KERNEL = jnp.asarray(np.random.default_rng(0).normal(size=(3, 1, 2, 2)).astype(np.float32))
MORE: dict[str, Any] = {
    "network": lambda x: nn.softmax(nn.gelu(x @ W + 1.0)),
    "attention": lambda x: nn.softmax(
        jnp.where(jnp.tril(jnp.ones((5, 5), bool)), x @ x.T, -1e9)) @ x,
    "convolution": lambda x: lax.conv_general_dilated(
        x[None, None], KERNEL, (2, 1), [(1, 1), (0, 1)], rhs_dilation=(1, 2)),
    "pooling": lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (1, 2), "SAME"),
    "extremes": lambda x: [x.argmax(1), x.argmin(), x.max(0), (x > 0).any(1), (x > 0).all()],
    "slices": lambda x: (x[:, ::2], x[::-1], x[np.asarray([0, 9, -1])], x[1:3, None, 0]),
    "points": lambda x: x[np.asarray([0, 4]), np.asarray([1, 7])],
    "integers": lambda x: (lambda i: (i // 2, i % 3, i & 5, ~i, i ^ 1))(jnp.arange(-4, 4)),
    "numbers": lambda x: (jnp.log1p(abs(x)), jnp.expm1(x), jnp.trunc(x * 3), jnp.round(x),
                          lax.erfc(x), jnp.logaddexp(x, x + 1), x != x[0], jnp.fmod(x, 0.5)),
    "repeated": lambda x: jnp.sum(jnp.broadcast_to(x[:1], (3, 8)) * 2.0, 0),
    "outer": lambda x: jnp.einsum("ij,k->ki", x, x[:, 0]),
    "backwards": lambda x: lax.scan(lambda c, r: (c + r @ W, c), jnp.zeros(3), x, reverse=True),
    "count": lambda x: lax.fori_loop(0, 5, lambda i, c: c + i * x.sum(), x),
    "switch": lambda x: [lax.switch(i, [lambda: x + 1, lambda: x * 2, lambda: x @ W @ W.T])
                         for i in (jnp.int32(x[0, 0] * 0 + k) for k in (-1, 1, 7))]}


@pytest.mark.cases(4)
@pytest.mark.parametrize("name", [*sorted(FUNCTIONS.keys() - REFUSED), *MORE])
def test_a_model_has_the_values_of_the_function(name: str) -> None:
    f = (FUNCTIONS | MORE)[name]
    data = fnx.export(f, X, to="onnx", name="f").files["f.onnx"]
    onnx.checker.check_model(onnx.load_from_string(data), full_check=True)
    got = fnx.onnx.load(data)(X)
    for a, b in zip(got if isinstance(got, tuple) else (got,), tree.leaves(f(jnp.asarray(X))),
                    strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", REFUSED)
def test_what_onnx_lacks_is_refused(name: str) -> None:
    with pytest.raises(ArgumentError, match=REFUSED[name]):
        fnx.export(FUNCTIONS[name], X, to="onnx", name="f")


def test_captured_arrays_are_parameters() -> None:
    loaded = fnx.onnx.load(fnx.export(lambda x: jnp.tanh(x @ W), X, to="onnx", name="f")
                           .files["f.onnx"])
    (name,) = [n for n, p in loaded.params.items() if p.shape == W.shape]
    gradient = fnx.grad(lambda w: loaded(X, params={name: w}).sum())(W)
    np.testing.assert_allclose(gradient, fnx.grad(lambda w: jnp.tanh(X @ w).sum())(W), rtol=1e-5)
