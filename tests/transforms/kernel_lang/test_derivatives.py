"""Derivatives of user-written kernels: of the example kernels, and what they reject."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
import fnx.kernel as k
import fnx.numpy as jnp
from examples.kernels import flash_attention, matmul, prefix_sum, saxpy, softmax, stencil
from fnx.core.ir import ops
from fnx.core.ir.uop import toposort
from fnx.core.support.config import override
from fnx.core.support.errors import GradError
from fnx.test_util import check_grads
from tests.transforms.test_vmap import rows


def attention(q: Any, key: Any, v: Any, causal: bool) -> Any:
    scores = q @ key.transpose(0, 2, 1)
    n = q.shape[1]
    mask = jnp.tril(jnp.ones((n, n), bool))
    return fnx.nn.softmax(jnp.where(mask, scores, -jnp.inf) if causal else scores) @ v


@pytest.mark.cases(1)
@pytest.mark.parametrize("name, f, plain, shapes", [
    ("saxpy", saxpy, lambda a, x, y: a * x + y, [(), (7,), (7,)]),
    ("matmul", matmul(), lambda x, w: x @ w, [(3, 5), (5, 4)]),
    ("softmax", softmax, lambda x: fnx.nn.softmax(x), [(3, 5)]),
    ("prefix_sum", prefix_sum, lambda x: jnp.cumsum(x, 1), [(3, 5)]),
    ("flash", flash_attention(), lambda *a: attention(*a, False), [(2, 128, 16)] * 3),
    ("causal", flash_attention(True), lambda *a: attention(*a, True), [(2, 128, 16)] * 3),
])
def test_gradients_are_those_of_the_plain_function(name: str, f: Any, plain: Any, shapes: Any
                                                   ) -> None:
    args = [rows(*shape, seed=i) for i, shape in enumerate(shapes)]
    ct = rows(*plain(*args).shape, seed=9)
    every = tuple(range(len(args)))
    want = fnx.grad(lambda *a: (plain(*a) * ct).sum(), every)(*args)
    got = fnx.jit(fnx.grad(lambda *a: (f(*a) * ct).sum(), every))(*args)
    for a, b in zip(got, want):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    tangents = [rows(*x.shape, seed=5 + i) for i, x in enumerate(args)]
    out, t = fnx.jvp(f, args, tangents)
    np.testing.assert_array_equal(out, f(*args))
    np.testing.assert_allclose(t, fnx.jvp(plain, args, tangents)[1], rtol=1e-4, atol=1e-4)


def test_a_stencil_at_its_borders() -> None:
    check_grads(stencil, (rows(4, 3),), order=2, modes=("fwd", "rev"), atol=1e-2, rtol=1e-2)


def test_the_kernel_computes_the_results_and_the_backward_pass_what_it_needs() -> None:
    outs, pull = fnx.vjp(softmax, rows(3, 5))
    np.testing.assert_array_equal(outs, softmax(rows(3, 5)))
    stages = fnx.jit(lambda x: fnx.vjp(softmax, x)[0]).lower(rows(3, 5))
    assert [n.op for n in toposort([stages.graph], into_functions=True)].count(ops.KERNEL) == 1
    gradient = fnx.jit(fnx.grad(lambda w: (matmul()(rows(3, 5), w) * 2).sum()))
    assert "softmax" not in gradient.lower(rows(5, 4)).text("kernels")
    assert len(gradient.lower(rows(5, 4)).kernels) <= 2  # a product is not recomputed


def test_a_kernel_that_is_linear_is_transposed() -> None:
    w, ct = rows(5, 4), rows(3, 4, seed=2)
    got, = fnx.linear_transpose(lambda x: matmul()(x, w), rows(3, 5))(ct)
    np.testing.assert_allclose(got, ct @ w.T, rtol=1e-5, atol=1e-5)
    out, push = fnx.linearize(matmul(), rows(3, 5), w)
    np.testing.assert_allclose(push(rows(3, 5), 0 * w), out, rtol=1e-5, atol=1e-5)
    with pytest.raises(GradError, match="linear in its arguments"):
        fnx.linear_transpose(softmax, rows(3, 5))(rows(3, 5))


def test_stores_at_places_that_are_data_and_parts_of_an_output() -> None:
    @fnx.call(out=lambda i, w: fnx.ShapeDtypeStruct((5,), w.dtype))
    def summed(i: Any, w: Any, o: Any) -> None:
        r = k.range(w.shape[0])
        o.combine("add", i[r], w[r] * w[r])

    @fnx.call(out=lambda x: fnx.ShapeDtypeStruct((2 * x.shape[0] + 1,), x.dtype))
    def halves(x: Any, o: Any) -> None:
        n = x.shape[0]
        i, j = k.range(n), k.range(n)
        o[i] = 2 * x[i]
        o[2 * n - j] = x[j] * x[j]

    at, w = np.asarray([0, 3, 3, 9, -1], np.int32), rows(5)
    got = fnx.grad(lambda w: (summed(at, w) * jnp.arange(1.0, 6.0)).sum())(w)
    np.testing.assert_allclose(got, 2 * w * jnp.asarray([1.0, 4, 4, 0, 0]), rtol=1e-6)
    check_grads(halves, (rows(3),), order=2, modes=("fwd", "rev"), atol=1e-2, rtol=1e-2)


def test_transforms_compose() -> None:
    x = rows(4, 3, 5)

    def loss(x: Any) -> Any:
        return (softmax(x) ** 2).sum()

    def plain(x: Any) -> Any:
        return (fnx.nn.softmax(x) ** 2).sum()

    want = np.asarray([fnx.grad(plain)(v) for v in x])
    for device in ("cpu", "interp"):
        with override(device=device):
            np.testing.assert_allclose(fnx.vmap(fnx.grad(loss))(x), want, rtol=1e-4, atol=1e-6)
            whole = fnx.grad(lambda x: fnx.vmap(loss)(x).sum())(x)
            np.testing.assert_allclose(whole, want, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(fnx.hessian(loss)(x[0, :1]), fnx.hessian(plain)(x[0, :1]),
                               rtol=1e-3, atol=1e-5)
    stepped = fnx.lax.scan(lambda c, row: (c + loss(row * c), c), 1.0, x)[0]
    assert np.isfinite(stepped)
    slope = fnx.grad(lambda s: fnx.lax.scan(lambda c, row: (c + loss(row * c), c), s, x)[0])
    direct = fnx.grad(lambda s: fnx.lax.scan(lambda c, row: (c + plain(row * c), c), s, x)[0])
    np.testing.assert_allclose(slope(1.0), direct(1.0), rtol=1e-4)


def _looped(x: Any, o: Any) -> None:
    i = k.range(x.shape[0])
    o[i] = k.loop(3, lambda t, s: s * 0.5 + x[t] * x[i], x[i])


@pytest.mark.cases(1)
@pytest.mark.parametrize("around", [
    lambda f, x: fnx.lax.scan(lambda c, _: (f(c), None), x, None, 2)[0],
    lambda f, x: fnx.lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, f(s[1])), (0, x))[1],
    lambda f, x: fnx.lax.cond(x.sum() > 0, lambda x: f(f(x)), lambda x: x, x),
], ids=["scan", "while", "cond"])
def test_kernels_with_loops_in_loops_and_branches(around: Any) -> None:
    f = fnx.call(_looped, out=lambda x: x)
    x = rows(4) ** 2
    step = lambda y: 0.125 * y + y * (0.25 * y[0] + 0.5 * y[1] + y[2])
    want = fnx.hessian(lambda x: step(step(x)).sum())(x)
    np.testing.assert_allclose(fnx.hessian(lambda x: around(f, x).sum())(x), want, rtol=1e-4)
    tangent = fnx.jvp(lambda x: around(f, x), (x,), (x,))[1]
    np.testing.assert_allclose(tangent, fnx.jvp(lambda x: step(step(x)), (x,), (x,))[1], rtol=1e-4)


def test_what_is_skipped_has_no_derivative_and_no_nan() -> None:
    @fnx.call(out=lambda x: x)
    def roots(x: Any, o: Any) -> None:
        i = k.range(x.shape[0])
        o[i] = k.when(x[i] > 0, lambda: k.sqrt(x[i]), 0.0)

    got = fnx.grad(lambda x: roots(x).sum())(jnp.asarray([4.0, 0.0, -1.0]))
    assert got.tolist() == [0.25, 0.0, 0.0]


def test_arrays_beyond_memory_are_refused_with_the_line() -> None:
    n = 2048

    @fnx.call(out=lambda x: fnx.ShapeDtypeStruct((), x.dtype))
    def many(x: Any, o: Any) -> None:
        i, j = k.range(n * 1024), k.range(n)
        at = k.cast(x[i % x.shape[0]], "int32") + j
        o[()] = k.sum(x[at], over=(i, j))

    with pytest.raises(GradError, match=r"array of \d+ elements") as found:
        fnx.grad(many)(jnp.ones(3))
    assert found.value.loc is not None and found.value.loc[0] == __file__
    assert "vjp=" in str(found.value)
