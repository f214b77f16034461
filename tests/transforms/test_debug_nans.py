"""``config.check``: reports the op, line, iteration and index that produced a NaN."""

from __future__ import annotations

import inspect
import linecache
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.kernel as k
import fnx.numpy as jnp
from fnx import lax
from fnx.core.support.config import override

X = np.array([1.0, -1.0, 2.0], np.float32)
M = np.array([[1.0, 2.0], [3.0, -4.0]], np.float32)


@pytest.fixture(params=["interp", "cpu"], autouse=True)
def device(request: pytest.FixtureRequest) -> Iterator[None]:
    with override(device=request.param, check="nan"):
        yield


def counts_down(c: Any, x: Any) -> Any:
    c = c - 1.0
    return c, jnp.log(c) + x  # the line of the scan


def carries(c: Any, x: Any) -> Any:
    return jnp.sqrt(c - 1.0) + x, None


def nested(c: Any, x: Any) -> Any:
    out, _ = lax.scan(carries, c, jnp.zeros(2))
    return out, x


def composed(x: Any) -> Any:
    y = x + 1
    return jnp.log10(y)  # the line of the call


def chosen(x: Any) -> Any:
    return 2 * jnp.arccosh(x)


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "eager": (jnp.log, (X,), r"log at \[1\]"),
    "jit": (fnx.jit(lambda x: (jnp.log(x) * 2).sum()), (X,), r"log at \[1\]"),
    "function of several ops": (fnx.jit(composed), (X * 2,), r"from log10 at \[1\] \(log of -1\)"),
    "function that chooses": (fnx.jit(chosen), (X,), r"from arccosh at \[1\]\n"),
    "function of a function": (fnx.jit(fnx.nn.log_softmax), (X * np.inf,),
                               r"from log_softmax at \[0\] \(sub of inf and inf\)"),
    "no elements": (jnp.mean, (X[:0],), "mean: expected no NaN, got nan from mean\n"),
    "bfloat16": (jnp.sqrt, (jnp.asarray(-X, "bfloat16"),), r"sqrt at \[0\] of -1"),
    "written": (fnx.jit(lambda x: jnp.full(3, np.nan) * x), (X,), r"from full at \[0\]\n"),
    "in a derivative": (fnx.jit(fnx.grad(lambda x: jnp.linalg.norm(x * 0) + jnp.sqrt(x).sum() * 0)),
                        (X * 0,), "in the derivative of sqrt"),
    "two axes": (fnx.jit(lambda x: jnp.sqrt(x) + 1), (M,), r"sqrt at \[1, 1\]"),
    "grad": (fnx.jit(fnx.grad(lambda x: (jnp.sqrt(x) * 0).sum())), (np.zeros(2, np.float32),),
             r"div at \[0\]"),
    "scan": (fnx.jit(lambda x: lax.scan(counts_down, 2.5, x)), (X,),
             r"log of -[0-9.]+, in iteration 2 of scan of counts_down \(.*\)"),
    "reverse": (fnx.jit(lambda x: lax.scan(counts_down, 2.5, x, reverse=True)), (X,),
                r"log of -[0-9.]+, in iteration 0 of scan of counts_down"),
    "carry": (fnx.jit(lambda x: lax.scan(carries, 3.0, x)[0]), (X * 0,),
              r"sqrt of -[0-9.]+, in iteration 2 of scan of carries"),
    "nested": (fnx.jit(lambda x: lax.scan(nested, 5.0, x)[0]), (X,),
               r"sqrt of -[0-9.]+, in iteration 1 of scan of carries \(.*\), "
               r"in iteration 1 of scan of nested"),
    "while": (fnx.jit(lambda x: lax.while_loop(lambda c: c[0] < 5, lambda c: (
        c[0] + 1, jnp.sqrt(c[1] - 1.0)), (0, x))), (1.5,),
              r"sqrt of -[0-9.]+, in iteration 1 of while_loop of"),
    "cond": (fnx.jit(lambda x: lax.cond(x[0] > 0, jnp.log, lambda y: y, x)), (X,), r"log at \[1\]"),
    "vmap": (fnx.vmap(jnp.log), (X,), r"log at \[1\]"),
    "vmap of scan": (fnx.vmap(lambda x: lax.scan(carries, x, jnp.zeros(2))[0]), (X + 2,),
                     r"sqrt at \[1\] of -[0-9.]+, in iteration 1 of scan of carries"),
    "argument": (fnx.jit(lambda x: x + 1), (np.full(3, np.nan, np.float32),),
                 r"argument 0 at \[0\]"),
    "callback": (fnx.jit(lambda x: fnx.pure_callback(
        lambda v: np.where(np.asarray(v) > 0, v, np.float32("nan")), x, x) + 1), (X,),
        r"pure_callback of <lambda>|pure_callback at \[1\]"),
}


@pytest.mark.cases(14)
@pytest.mark.parametrize("name", CASES)
def test_the_origin_is_named(name: str) -> None:
    f, args, said = CASES[name]
    with np.errstate(all="ignore"), pytest.raises(FloatingPointError, match=said) as e:
        f(*args)
    assert re.match(r".*test_debug_nans.py:\d+: ", str(e.value))


