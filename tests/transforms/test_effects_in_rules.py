"""Effects in user-defined rules: those of the backward pass follow those of the forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.support.config import override
from fnx.core.support.errors import GradError

X = np.arange(1.0, 4.0, dtype=np.float32)
LOG: list[Any] = []


@pytest.fixture(params=["interp", "cpu"], autouse=True)
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    with override(device=request.param):
        LOG.clear()
        yield request.param


def taken() -> list[Any]:
    fnx.effects_barrier()
    seen = LOG[:]
    LOG.clear()
    return seen


def say(what: str, x: Any) -> None:
    fnx.debug.callback(lambda x: LOG.append((what, np.asarray(x).tolist())), x)


def loud(name: str, in_primal: bool = False, in_fwd: bool = False) -> Callable[[Any], Any]:
    """Return 3 * x with a pullback that reports what it is called with."""
    def f(x: Any) -> Any:
        if in_primal:
            say(f"{name} primal", x)
        return 3 * x

    def fwd(x: Any) -> Any:
        if in_fwd:
            say(f"{name} fwd", x)
        return 3 * x, x

    def bwd(x: Any, ct: Any) -> Any:
        say(f"{name} x", x)
        say(f"{name} ct", ct)
        return (3 * ct,)

    rule = fnx.custom_vjp(f)
    rule.defvjp(fwd, bwd)
    return rule


A, B = loud("a"), loud("b", in_primal=True, in_fwd=True)


def chain(x: Any) -> Any:
    return B(A(x) * 2)


BACK = [("b fwd", 6.0), ("b x", 6.0), ("b ct", 1.0), ("a x", 1.0), ("a ct", 6.0)]


@pytest.mark.cases(14)
@pytest.mark.parametrize("g", [
    fnx.grad(chain), fnx.jit(fnx.grad(chain)), fnx.grad(fnx.jit(chain)), fnx.jacrev(chain),
    lambda x: fnx.value_and_grad(chain)(x)[1], lambda x: fnx.vjp(chain, x)[1](1.0)[0],
    fnx.jit(lambda x: fnx.vjp(chain, x)[1](1.0)[0]), fnx.grad(fnx.checkpoint(chain)),
    fnx.grad(fnx.call(chain)),
    fnx.grad(lambda x: lax.cond(x > 0, chain, lambda x: x, x)),
    fnx.grad(lambda x: lax.scan(lambda c, _: (chain(c), None), x, None, length=1)[0]),
    fnx.grad(lambda x: lax.while_loop(lambda c: c[1] < 1, lambda c: (chain(c[0]), c[1] + 1),
                                      (x, 0))[0])])
def test_each_once_in_order(g: Any) -> None:
    assert g(1.0) == 18
    assert taken() == BACK


def test_nothing_is_said_without_a_backward_pass() -> None:
    assert chain(1.0) == 18
    assert taken() == [("b primal", 6.0)]
    assert fnx.jvp(chain, (1.0,), (1.0,))[1] == 18
    assert taken() == [("b fwd", 6.0)]


def test_independent_ones_in_the_reverse_of_the_order_of_the_program() -> None:
    c, d = loud("c"), loud("d")
    for order in ((c, d), (d, c)):
        fnx.grad(lambda x: sum(f(x) for f in order))(1.0)
        assert [w for w, _ in taken() if w.endswith("ct")] == \
            [f"{'dc'[order[0] is d]} ct", f"{'cd'[order[0] is d]} ct"]


def test_a_scan_goes_back() -> None:
    def f(x: Any) -> Any:
        return lax.scan(lambda c, x: (A(c) + x, c), 1.0, x)[0]

    for g in (fnx.grad(f), fnx.jit(fnx.grad(f)), fnx.grad(fnx.checkpoint(f)),
              fnx.grad(lambda x: lax.scan(lambda c, x: (A(c) + x, c), 1.0, x, checkpoint=2)[0])):
        np.testing.assert_array_equal(g(X), [9, 3, 1])
        assert [v for w, v in taken() if w == "a ct"] == [1, 3, 9]


def test_lanes_in_order() -> None:
    each = [("a x", float(x)) for x in X]
    for g, cts in ((fnx.vmap(fnx.grad(A)), 1), (fnx.jit(fnx.vmap(fnx.grad(A))), 1),
                   (fnx.grad(lambda x: fnx.vmap(A)(x).sum()), 3)):
        np.testing.assert_array_equal(g(X), [3, 3, 3])
        assert taken() == [*each, *[("a ct", 1.0)] * cts], "what all lanes share is said once"


def test_the_gradient_of_a_gradient() -> None:
    f = loud("f")
    again = fnx.custom_vjp(lambda x: 3 * x)
    again.defvjp(lambda x: (again(x), None), lambda _, ct: (say("again", ct), (3 * ct,))[1])

    assert fnx.grad(fnx.grad(lambda x: f(x) ** 3))(1.0) == 162
    assert taken() == [("f x", 1.0), ("f ct", 27.0)]
    assert fnx.grad(fnx.grad(lambda x: again(x) ** 3))(1.0) == 162
    assert taken() == [("again", 27.0), ("again", 54.0)]


def test_a_pullback_says_it_at_each_call() -> None:
    _, pull = fnx.vjp(A, 2.0)
    assert taken() == []
    pull(1.0)
    pull(5.0)
    assert taken() == [("a x", 2.0), ("a ct", 1.0), ("a x", 2.0), ("a ct", 5.0)]
    assert fnx.vmap(pull)(X)[0].tolist() == [3, 6, 9]
    assert taken() == [("a x", 2.0), *[("a ct", float(x)) for x in X]]


def test_solvers() -> None:
    def solve(matvec: Any, b: Any) -> Any:
        say("solve", b)
        return b / matvec(jnp.ones_like(b))

    def f(a: Any, b: Any) -> Any:
        return lax.custom_linear_solve(lambda x: a * x, b, solve, symmetric=True)

    assert fnx.grad(f, 1)(2.0, 3.0) == 0.5
    assert taken() == [("solve", 3.0), ("solve", 1.0)]

    def root(a: Any) -> Any:
        return lax.custom_root(lambda x: x * x - a, 1.0,
                               lambda f, x: (say("root", x), jnp.sqrt(a))[1],
                               lambda g, y: (say("tangent", y), y / g(1.0))[1])

    assert fnx.jvp(root, (4.0,), (1.0,))[1] == 0.25
    assert [w for w, _ in taken()] == ["root", "tangent"]


def test_a_rule_of_a_tangent_cannot_say_it_in_reverse_mode() -> None:
    @fnx.custom_jvp
    def f(x: Any) -> Any:
        return 2 * x

    @f.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        say("t", tangents[0])
        return 2 * primals[0], 2 * tangents[0]

    assert fnx.jvp(f, (1.0,), (3.0,))[1] == 6
    assert taken() == [("t", 3.0)]
    with pytest.raises(GradError, match="effects that read no tangent"):
        fnx.grad(f)(1.0)


@pytest.mark.cases(1)
def test_lanes_that_choose_have_effects_of_their_own_branch() -> None:
    def f(x: Any) -> Any:
        return lax.cond(x > 1.5, A, lambda x: x, x)

    for g in (fnx.vmap(fnx.grad(f)), fnx.jit(fnx.vmap(fnx.grad(f))),
              fnx.grad(lambda x: fnx.vmap(f)(x).sum())):
        np.testing.assert_array_equal(g(X), [1, 3, 3])
        assert taken() == [("a x", 2.0), ("a x", 3.0), ("a ct", 1.0), ("a ct", 1.0)]
