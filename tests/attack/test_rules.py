"""Wrong custom rules are reported, or have the meaning of their numbers (tests/attack/rules.py)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.support.errors import RuleError
from tests.attack.rules import fault


@pytest.mark.parametrize("part", range(4))
def test_wrong_rules(part: int) -> None:
    ways = [fault(seed) for seed in range(part * 9, part * 9 + 9)]
    assert not [said for _, said in ways if said], ways


def test_a_rule_that_makes_its_arrays_anew() -> None:
    """The rule is traced again when it calls its function: equal arrays are one capture, while
    changing ones would recurse forever."""
    numbers = np.arange(3, dtype=np.float32)

    @fnx.custom_jvp
    def f(x: Any) -> Any:
        return x * jnp.asarray(numbers)

    @f.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        return f(*primals), tangents[0] * jnp.asarray(numbers + 1)
    np.testing.assert_array_equal(fnx.jit(lambda x: fnx.jvp(f, (x,), (x,)))(jnp.ones(3))[1],
                                  numbers + 1)
    rng = np.random.default_rng(0)
    f.defjvp(lambda p, t: (f(*p), t[0] * jnp.asarray(rng.normal(size=3).astype("f4"))))
    with pytest.raises(RuleError, match="the rules of f to close over the same arrays each time"):
        fnx.jit(lambda x: fnx.jvp(f, (x,), (x,)))(jnp.ones(3))