def test_the_line_is_that_of_the_op() -> None:
    lines, start = inspect.getsourcelines(counts_down)
    line = start + next(i for i, text in enumerate(lines) if "the line of the scan" in text)
    with pytest.raises(FloatingPointError, match=rf"test_debug_nans.py:{line}: "):
        fnx.jit(lambda x: lax.scan(counts_down, 1.5, x))(X)


@pytest.mark.cases(4)
@pytest.mark.parametrize("transform", [
    lambda f: fnx.grad(fnx.checkpoint(f)), fnx.grad, fnx.jacfwd, lambda f: fnx.vmap(fnx.grad(f))])
def test_of_equal_graphs_the_line_is_that_of_the_function(transform: Any) -> None:
    """Nodes derived from a node that several functions share carry all of their lines."""
    def roots(x: Any) -> Any:
        return jnp.exp(jnp.sqrt(x)).sum()  # the line of the function

    x = np.array([1, -1, 2], np.float32)
    for other in (jnp.sqrt, fnx.jit(lambda x: jnp.sqrt(x) + 1), fnx.vmap(lambda x: jnp.sqrt(x))):
        with pytest.raises(FloatingPointError):
            other(x)
    line = inspect.getsourcelines(roots)[1] + 1
    x = np.stack([x, x]) if transform(roots).__name__.startswith("vmap") else x
    for g in (transform(roots), fnx.jit(transform(roots))):
        with pytest.raises(FloatingPointError, match=rf"test_debug_nans.py:{line}: .* from sqrt"):
            g(x)


def test_a_hand_written_kernel_is_named() -> None:
    @fnx.call(out=lambda x: x)
    def logarithm(x: Any, o: Any) -> None:
        i = k.range(x.shape[0])
        o[i] = k.log(x[i])

    for f in (logarithm, fnx.jit(lambda x: logarithm(x) * 2),
              fnx.vmap(lambda x: logarithm(x[None]))):
        with pytest.raises(fnx.errors.NotFiniteError,
                           match=r"nan from log in kernel logarithm at \[1.*\] of -1") as caught:
            f(X)
        assert caught.value.loc and "k.log(x[i])" in linecache.getline(*caught.value.loc)
    with pytest.raises(FloatingPointError, match=r"log at \[1\]"):
        fnx.jit(lambda x: logarithm(jnp.log(x)))(X)


def test_what_was_not_chosen_is_not_blamed() -> None:
    f = fnx.jit(lambda x: jnp.where(x > 0, jnp.log(x), 0.0) * 2)
    np.testing.assert_allclose(f(X), np.array([0, 0, 2 * np.log(2)]), rtol=1e-6)
    g = fnx.jit(lambda x: jnp.where(x > 0, jnp.log(x), 0.0) + jnp.where(x > 1, jnp.sqrt(1 - x), 0))
    with pytest.raises(FloatingPointError, match=r"got nan from sqrt at \[2\]"):
        g(X)


def test_effects_do_not_take_place_again() -> None:
    seen: list[Any] = []
    f = fnx.jit(lambda x: (fnx.debug.callback(seen.append, x), jnp.log(x))[1])
    with pytest.raises(FloatingPointError, match="log"):
        f(X)
    fnx.effects_barrier()
    assert len(seen) == 1


def test_infinities() -> None:
    f = fnx.jit(lambda x: 1 / x)
    zero = np.zeros((), np.float32)
    assert f(zero) == np.inf
    with override(check="inf"), pytest.raises(FloatingPointError, match="got inf from div"):
        f(zero)
    with fnx.debug_infs(), pytest.raises(FloatingPointError, match="NaN or infinity, got inf"):
        f(zero)


def test_as_a_context() -> None:
    with override(check=""):
        assert np.isnan(fnx.jit(jnp.log)(-1.0))
        with fnx.debug_nans(), pytest.raises(FloatingPointError):
            fnx.jit(jnp.log)(-1.0)
        with fnx.debug_nans(False):
            jnp.log(-1.0)


def test_donated_arguments_are_read_again_and_stay() -> None:
    """The cause of a NaN is recomputed from the arguments, which the results may not overwrite."""
    step = fnx.jit(lambda w, x: w - 0.6 * fnx.grad(lambda w: jnp.sqrt(w - x).sum())(w),
                   donate_argnums=0)
    w, x = jnp.asarray([-0.25, 1.0]), jnp.zeros(2)
    for _ in range(2):  # the launcher of the second call, too
        with fnx.debug_nans(), pytest.raises(FloatingPointError, match="nan from sqrt at .0. of "
                                                                       "-0.25"):
            step(w, x)
        assert w[0] == -0.25
    w = jnp.ones(2)
    with fnx.debug_nans():
        step(w, x)
    assert w.is_deleted()


def masked_log(x: Any) -> Any:
    return jnp.where(x < -2, jnp.log(x), 0.0)


