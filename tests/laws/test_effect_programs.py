"""Random programs with effects under every composition of transforms (effect_programs.py)."""

from __future__ import annotations

import random

import pytest

from fnx.core.support.config import override
from fnx.core.support.errors import GradError
from tests.laws.device import MACHINE
from tests.laws.effect_programs import WORDS, Program, check, program, refused

FOUND: list[tuple[Program, str]] = [
    # a copy was sunk together with a loop, past an earlier effect
    ([("checkpoint", 0, [("vjp", "w"), ("scan", 2, [("vjp", "v")])])], "jit grad"),
    # a loop whose values only effects read was recomputed, with its effects
    ([("scan", 2, [("io", "i"), ("vjp", "v")])], "grad grad"),
    # the states of a loop with per-element exit had tokens
    ([("until", 2, [("say", "a"), ("op", "halve")])], "vmap grad"),
    ([("say", "b"), ("until", 3, [("fori", 3, [("say", "a"), ("op", "halve")])])], "vmap grad"),
    # the backward pass of a loop ran the function instead of its fwd
    ([("while", 2, [("vjp", "v"), ("say", "a")])], "grad"),
]


@pytest.mark.cases(2)
@pytest.mark.parametrize("device", ["interp", MACHINE])
@pytest.mark.parametrize("i", range(len(FOUND)))
def test_programs_that_were_wrong(i: int, device: str) -> None:
    with override(device=device):
        check(*FOUND[i])


@pytest.mark.cases(1)
@pytest.mark.parametrize("seed", range(100, 110))
def test_each_effect_once_in_order_and_the_same_bits(seed: int) -> None:
    rng = random.Random(seed)
    prog = program(rng, rng.randint(2, 4))
    for word in rng.sample(list(WORDS), 4):
        with override(device="interp"):
            try:
                check(prog, word)
            except GradError as e:
                if not refused(e):
                    raise
