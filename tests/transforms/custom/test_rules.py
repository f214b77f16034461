"""custom_jvp and custom_vjp: every transform uses the rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.support.errors import ArgumentError, GradError, RuleError

X = np.linspace(0.25, 1.5, 4).astype(np.float32)


def product(x: Any, y: Any) -> Any:
    return jnp.sin(x) * y


@fnx.custom_jvp
def with_jvp(x: Any, y: Any) -> Any:
    return jnp.sin(x) * y


@with_jvp.defjvp
def _with_jvp(primals: Any, tangents: Any) -> Any:
    (x, y), (tx, ty) = primals, tangents
    return with_jvp(x, y), jnp.cos(x) * y * tx + jnp.sin(x) * ty


@fnx.custom_vjp
def with_vjp(x: Any, y: Any) -> Any:
    return jnp.sin(x) * y


def _forward(x: Any, y: Any) -> Any:
    return with_vjp(x, y), (x, y)


def _backward(saved: Any, ct: Any) -> Any:
    x, y = saved
    return jnp.cos(x) * y * ct, jnp.sum(jnp.sin(x) * ct)


with_vjp.defvjp(_forward, _backward)

BOTH = pytest.mark.parametrize("f", [with_jvp, with_vjp], ids=["jvp", "vjp"])

WORDS: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "f": lambda f: f,
    "jit": fnx.jit,
    "grad": lambda f: fnx.grad(lambda x, y: f(x, y).sum(), (0, 1)),
    "jit grad": lambda f: fnx.jit(fnx.grad(lambda x, y: f(x, y).sum(), (0, 1))),
    "grad jit": lambda f: fnx.grad(lambda x, y: fnx.jit(f)(x, y).sum(), (0, 1)),
    "jvp": lambda f: lambda x, y: fnx.jvp(f, (x, y), (jnp.ones_like(x), 0.5)),
    "grad grad": lambda f: fnx.vmap(fnx.grad(fnx.grad(f)), (0, None)),
    "grad grad grad": lambda f: fnx.vmap(fnx.grad(fnx.grad(fnx.grad(f))), (0, None)),
    "jvp grad": lambda f: lambda x, y: fnx.jvp(
        fnx.grad(lambda x, y: f(x, y).sum()), (x, y), (jnp.ones_like(x), 0.5)),
    "grad jvp": lambda f: fnx.grad(
        lambda x, y: fnx.jvp(f, (x, y), (jnp.ones_like(x), 0.5))[1].sum(), (0, 1)),
    "jvp jvp": lambda f: lambda x, y: fnx.jvp(
        lambda x: fnx.jvp(lambda x: f(x, y), (x,), (x,))[1], (x,), (x,)),
    "vmap": lambda f: fnx.vmap(f, (0, None)),
    "vmap grad": lambda f: fnx.vmap(fnx.grad(f, (0, 1)), (0, None)),
    "grad vmap": lambda f: fnx.grad(
        lambda x, y: fnx.vmap(f, (0, None))(x, y).sum(), (0, 1)),
    "jit vmap grad grad": lambda f: fnx.jit(fnx.vmap(fnx.grad(fnx.grad(f, 1), 0), (0, None))),
    "jvp vmap": lambda f: lambda x, y: fnx.jvp(
        fnx.vmap(f, (0, None)), (x, y), (jnp.ones_like(x), 0.5)),
    "vmap vmap": lambda f: lambda x, y: fnx.vmap(fnx.vmap(f, (0, None)), (None, 0))(x, x * y),
}


@pytest.mark.cases(8)
@BOTH
@pytest.mark.parametrize("word", WORDS)
def test_a_rule_that_is_the_derivative_changes_nothing(f: Any, word: str) -> None:
    got, want = (fnx.tree.leaves(WORDS[word](g)(X, 2.0)) for g in (f, product))
    assert len(got) == len(want)
    for a, b in zip(got, want):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@BOTH
def test_in_loops_and_branches(f: Any) -> None:
    def scanned(f: Any, x: Any, y: Any) -> Any:
        return fnx.lax.scan(lambda c, x: (f(c, x), f(x, c)), y, x)[1].sum()

    def branched(f: Any, x: Any, y: Any) -> Any:
        return fnx.lax.cond(y > 0, lambda: f(y, x[0]), lambda: y)

    for program in (scanned, branched):
        def of(f: Any) -> Any:
            return lambda x, y: program(f, x, y)
        np.testing.assert_allclose(of(f)(jnp.asarray(X), 2.0), of(product)(jnp.asarray(X), 2.0),
                                   rtol=1e-5)


@pytest.mark.cases(1)
@pytest.mark.parametrize("loop", ["while", "scan", "lanes"])
def test_loops_that_read_a_tangent_in_each_step(loop: str) -> None:
    """The transpose of a rule passes no tangent to the backward pass of its loops."""
    def again(x: Any) -> Any:
        return fnx.lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, jnp.sin(x)),
                                  (0, 0 * x))[1]

    def scanned(x: Any) -> Any:
        return fnx.lax.scan(lambda c, _: (c * jnp.sin(x), c), jnp.ones_like(x), None, length=3)[0]

    f = {"while": again, "scan": scanned, "lanes": fnx.vmap(again)}[loop]
    ruled = fnx.custom_jvp(f)
    ruled.defjvp(lambda primals, tangents: fnx.jvp(f, primals, tangents))
    got, want = (fnx.grad(lambda x, g=g: g(x).sum())(X) for g in (ruled, f))
    np.testing.assert_allclose(got, want, rtol=1e-6)
    got, want = (fnx.jit(fnx.hessian(lambda x, g=g: g(x).sum()))(X) for g in (ruled, f))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


# ---- the rule decides, not the function ---------------------------------------------------------


def test_the_rule_and_not_the_function_is_the_derivative() -> None:
    @fnx.custom_jvp
    def f(x: Any) -> Any:
        return x * x
    f.defjvp(lambda primals, tangents: (f(*primals), 10.0 * tangents[0]))

    @fnx.custom_vjp
    def g(x: Any) -> Any:
        return x * x
    g.defvjp(lambda x: (g(x), None), lambda saved, ct: (10.0 * ct,))
    for h in (f, g, fnx.jit(f), fnx.jit(g)):
        assert float(fnx.grad(h)(3.0)) == 10
        assert float(fnx.jvp(h, (3.0,), (1.0,))[1]) == 10
        assert float(h(3.0)) == 9
        np.testing.assert_array_equal(fnx.vmap(fnx.grad(h))(X), np.full(4, 10.0))


def test_defjvps_adds_what_the_arguments_do() -> None:
    @fnx.custom_jvp
    def f(x: Any, y: Any, z: Any) -> Any:
        return x * y + z
    f.defjvps(lambda t, ans, x, y, z: 2 * t * y, None, lambda t, ans, x, y, z: t * ans)
    found = fnx.grad(f, (0, 1, 2))(2.0, 3.0, 1.0)
    assert [float(g) for g in found] == [6, 0, 7]


def test_static_arguments_come_first() -> None:
    @functools_partial(fnx.custom_jvp, nondiff_argnums=(0, 2))
    def apply(g: Any, x: Any, n: Any) -> Any:
        return g(x) * n

    @apply.defjvp
    def rule(g: Any, n: Any, primals: Any, tangents: Any) -> Any:
        return apply(g, primals[0], n), tangents[0] * n * 100

    @functools_partial(fnx.custom_vjp, nondiff_argnums=(0,))
    def power(n: Any, x: Any) -> Any:
        return x ** n
    power.defvjp(lambda n, x: (power(n, x), x), lambda n, x, ct: (n * x ** (n - 1) * ct,))
    assert float(fnx.grad(lambda x: apply(jnp.sin, x, 3))(1.0)) == 300
    assert float(fnx.grad(lambda x: apply(jnp.sin, x, n=2))(1.0)) == 200
    assert float(fnx.grad(power, 1)(3, 2.0)) == 12
    assert float(fnx.jit(fnx.grad(lambda x: power(x=x, n=2)))(2.0)) == 4


def functools_partial(decorator: Any, **options: Any) -> Any:
    return lambda f: decorator(f, **options)


def test_trees_and_none() -> None:
    @fnx.custom_vjp
    def f(p: Any, n: Any) -> Any:
        return {"y": p["w"] * p["b"][0], "n": n + 1}

    def bwd(saved: Any, ct: Any) -> Any:
        assert ct["n"].dtype == np.dtype([("float0", np.void, 0)])
        return {"w": ct["y"] * saved[0], "b": None}, None
    f.defvjp(lambda p, n: (f(p, n), (p["b"][0], [n])), bwd)
    p = {"w": jnp.asarray(2.0), "b": (jnp.asarray(3.0),)}
    got = fnx.grad(lambda p: f(p, 4)["y"] * 10)(p)
    assert float(got["w"]) == 30 and float(got["b"][0]) == 0
    assert int(f(p, 4)["n"]) == 5
    _, tangent = fnx.jvp(lambda p: f(p, 4)["y"], (p,), (p,))
    assert float(tangent) == 6


def test_integers_and_bools() -> None:
    float0 = np.dtype([("float0", np.void, 0)])

    @fnx.custom_jvp
    def f(x: Any, n: Any) -> Any:
        return x * n, n + 1

    @f.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        assert tangents[1].dtype == float0
        out = f(*primals)
        return out, (tangents[0] * primals[1], np.zeros((), float0))
    assert float(fnx.grad(lambda x: f(x, 3)[0])(2.0)) == 3
    _, (t, none) = fnx.jvp(lambda x: f(x, 3), (2.0,), (1.0,))
    assert float(t) == 3 and none.dtype == float0


# ---- captured values ----------------------------------------------------------------------------


def test_rules_close_over_tracers() -> None:
    def outer(x: Any, w: Any) -> Any:
        w = fnx.lax.stop_gradient(w)

        @fnx.custom_vjp
        def f(x: Any) -> Any:
            return x * w
        f.defvjp(lambda x: (f(x), None), lambda saved, ct: (ct * w * w,))
        return f(x)
    assert float(fnx.grad(outer)(2.0, 3.0)) == 9
    assert float(fnx.jvp(lambda x: outer(x, 3.0), (2.0,), (1.0,))[1]) == 9
    np.testing.assert_allclose(fnx.vmap(fnx.grad(outer))(X, X), X * X, rtol=1e-6)
    np.testing.assert_allclose(fnx.jit(fnx.vmap(fnx.grad(outer), (None, 0)))(1.0, X), X * X,
                               rtol=1e-6)


def test_a_capture_of_a_rule_alone_is_there_for_the_second_derivative() -> None:
    def outer(x: Any, scale: Any) -> Any:
        @fnx.custom_jvp
        def f(x: Any) -> Any:
            return jnp.sin(x)

        @f.defjvp
        def rule(primals: Any, tangents: Any) -> Any:
            return f(*primals), tangents[0] * f(*primals) * scale
        return f(x)
    x, scale = 0.5, 3.0
    assert float(fnx.grad(outer)(x, scale)) == pytest.approx(scale * np.sin(x))
    second = fnx.jit(fnx.grad(fnx.grad(outer)))(x, scale)
    assert float(second) == pytest.approx(scale * scale * np.sin(x))
    mixed = fnx.grad(fnx.grad(outer), 1)(x, scale)
    assert float(mixed) == pytest.approx(np.sin(x))


def test_a_derivative_in_what_is_closed_over_is_refused() -> None:
    def outer(w: Any) -> Any:
        @fnx.custom_jvp
        def f(x: Any) -> Any:
            return x * w
        f.defjvp(lambda primals, tangents: (f(*primals), tangents[0] * w))
        return f(2.0)
    for derivative in (fnx.grad(outer), lambda w: fnx.jvp(outer, (w,), (1.0,))):
        with pytest.raises(GradError, match="closes over(.|\\n)*as an argument"):
            derivative(3.0)
    assert float(fnx.jit(outer)(3.0)) == 6


def test_a_derivative_in_what_is_closed_over_that_nobody_reads_is_not_refused(
        capsys: pytest.CaptureFixture[str]) -> None:
    def outer(w: Any) -> Any:
        @fnx.custom_jvp
        def f(x: Any) -> Any:
            fnx.debug.print("at {}", x)
            return x * w
        f.defjvp(lambda primals, tangents: (f(*primals), tangents[0] * w))
        f(w)
        return w * w
    for derivative in (fnx.grad(outer), lambda w: fnx.jvp(outer, (w,), (1.0,))[1]):
        assert float(derivative(3.0)) == 6
        assert set(capsys.readouterr().out.splitlines()) == {"at 3.0"}


def test_a_rebound_global_of_a_rule_is_seen() -> None:
    scale = 2.0

    @fnx.custom_jvp
    def f(x: Any) -> Any:
        return x

    @f.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        return f(*primals), tangents[0] * scale
    slope = fnx.jit(fnx.grad(f))
    assert float(slope(1.0)) == 2
    scale = 5.0
    assert float(slope(1.0)) == 5


def test_two_functions_whose_rules_call_each_other() -> None:
    @fnx.custom_jvp
    def sine(x: Any) -> Any:
        return jnp.sin(x)

    @fnx.custom_jvp
    def cosine(x: Any) -> Any:
        return jnp.cos(x)
    sine.defjvp(lambda primals, tangents: (sine(*primals), cosine(*primals) * tangents[0]))
    cosine.defjvp(lambda primals, tangents: (cosine(*primals), -sine(*primals) * tangents[0]))
    d: Any = sine
    for want in (np.sin, np.cos, lambda x: -np.sin(x), lambda x: -np.cos(x), np.sin):
        assert float(d(0.7)) == pytest.approx(float(want(0.7)), rel=1e-5)
        np.testing.assert_allclose(fnx.jit(fnx.vmap(d))(X), want(X), rtol=1e-5)
        d = fnx.grad(d)


# ---- linear or not ------------------------------------------------------------------------------


def clipped() -> Any:
    @fnx.custom_vjp
    def clip_gradient(x: Any) -> Any:
        return x
    clip_gradient.defvjp(lambda x: (x, None), lambda saved, ct: (jnp.clip(ct, -1.0, 1.0),))
    return clip_gradient


def test_a_vjp_that_is_not_linear_serves_reverse_mode_only() -> None:
    f = clipped()
    assert float(fnx.grad(lambda x: 5 * f(x))(2.0)) == 1
    with pytest.raises(GradError, match=r"test_rules.py:\d+: the vjp of clip_gradient: "
                       "expected a function that is linear.* M[AI]"):
        fnx.jvp(f, (2.0,), (1.0,))


def test_a_jvp_that_is_not_linear_serves_forward_mode_only() -> None:
    @fnx.custom_jvp
    def f(x: Any) -> Any:
        return x
    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0] ** 2))
    assert float(fnx.jvp(f, (2.0,), (3.0,))[1]) == 9
    with pytest.raises(GradError, match="the jvp of f: expected a function that is linear.* MUL"):
        fnx.grad(f)(2.0)


def test_a_structural_zero_meets_no_infinite_slope() -> None:
    @fnx.custom_jvp
    def root(x: Any) -> Any:
        return jnp.sqrt(x)

    @root.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        y = root(*primals)
        return y, tangents[0] / (2 * y)
    found = fnx.grad(lambda x: jnp.where(x > 0, root(x), 0.0))(0.0)
    assert float(found) == 0


# ---- rules that do not match the function -------------------------------------------------------


def test_a_rule_that_is_missing() -> None:
    f = fnx.custom_jvp(lambda x: x)
    g = fnx.custom_vjp(lambda x: x)
    with pytest.raises(RuleError, match="expected rules .*custom_jvp(.|\\n)*defjvp"):
        f(1.0)
    with pytest.raises(RuleError, match="expected rules .*custom_vjp(.|\\n)*defvjp"):
        fnx.grad(g)(1.0)


@pytest.mark.parametrize(("rule", "says"), [
    (lambda p, t: p[0], "to return a pair .result, tangent., got Array"),
    (lambda p, t: (p[0], t[0], t[0]), "a pair .result, tangent., got tuple of 3"),
    (lambda p, t: ((p[0],), t[0]), "results like the function, \\*, got"),
    (lambda p, t: (p[0].astype("int32"), t[0]), r"like the function, float32\[\], got int32\[\]"),
    (lambda p, t: (p[0], (t[0],)), "tangents like the results"),
    (lambda p, t: (p[0], jnp.ones(3)), r"tangent like the result, float32\[\], got float32\[3\]"),
    (lambda p, t: (p[0], "no"), "an array as tangent, got str"),
])
def test_a_jvp_that_returns_what_does_not_fit(rule: Any, says: str) -> None:
    f = fnx.custom_jvp(lambda x: x * 1)
    f.defjvp(rule)
    with pytest.raises(RuleError, match=f"the jvp rule <lambda> .*test_rules.py:.*{says}"):
        fnx.grad(f)(1.0)


@pytest.mark.parametrize(("fwd", "bwd", "says"), [
    (lambda x, p: x, lambda s, ct: (ct, None), "fwd rule .*a pair .result, saved., got Array"),
    (lambda x, p: (x, "s"), lambda s, ct: (ct, None), "arrays in what it saves, at saved, got str"),
    (lambda x, p: ((x, x), 1), lambda s, ct: (ct, None), "results like the function"),
    (lambda x, p: (x, 1), lambda s, ct: ct, "bwd rule .*a tuple of 2.*got Array"),
    (lambda x, p: (x, 1), lambda s, ct: (ct,), "a tuple of 2.*got tuple of 1"),
    (lambda x, p: (x, 1), lambda s, ct: (jnp.ones(2), None), r"cotangent\[0\] like the argument, "
     r"float32\[\], got float32\[2\]"),
    (lambda x, p: (x, 1), lambda s, ct: (None, {"b": ct}), r"cotangent\[1\] like the argument, "
     r"\{'a': \*\}, got .*'b'"),
    (lambda x, p: (x, 1), lambda s, ct: (None, {"a": ct.astype("float64")}),
     r"cotangent\[1\]\['a'\] like the argument, float32\[\], got float64"),
])
def test_a_vjp_that_returns_what_does_not_fit(fwd: Any, bwd: Any, says: str) -> None:
    f = fnx.custom_vjp(lambda x, p: x * p["a"])
    f.defvjp(fwd, bwd)
    with pytest.raises(RuleError, match=f"test_rules.py:.*{says}"):
        fnx.grad(f)(1.0, {"a": 2.0})


def test_arguments() -> None:
    with pytest.raises(ArgumentError, match="expected a function, got int"):
        fnx.custom_jvp(3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="nondiff_argnums below 1"):
        fnx.custom_vjp(lambda x: x, nondiff_argnums=(1,))
    with pytest.raises(ArgumentError, match="nondiff_argnames among x"):
        fnx.custom_vjp(lambda x: x, nondiff_argnames=("y",))
    with pytest.raises(ArgumentError, match="arguments for x, y, got 3 by position\n"):
        with_jvp(1.0, 2.0, 3.0)  # type: ignore[call-arg]
    with pytest.raises(ArgumentError, match="arguments for x, y, got 'z' by name"):
        with_jvp(1.0, z=2.0)
    with pytest.raises(ArgumentError, match="expected an argument y"):
        with_jvp(1.0)
    assert float(with_jvp(y=2.0, x=0.0)) == 0


def test_the_tangent_of_an_integer_is_what_jvp_says() -> None:
    """A rule may return ``jvp``'s tangents: float0 for results that are not floats."""
    @fnx.custom_jvp
    def f(x: Any) -> Any:
        return {"twice": x * 2, "index": jnp.argmax(x)}

    f.defjvp(lambda primals, tangents: fnx.jvp(
        lambda x: {"twice": x * 2, "index": jnp.argmax(x)}, primals, tangents))
    x = jnp.asarray([1.0, 3.0])
    assert fnx.jit(f)(x)["index"] == 1
    assert fnx.jvp(f, (x,), (x,))[1]["twice"].tolist() == [2.0, 6.0]
    numbers = jnp.asarray([1, 3])
    assert fnx.jit(f)(numbers)["twice"].tolist() == [2, 6]