def masked_root(x: Any, y: Any) -> Any:
    r = jnp.where(jnp.arange(4) < 2, 0.0, jnp.sqrt(x))
    return (r * y).sum()


def pair(x: Any) -> Any:
    r = jnp.sqrt(((x[:, None] - x[None, :]) ** 2).sum(-1))
    return jnp.where(jnp.eye(len(x), dtype=bool), 0.0, 1 / (1 + r)).sum()


def remade(c: Any, x: Any) -> Any:
    return jnp.log(x), jnp.roll(c, 1)


POINTS = np.random.default_rng(0).normal(size=(5, 4, 3)).astype(np.float32)
POINTS[3, 1] = POINTS[3, 2]
HARMLESS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "where": (masked_log, (np.array([-1, 2, -3], np.float32),), r"log at \[2\] of -3"),
    "gradient": (fnx.grad(masked_root), (np.array([0, 1, 2, 0], np.float32),
                                         np.array([1, 1, 1, 0], np.float32)),
                 r"div at \[3\] of 0 and 0"),
    "pairs": (fnx.vmap(fnx.grad(pair)), (POINTS,), r"-inf from div at \[3, (1, 2|2, 1)\]"),
    "take, sum": (lambda x: jnp.log(x)[jnp.array([2, 1])].reshape(2, 1).sum(1), (X[::-1],),
                  r"log at \[1\] of -1"),
    "matmul": (lambda x: (jnp.log(x) @ jnp.ones(2))[1:], (-M,), r"log at \[1, 0\] of -3"),
    "scan": (lambda x: lax.scan(remade, jnp.zeros(3), x)[0][1:], (
        np.array([[1, 1, 1], [-2, 1, 1], [-3, 1, -4]], np.float32),),
        r"log at \[2\] of -4, in iteration 2 of"),
    "scan of carries": (lambda x: lax.scan(remade, x[0], x)[1][-1, 1:2], (
        np.array([[1, 1, 1], [-2, -1, 1], [-3, 1, -4]], np.float32),),
        r"log at \[0\] of -2, in iteration 1 of"),
}


@pytest.mark.cases(12)
@pytest.mark.parametrize("name", HARMLESS)
def test_the_element_named_reaches_the_result(name: str) -> None:
    f, args, said = HARMLESS[name]
    with np.errstate(all="ignore"), pytest.raises(FloatingPointError, match=said):
        fnx.jit(f)(*args)


@pytest.mark.cases(1)
def test_each_element_named_reaches_the_result() -> None:
    """Without the NaN at the index that is named, the result has another NaN, or none."""
    rng = np.random.default_rng(1)
    for _ in range(6):
        x = rng.choice([-1, 1, 2], (3, 4)).astype(np.float32)
        m, take = rng.random((4, 3)) < 0.5, rng.integers(0, 3, 4)

        def f(x: Any, m: Any = m, take: Any = take) -> Any:
            v = jnp.where(m, 0.0, jnp.log(x).T)[:, take]
            return jnp.cumsum(jnp.sort(v, axis=0), axis=1).sum(1)

        with override(check=""):
            before = np.isnan(fnx.jit(f)(x))
        if before.any():
            with pytest.raises(FloatingPointError, match=r"log at \[\d, \d\] of -1") as e:
                fnx.jit(f)(x)
            at = re.search(r"\[(\d), (\d)\]", str(e.value))
            assert at
            only = np.abs(x)
            only[int(at[1]), int(at[2])] = -1
            with override(check=""):
                assert np.isnan(fnx.jit(f)(only)).any()


def test_a_derivative_of_a_kernel_names_the_line_in_it() -> None:
    @fnx.call(out=lambda x: x)
    def root(x: Any, o: Any) -> None:
        i = k.range(x.shape[0])
        y = k.sqrt(x[i] - 1)
        o[i] = y * 2

    def loss(x: Any) -> Any:
        return (root(x) * jnp.array([1.0, 0.0])).sum()

    line = root.__wrapped__.__code__.co_firstlineno + 3
    for f, x in (fnx.grad(loss), [2.0, 1.0]), (fnx.grad(loss), [2.0, 0.0]), (loss, [2.0, 0.0]):
        with pytest.raises(FloatingPointError, match=rf"test_debug_nans\.py:{line}: "):
            fnx.jit(f)(jnp.array(x))
    with override(check=""):
        steps = str([*fnx.debug.step(fnx.grad(loss))(jnp.array([2.0, 1.0]))])
    assert "derivative of derivative" not in steps


def test_a_line_that_divides_comes_before_one_whose_derivative_does() -> None:
    def normalize(x: Any) -> Any:
        n = jnp.sum(x)
        u = x / n
        return jnp.exp(n) * u

    line, z = normalize.__code__.co_firstlineno + 2, jnp.zeros(3)
    for f in (fnx.jacrev(normalize), fnx.jit(fnx.jacrev(normalize)), fnx.jit(normalize),
              fnx.jit(fnx.grad(lambda x: normalize(x)[0]))):
        with pytest.raises(FloatingPointError, match=rf"test_debug_nans\.py:{line}: "):
            f(z)
