"""custom_gradient, custom_root, custom_linear_solve; rules of fnx.call and custom_vmap."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.kernel as k
import fnx.lax as lax
import fnx.numpy as jnp
from fnx.core.support.config import override
from fnx.core.support.errors import ArgumentError, GradError, PytreeError, RuleError, ShapeError
from fnx.custom_batching import custom_vmap, sequential_vmap
from fnx.scipy.sparse.linalg import bicgstab, cg, gmres

X = np.linspace(0.5, 2, 4).astype("f4")


MODES: dict[str, Callable[..., Any]] = {
    "value": lambda f: f, "grad": fnx.grad, "jit grad": lambda f: fnx.jit(fnx.grad(f)),
    "jvp": lambda f: lambda x: fnx.jvp(f, (x,), (2.0,))[1],
    "grad grad": lambda f: fnx.grad(fnx.grad(f)),
    "jit grad grad": lambda f: fnx.jit(fnx.grad(fnx.grad(f))),
    "jvp grad": lambda f: lambda x: fnx.jvp(fnx.grad(f), (x,), (2.0,))[1],
    "grad jvp": lambda f: fnx.grad(lambda x: fnx.jvp(f, (x,), (2.0,))[1])}


def words(f: Callable[..., Any], want: Callable[..., Any], x: Any, rtol: float = 1e-4,
          modes: Iterable[str] = MODES) -> None:
    """Check that orders of modes agree with another spelling of the same function.

    The interpreter computes them, as the subject is what the modes derive.
    """
    with override(device="interp"):
        _compare_modes(f, want, x, rtol, modes)


def _compare_modes(f: Callable[..., Any], want: Callable[..., Any], x: Any, rtol: float,
                   modes: Iterable[str] = MODES) -> None:
    for d in map(MODES.__getitem__, modes):
        np.testing.assert_allclose(d(f)(x), d(want)(x), rtol=rtol, atol=1e-5)
        xs = jnp.stack([x, x + 0.25])
        np.testing.assert_allclose(fnx.vmap(d(f))(xs), fnx.vmap(d(want))(xs), rtol=rtol,
                                   atol=1e-5)


# ---- custom_gradient -----------------------------------------------------------------------------


def test_a_pullback_with_effects(capsys: pytest.CaptureFixture[str]) -> None:
    @fnx.custom_gradient
    def f(x: Any) -> Any:
        def pull(g: Any) -> Any:
            fnx.debug.print("{} {}", g, x)
            return g * x
        return x * 2, pull

    slope = fnx.grad(lambda x: (f(x) * 2.0) ** 2)
    for call in (slope, fnx.jit(slope)):
        assert float(call(1.0)) == 16
        fnx.effects_barrier()
        assert capsys.readouterr().out == "16.0 1.0\n"


def test_custom_gradient() -> None:
    @fnx.custom_gradient
    def f(x: Any) -> Any:
        y = jnp.sin(x)
        return y, lambda g: g * jnp.cos(x)
    words(f, jnp.sin, 0.7)

    @fnx.custom_gradient
    def g(x: Any, p: Any) -> Any:
        return {"y": x * p["a"]}, lambda ct: (ct["y"] * p["a"] * 10, None)
    got = fnx.grad(lambda x, p: g(x, p)["y"], (0, 1))(2.0, {"a": 3.0})
    assert float(got[0]) == 30 and float(got[1]["a"]) == 0


def test_a_gradient_that_is_no_function() -> None:
    f = fnx.custom_gradient(lambda x: (x, x))
    with pytest.raises(RuleError, match="a function as the second of the pair, got Array"):
        fnx.grad(f)(1.0)


# ---- solvers -------------------------------------------------------------------------------------


def newton(f: Any, x: Any) -> Any:
    return fnx.lax.fori_loop(0, 20, lambda _, x: x - f(x) / fnx.grad(f)(x), x)


def test_roots_have_the_derivatives_of_what_they_are() -> None:
    def cube_root(a: Any) -> Any:
        return fnx.lax.custom_root(lambda x: x * x * x - a, 1.0, newton,
                                   lambda g, y: y / g(1.0))
    words(cube_root, lambda a: a ** (1 / 3), 1.5)


def test_a_root_with_aux_and_a_solver_that_closes_over_something() -> None:
    def root(a: Any) -> Any:
        def solve(f: Any, x: Any) -> Any:
            return newton(f, x * a / a), {"steps": 20, "a": a}
        return fnx.lax.custom_root(lambda x: {"x": x["x"] ** 2 - a}, {"x": 1.0},
                                   lambda f, x: solve_tree(f, x, solve),
                                   lambda g, y: {"x": y["x"] / g({"x": 1.0})["x"]}, has_aux=True)

    def solve_tree(f: Any, x: Any, solve: Any) -> Any:
        found, aux = solve(lambda v: f({"x": v})["x"], x["x"])
        return {"x": found}, aux
    got, aux = root(4.0)
    assert float(got["x"]) == pytest.approx(2) and int(aux["steps"]) == 20
    assert float(fnx.grad(lambda a: root(a)[0]["x"])(4.0)) == pytest.approx(0.25)
    assert float(fnx.grad(lambda a: root(a)[1]["a"])(4.0)) == 0


A = np.array([[3, 1, 0], [0.5, 2, 0.25], [0, 1, 4]], np.float32)


def eliminate(matvec: Any, b: Any) -> Any:
    """Gauss-Jordan elimination without pivoting."""
    n = b.shape[0]
    m = fnx.vmap(matvec, out_axes=1)(jnp.eye(n))
    for i in range(n):
        factor = jnp.where(jnp.arange(n) == i, 0, m[:, i] / m[i, i])
        m, b = m - factor[:, None] * m[i], b - factor * b[i]
    return b / jnp.diagonal(m)


def solved(a: Any, b: Any) -> Any:
    return fnx.lax.custom_linear_solve(lambda x: a @ x, b, eliminate, eliminate)


@pytest.mark.cases(1)
@pytest.mark.parametrize("mode", MODES)
def test_linear_solve_reaches_the_matrix_and_the_right_side(mode: str) -> None:
    b = X[:3]
    np.testing.assert_allclose(solved(A, b), np.linalg.solve(A, b), rtol=1e-5)

    def through(solve: Any) -> Any:
        return lambda t: (solve(A * t + jnp.eye(3), jnp.sin(t * b)) ** 2).sum()
    words(through(solved), through(lambda a, b: eliminate(lambda x: a @ x, b)), 1.25, 1e-3,
          [mode])


@pytest.mark.cases(2, of="solvers")
def test_a_symmetric_system_and_one_without_a_transpose() -> None:
    s, b = A + A.T, X[:3]

    def f(s: Any, **how: Any) -> Any:
        return fnx.lax.custom_linear_solve(lambda x: s @ x, b, eliminate, **how)
    got = fnx.grad(lambda s: f(s, symmetric=True).sum())(s)
    want = fnx.grad(lambda s: eliminate(lambda x: s @ x, b).sum())(s)
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-5)
    _, t = fnx.jvp(f, (s,), (s,))
    np.testing.assert_allclose(t, -np.linalg.solve(s, b), rtol=1e-3)
    with pytest.raises(GradError):
        fnx.grad(lambda s: f(s).sum())(s)


@pytest.mark.cases(2)
@pytest.mark.parametrize("n, restart", [(1, 20), (6, 3), (12, 20)])
def test_minimal_residuals(n: int, restart: int) -> None:
    rng = np.random.default_rng(n)
    a = (np.eye(n) * 3 + rng.normal(size=(n, n)) / np.sqrt(n)).astype("f4")
    b = rng.normal(size=n).astype("f4")

    def solve(b: Any) -> Any:
        return gmres(a, b, restart=restart, tol=1e-6)[0]
    np.testing.assert_allclose(fnx.jit(solve)(b), np.linalg.solve(a, b), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(fnx.grad(lambda b: solve(b).sum())(b),
                               np.linalg.solve(a.T, np.ones(n)), rtol=1e-4, atol=1e-5)


@pytest.mark.cases(2, of="solvers")
def test_minimal_residuals_of_trees_and_of_what_is_singular() -> None:
    b = {"u": jnp.ones(2), "v": jnp.ones((2, 2))}
    found, _ = gmres(lambda t: {"u": 3 * t["u"] + t["v"].sum(0), "v": 2 * t["v"] + t["u"]}, b,
                     M=lambda t: {"u": t["u"] / 3, "v": t["v"] / 2})
    np.testing.assert_allclose(found["v"], np.full((2, 2), 0.5), rtol=1e-4)
    flat = np.diag([1.0, 2.0, 0.0]).astype("f4")
    np.testing.assert_allclose(gmres(flat, np.array([1, 2, 0], "f4"))[0], [1, 1, 0], atol=1e-5)
    np.testing.assert_array_equal(gmres(flat, np.zeros(3, "f4"))[0], np.zeros(3))
    with pytest.raises(ArgumentError):
        gmres(flat, np.ones(3, "f4"), restart=0)


SYMMETRIC = np.array([[2.0, 0.3, 0.1], [0.3, 1.5, 0.2], [0.1, 0.2, 1.8]], "f4")
AROUND: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda f: f, "jit": fnx.jit, "checkpoint": fnx.checkpoint,
    "vmap": lambda f: lambda x: fnx.vmap(f)(jnp.stack([x, x[::-1]])).sum(0),
    "scan": lambda f: lambda x: lax.scan(lambda c, _: (f(c), None), x, None, 2)[0],
    "lanes that choose": lambda f: lambda x: fnx.vmap(lambda x: lax.cond(
        x[0] > 0.4, f, lambda x: x * 0.5, x))(jnp.stack([x, x[::-1]])).sum(0)}


@pytest.mark.cases(1)
@pytest.mark.parametrize("around", AROUND)
def test_what_was_solved_by_iteration_is_transposed(around: str) -> None:
    def transposed(f: Any) -> Any:
        return lambda x: fnx.linear_transpose(fnx.linearize(f, x)[1], x)(jnp.cos(x))[0]

    def solved(x: Any) -> Any:
        a = jnp.asarray(SYMMETRIC) * (1 + 0.1 * jnp.sin(x).sum())
        return cg(lambda v: a @ v, x, tol=1e-7)[0]

    def plain(x: Any) -> Any:
        return np.linalg.inv(SYMMETRIC) @ x / (1 + 0.1 * jnp.sin(x).sum())

    x, wrap = X[:3], AROUND[around]
    np.testing.assert_allclose(transposed(wrap(solved))(x), transposed(wrap(plain))(x), 2e-5)


@pytest.mark.cases(1)
@pytest.mark.parametrize("solve", [cg, bicgstab, gmres])
def test_solvers_are_linear_maps(solve: Any) -> None:
    a = jnp.asarray(SYMMETRIC)
    back = fnx.linear_transpose(lambda b: solve(a, b, tol=1e-7)[0], X[:3])
    np.testing.assert_allclose(back(X[:3])[0], np.linalg.solve(SYMMETRIC, X[:3]), 1e-5)
    for wrong in (lambda b: solve(a, b + 1)[0], lambda b: solve(lambda x: a @ x * b, b)[0]):
        with pytest.raises(GradError, match="a function that is linear in its arguments"):
            fnx.linear_transpose(wrong, X[:3])


@pytest.mark.cases(1)
@pytest.mark.parametrize("solve", [cg, bicgstab, gmres])
def test_derivatives_are_solved_to_a_tolerance_of_their_own(solve: Any) -> None:
    tiny = 1e-8
    got = fnx.grad(lambda b: tiny * solve(jnp.asarray(SYMMETRIC), b, tol=1e-6)[0].sum())(X[:3])
    np.testing.assert_allclose(got, tiny * np.linalg.inv(SYMMETRIC).sum(0), 1e-4)
    _, got = fnx.jvp(lambda b: solve(jnp.asarray(SYMMETRIC), b, tol=1e-6)[0], (X[:3],),
                     (tiny * X[:3],))
    np.testing.assert_allclose(got, tiny * np.linalg.solve(SYMMETRIC, X[:3]), 1e-4)


def test_equations_have_to_be_as_many_as_unknowns() -> None:
    with pytest.raises(ShapeError, match="like its argument"):
        fnx.lax.custom_root(lambda x: jnp.stack([x, x]), 1.0, newton, lambda g, y: y)


# ---- rules of calls ------------------------------------------------------------------------------


@fnx.call(out=lambda x, ct: x)
def square_back(x: Any, ct: Any, o: Any) -> None:
    i = k.range(o.shape[0])
    o[i] = 2 * x[i] * ct[i]


@fnx.call(out=lambda x: x, vjp=lambda args, out, ct: (square_back(args[0], ct),))
def square(x: Any, o: Any) -> None:
    i = k.range(o.shape[0])
    o[i] = x[i] * x[i]


def test_a_kernel_whose_vjp_is_a_kernel() -> None:
    np.testing.assert_array_equal(square(X), X * X)
    for f in (square, fnx.jit(square)):
        got = fnx.grad(lambda x: (f(x) * 3).sum())(X)
        np.testing.assert_allclose(got, 6 * X, rtol=1e-6)
    batch = np.stack([X, X + 1])
    np.testing.assert_allclose(fnx.vmap(fnx.grad(lambda x: square(x).sum()))(batch), 2 * batch)
    np.testing.assert_allclose(fnx.grad(lambda x: fnx.vmap(square)(x).sum())(batch), 2 * batch)
    np.testing.assert_allclose(fnx.jvp(square, (X,), (X,))[1], 2 * X * X)


def test_a_kernel_with_both_rules() -> None:
    def jvp(primals: Any, tangents: Any) -> Any:
        return both(*primals), square_back(primals[0], tangents[0])
    both = fnx.call(out=lambda x: x, jvp=jvp, vjp=(
        lambda x: (both(x), x), lambda x, ct: (square_back(x, ct),)))(
            lambda x, o: o.__setitem__(i := k.range(o.shape[0]), x[i] * x[i]))
    np.testing.assert_allclose(fnx.jvp(both, (X,), (X,))[1], 2 * X * X)
    np.testing.assert_allclose(fnx.grad(lambda x: both(x).sum())(X), 2 * X)


def test_a_boundary_with_rules() -> None:
    f = fnx.call(jnp.sin, name="wave", jvp=lambda p, t: (jnp.sin(*p), 5 * t[0]),
                 vmap=lambda size, batched, x: (jnp.sin(x) + size, batched[0]))
    assert float(f(1.0)) == pytest.approx(np.sin(1))
    assert float(fnx.grad(f)(1.0)) == 5
    np.testing.assert_allclose(fnx.vmap(f)(X), np.sin(X) + 4, rtol=1e-6)
    np.testing.assert_allclose(fnx.vmap(fnx.grad(f))(X), np.full(4, 5.0))


def test_call_refuses_what_is_no_rule() -> None:
    with pytest.raises(ArgumentError, match="vjp.args, out, ct., or a pair"):
        fnx.call(lambda x: x, vjp=3)  # type: ignore[call-overload]
    with pytest.raises(ArgumentError, match="a function as jvp=, got int"):
        fnx.call(lambda x: x, jvp=3)  # type: ignore[call-overload]


def test_custom_vmap() -> None:
    @custom_vmap
    def f(x: Any, y: Any) -> Any:
        return {"z": x * y}

    @f.def_vmap
    def rule(size: int, batched: Any, x: Any, y: Any) -> Any:
        assert batched == [True, False] and size == 4
        return {"z": x * y + 100}, {"z": True}
    np.testing.assert_allclose(fnx.vmap(f, (0, None))(X, 2.0)["z"], 2 * X + 100)
    np.testing.assert_allclose(fnx.jit(fnx.vmap(f, (0, None)))(X, 2.0)["z"], 2 * X + 100)
    assert float(fnx.grad(lambda x: f(x, 3.0)["z"])(2.0)) == 3
    with pytest.raises(RuleError, match="expected rules for"):
        custom_vmap(lambda x: x)(1.0)

    @custom_vmap
    def g(x: Any) -> Any:
        return x
    g.def_vmap(lambda size, batched, x: (x[:1], True))
    with pytest.raises(RuleError, match=r"the vmap rule .*like the function, float32\[4\], got"):
        fnx.vmap(g)(X)


def test_a_rule_for_a_batch_closes_over_arrays_and_has_effects(
        capsys: pytest.CaptureFixture[str]) -> None:
    w, mine = jnp.arange(3.0), np.array([5.0, 7.0], np.float32)

    def of(v: Any, xs: Any) -> Any:
        @custom_vmap
        def f(x: Any, y: Any) -> Any:
            return x * v + y

        @f.def_vmap
        def rule(size: int, batched: Any, x: Any, y: Any) -> Any:
            fnx.debug.print("{} of {}", size, x.sum(), ordered=True)
            return x * v * w.sum() + jnp.asarray(mine)[1] + y, True
        return fnx.vmap(f, (0, None))(xs, 1.0)

    for way in (of, fnx.jit(of)):
        np.testing.assert_allclose(way(2.0, X), X * 6 + 8)
    np.testing.assert_allclose(fnx.vmap(of, (0, None))(X, X), X[:, None] * X * 3 + 8)
    fnx.effects_barrier()
    assert capsys.readouterr().out.splitlines() == [f"4 of {X.sum()}"] * 3  # v is not batched
    np.testing.assert_allclose(fnx.grad(lambda v: of(v, X).sum())(2.0), X.sum() * 3, rtol=1e-6)


def test_arrays_of_a_rule_may_be_for_the_size_of_the_batch() -> None:
    """Even if the function was traced before for another batch size, or unbatched."""
    table = np.arange(8, dtype=np.float32)
    f = custom_vmap(lambda x: x * 2)

    @f.def_vmap
    def rule(size: int, batched: Any, x: Any) -> Any:
        return x * 2 + table[:size], True

    def scanned(x: Any) -> Any:
        return fnx.lax.scan(lambda c, t: (f(c) + t, None), x, table[:2])[0]

    inner = fnx.jit(lambda x: f(x) + 1)
    assert float(inner(2.0)) == 5.0
    for n in (4, 2, 3, 4):
        x = jnp.arange(float(n))
        assert fnx.vmap(f)(x).tolist() == [3.0 * i for i in range(n)]
        assert fnx.vmap(inner)(x).tolist() == [3.0 * i + 1 for i in range(n)]
        assert fnx.vmap(inner, axis_name="i")(x).tolist() == [3.0 * i + 1 for i in range(n)]
        assert fnx.vmap(scanned)(x).tolist() == [7.0 * i + 1 for i in range(n)]
        assert fnx.grad(lambda x: fnx.vmap(inner)(x).sum())(x).tolist() == [2.0] * n


def test_a_result_that_a_rule_says_is_the_same_for_all_lanes() -> None:
    f = custom_vmap(lambda x, y: {"sum": x.sum(), "y": y * 2})

    @f.def_vmap
    def rule(size: int, batched: Any, x: Any, y: Any) -> Any:
        return {"sum": x.sum(), "y": y * 3}, {"sum": batched[0], "y": batched[1]}

    x, y = jnp.ones(3), jnp.arange(4.0)
    for g in (f, fnx.jit(f)):
        mapped = fnx.vmap(g, (None, 0), {"sum": None, "y": 0})
        for out in (mapped(x, y), fnx.jit(mapped)(x, y)):
            assert out["sum"].shape == () and out["sum"] == 3.0
            assert out["y"].tolist() == [0, 3, 6, 9]
        assert fnx.vmap(g, (None, 0))(x, y)["sum"].tolist() == [3, 3, 3, 3]
    got = fnx.grad(lambda x: mapped(x, y)["sum"] * 2)(x)
    assert got.tolist() == [2, 2, 2]
    assert fnx.vmap(f, (None, 0))(x, y[:0])["sum"].shape == (0,)


def test_one_after_the_other() -> None:
    seen: list[float] = []

    @sequential_vmap
    def f(p: Any, y: Any) -> Any:
        fnx.debug.callback(lambda x: seen.append(float(x)), p["x"])
        return p["x"] * p["w"] + y

    x = jnp.arange(3.0)
    got = fnx.vmap(f, ({"x": 0, "w": None}, 0))({"x": x, "w": jnp.ones(2)}, x)
    fnx.effects_barrier()
    assert got.tolist() == [[0, 0], [2, 2], [4, 4]] and seen == [0, 1, 2]


@pytest.mark.cases(2, of="solvers")
def test_a_rule_that_calls_its_function_batches_what_is_batched() -> None:
    @fnx.custom_jvp
    def f(x: Any, y: Any) -> Any:
        return jnp.sin(x) * y

    @f.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        (x, y), (dx, dy) = primals, tangents
        return f(x, y), f(x, dy) + f(x + np.float32(np.pi / 2), y) * dx

    along = fnx.vmap(lambda x, y: fnx.jvp(f, (x, y), (x, y)), (0, None))
    text = fnx.jit(along).lower(X, 2.0).text("graph")
    assert "custom[f.batched: jvp](x0, x1)" in text and "expand" not in text.lower()
    sine, cosine = np.sin(X), np.cos(X)
    np.testing.assert_allclose(along(X, 2.0)[1], sine * 2 + cosine * X * 2, rtol=1e-5)
    wider = fnx.vmap(lambda x, y, t: fnx.jvp(f, (x, y), (x, t)), (0, None, 0))
    np.testing.assert_allclose(wider(X, 2.0, X)[1], sine * X + cosine * X * 2, rtol=1e-5)
    twice = fnx.vmap(fnx.grad(fnx.grad(f)), (0, None))(X, 2.0)
    np.testing.assert_allclose(twice, -sine * 2, rtol=1e-5, atol=1e-6)


@pytest.mark.cases(2, of="solvers")
def test_a_rule_that_maps_its_own_function() -> None:
    @fnx.custom_jvp
    def f(x: Any) -> Any:
        return jnp.sin(x)

    @f.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        x, = primals
        both = fnx.vmap(f)(jnp.stack([x, x + np.float32(np.pi / 2)]))
        return both[0], both[1] * tangents[0]

    np.testing.assert_allclose(fnx.vmap(fnx.grad(f))(X), np.cos(X), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(fnx.vmap(fnx.vmap(fnx.grad(fnx.grad(f))))(X[None]),
                               -np.sin(X)[None], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("way", [lambda f: f, fnx.jit])
def test_integers_have_no_tangent(way):
    whole = jnp.arange(3)

    def halves(c):
        return lax.custom_linear_solve(lambda v: v * 2, whole + c.astype("int32"),
                                       lambda f, b: b // 2, lambda f, b: b // 2).sum() * c

    def same(c):
        return lax.custom_root(lambda x: x - whole, whole * 0, lambda f, x: x - f(x),
                               lambda g, y: y).sum() * c

    for f, expected in ((halves, 4.0), (same, 3.0)):
        assert way(fnx.grad(f))(2.0) == expected
        assert way(lambda c, f=f: fnx.jvp(f, (c,), (1.0,))[1])(2.0) == expected


def test_root_of_floats_with_integers():
    def mixed(c):
        return lax.custom_root(
            lambda x: (x[0]**2 - c, x[1] - jnp.arange(3)), (jnp.ones(3), jnp.zeros(3, "int32")),
            lambda f, x: (jnp.sqrt(c) * jnp.ones(3), jnp.arange(3)),
            lambda g, y: (y[0] / g((jnp.ones(3), jnp.arange(3)))[0], y[1]))[0].sum()

    assert fnx.grad(mixed)(4.0) == 0.75  # of 3 square roots
    assert fnx.jvp(mixed, (4.0,), (1.0,))[1] == 0.75


def test_solutions_have_to_be_like_the_unknowns() -> None:
    two = jnp.ones(2)
    with pytest.raises(ShapeError, match=r"solve to return a solution .* \[2\] .* got \[1\]"):
        def solve(f: Any, x: Any) -> Any:
            return x[:1]
        lax.custom_root(lambda x: x - 1, two, solve, lambda g, y: y)
    with pytest.raises(ShapeError, match=r"\[2\] at the root; got \[\]"):
        fnx.grad(lambda a: lax.custom_root(lambda x: x - a, two, lambda f, x: x,
                                           lambda g, y: y.sum()).sum())(1.0)
    with pytest.raises(PytreeError, match="custom_linear_solve: .* got {'x'"):
        lax.custom_linear_solve(lambda x: x, two, lambda mv, b: {"x": b}, symmetric=True)
    with pytest.raises(PytreeError, match="custom_linear_solve: .* as has_aux=True says"):
        lax.custom_linear_solve(lambda x: x, two, lambda mv, b: b, symmetric=True, has_aux=True)


def test_a_linear_solve_of_integers_has_floats() -> None:
    """The solution has another dtype than the right-hand side."""
    def solved(b: Any, a: Any) -> Any:
        return lax.custom_linear_solve(lambda x: x * a, b, lambda f, b: b / a, symmetric=True)

    b = jnp.asarray([4, 6])
    np.testing.assert_allclose(fnx.jit(solved)(b, 2.0), [2, 3])
    np.testing.assert_allclose(fnx.jvp(lambda a: solved(b, a), (2.0,), (1.0,))[1], [-1, -1.5])
    np.testing.assert_allclose(fnx.grad(lambda a: solved(b, a).sum())(2.0), -2.5)


def test_a_pullback_may_have_checkpoints() -> None:
    """Recomputation behind a barrier stays linear."""
    @fnx.custom_vjp
    def f(x: Any) -> Any:
        return jnp.sin(x)

    f.defvjp(lambda x: (f(x), x), lambda x, ct: fnx.vjp(fnx.checkpoint(jnp.sin), x)[1](ct))
    np.testing.assert_allclose(fnx.jvp(f, (0.5,), (2.0,))[1], 2 * np.cos(0.5), rtol=1e-6)
