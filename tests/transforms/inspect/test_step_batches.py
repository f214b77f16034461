"""``debug.step`` in loops whose conditions differ between the elements of a batch."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax

C = np.array([4, 2, 300, 0.5], np.float32)


def newton(c: Any) -> Any:
    def goes_on(s: Any) -> Any:
        r, i = s
        return (jnp.abs(r * r - c) > 1e-5) & (i < 30)

    def body(s: Any) -> Any:
        r, i = s
        r = r - jnp.log(1 + (r * r - c) / (2 * r))  # NaN for 300
        return r, i + 1
    return lax.while_loop(goes_on, body, (3.0, 0))


@pytest.mark.parametrize("batched", [fnx.vmap(newton), fnx.jit(fnx.vmap(newton)),
                                     fnx.vmap(fnx.jit(newton))])
def test_a_batched_body_has_its_lines(batched: Callable[[Any], Any]) -> None:
    with np.errstate(all="ignore"):
        step = fnx.debug.step(batched)(C).first_nan()
    assert step is not None and step.function == "body" and "log at [2]" in repr(step)
    assert "iteration 0 of while_loop" in repr(step)
    steps = [s for s in fnx.debug.step(batched)(C[:2]) if s.function == "body"]
    assert steps[-1].loops[-1].number > 2


def test_derivatives_of_a_batch_end() -> None:
    """Equal graphs are one FUNCTION: a form derived from it was taken for its own origin."""
    def total(c: Any) -> Any:
        return fnx.vmap(newton)(c)[0].sum()
    steps = list(itertools.islice(fnx.debug.step(fnx.grad(total))(C[:2]), 500))
    assert 10 < len(steps) < 500


def test_a_constant_that_is_not_chosen_is_no_nan() -> None:
    def look(x: Any, i: Any) -> Any:
        return jnp.take_along_axis(x, i[:, None], axis=1)[:, 0].sum()
    x = np.ones((3, 4), np.float32)
    assert fnx.debug.step(look)(x, np.array([0, 1, 2])).first_nan() is None
    assert fnx.debug.step(look)(x, np.array([0, 1, 9])).first_nan() is not None
