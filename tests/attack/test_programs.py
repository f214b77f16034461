"""A bounded run of the attack with random programs, and that it reaches every function."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

import fnx.lax as lax
import fnx.nn as nn
import fnx.numpy as jnp
import fnx.random as random
from tests.attack import dimensions
from tests.attack.calls import CALLS, DESCRIBE
from tests.attack.programs import attack, program_of


@pytest.mark.parametrize(("name", "module"), [("jnp", jnp), ("lax", lax), ("nn", nn),
                                              ("random", random)])
def test_every_public_function_is_called(name: str, module: Any) -> None:
    text = " ".join(call.text for call in CALLS)
    functions = {f for f in module.__all__ if callable(getattr(module, f))
                 and not isinstance(getattr(module, f), type)}
    missing = {f for f in functions - DESCRIBE if not re.search(rf"\b{name}\.{f}\(", text)}
    assert not {f for f in missing if not hasattr(getattr(module, f), "dtype")}


def test_programs_mean_the_same_in_every_way() -> None:
    counts, wrong = attack(first=0, count=10, seconds=20)
    print(dict(counts))
    assert not wrong
    assert counts["differentiated"] + counts["ran"] > counts["refused"]


def test_a_seed_is_a_program() -> None:
    assert repr(program_of(7)) == repr(program_of(7)) != repr(program_of(8))


def test_programs_of_dynamic_lengths_mean_the_same() -> None:
    counts = Counter(map(dimensions.check, range(1000, 1006)))
    print(dict(counts))
    assert counts["equal"] > counts.total() // 2