def test_a_result_that_is_a_tangent_of_integers() -> None:
    """If a function returns float0, its rule's tangents contain float0 there too."""
    def f(x: Any) -> Any:
        return fnx.jvp(lambda x: (x * 2, x.astype(int)), (x,), (x,))[1]

    ruled = fnx.custom_jvp(f)
    ruled.defjvp(lambda primals, tangents: fnx.jvp(f, primals, tangents))
    for word in (fnx.jit, lambda f: lambda x: fnx.jvp(f, (x,), (x,))[1],
                 lambda f: fnx.grad(lambda x: f(x)[0].sum())):
        got, want = (fnx.tree.leaves(word(g)(jnp.asarray(X))) for g in (ruled, f))
        np.testing.assert_array_equal(got, want)


def test_a_rule_for_batches_is_given_through_one_for_derivatives() -> None:
    @fnx.custom_vjp
    @fnx.custom_batching.custom_vmap
    def f(x: Any) -> Any:
        return jnp.sin(x)

    @f.def_vmap
    def rule(axis_size: int, in_batched: Any, xs: Any) -> Any:
        return jnp.cos(xs), True

    f.defvjp(lambda x: (f(x), x), lambda x, g: (3 * g,))
    assert fnx.vmap(f)(jnp.zeros(2)).tolist() == [1, 1]
    assert float(fnx.grad(f)(0.0)) == 3
    with pytest.raises(AttributeError, match="'custom_vjp' object has no attribute 'defjpv'"):
        f.defjpv


def test_what_a_rule_applies_to_tangents_is_transposed() -> None:
    """It is linear already: its function is transposed, its own rule is not used."""
    @fnx.custom_jvp
    def double(x: Any) -> Any:
        return 2 * x
    double.defjvp(lambda primals, tangents: (double(*primals), double(*tangents)))

    @fnx.custom_jvp
    def triple(x: Any) -> Any:
        return 3 * x
    triple.defjvp(lambda primals, tangents: (triple(*primals), 100 * tangents[0]))

    @fnx.custom_jvp
    def square(x: Any) -> Any:
        return x * x
    square.defjvp(lambda primals, tangents: (square(*primals), fnx.jit(triple)(tangents[0])))
    for f, slope in ((double, 2.0), (square, 3.0)):
        assert fnx.grad(f)(5.0) == fnx.jvp(f, (5.0,), (1.0,))[1] == slope
        assert fnx.jit(fnx.grad(f))(5.0) == fnx.vmap(fnx.grad(f))(jnp.ones(2))[1] == slope
        assert fnx.grad(fnx.grad(f))(5.0) == 0.0
