"""Donated arguments are donated however they are named and passed."""

from __future__ import annotations

from typing import Any

import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.support.errors import DonatedError, StaticArgumentError


def step(p: Any, x: Any, *, state: Any = 0.0) -> Any:
    return p + x + state


@pytest.mark.parametrize("options", [{"donate_argnums": 0}, {"donate_argnames": "p"},
                                     {"donate_argnums": 0, "donate_argnames": "state"}])
@pytest.mark.parametrize("by_name", [False, True])
def test_whichever_way_it_is_passed(options: dict[str, Any], by_name: bool) -> None:
    f = fnx.jit(step, **options)
    for _ in range(4):  # by the general path, then by the fast path
        p, x, state = (jnp.full(3, v) for v in (1.0, 2.0, 3.0))
        out = f(x=x, p=p, state=state) if by_name else f(p, x, state=state)
        assert out.tolist() == [6.0] * 3
        assert p.is_deleted() and not x.is_deleted()
        assert state.is_deleted() == ("donate_argnames" in options and
                                      options["donate_argnames"] == "state")


def test_trees_by_keyword() -> None:
    f = fnx.jit(lambda **k: k["p"]["w"] * 2 + k["x"], donate_argnames="p")
    for _ in range(4):
        p, x = {"w": jnp.ones(3)}, jnp.ones(3)
        assert f(x=x, p=p).tolist() == [3.0] * 3
        assert p["w"].is_deleted() and not x.is_deleted()


def test_refusals() -> None:
    p = jnp.ones(3)
    with pytest.raises(DonatedError, match="arguments p and x"):
        fnx.jit(step, donate_argnames="p")(p=p, x=p)
    assert not p.is_deleted()
    with pytest.raises(StaticArgumentError, match="donate_argnames"):
        fnx.jit(step, donate_argnames="q")


def test_a_compiled_call() -> None:
    p, x = jnp.ones(3), jnp.ones(3)
    compiled = fnx.jit(step, donate_argnames="p").lower(x=x, p=p).compile()
    assert compiled(x=x, p=p).tolist() == [2.0] * 3 and p.is_deleted() and not x.is_deleted()
