"""A few programs of both attacks; tests/laws has more from the same generators."""

from __future__ import annotations

import pytest

from tests.attack import compositions, kernels, loops


@pytest.mark.cases(3)
@pytest.mark.parametrize("seed", range(100, 108))
def test_strip_mined_loops_are_the_python_programs(seed: int) -> None:
    with loops.portions_of(1 + seed % 3):
        loops.check(seed)


def test_searched_kernels_are_those_of_the_compilers_choice_under_words() -> None:
    assert sum(kernels.searched(seed) for seed in range(4)) >= 1


COMPOSITIONS: list[tuple[int, str, list[str], list[str]]] = [
    (4, "solve by iteration", ["custom_jvp", "vmap"], ["jvp"]),
    (8, "solve by iteration", ["vmap", "custom_vjp"], ["jit"]),
    (13, "effects", ["scan", "unrolled"], ["jvp", "vmap"]),
    (14, "kernel that stores in a loop", ["scan with rows", "scan with rows"], ["grad"]),
    (20, "kernel that combines", ["custom_jvp", "fori"], ["jvp", "jit"]),
    (24, "one after the other", ["scan with checkpoints", "scan"], ["jvp"]),
    (1077, "kernel with a condition", ["fori", "map"], ["vmap"]),
    (60, "sort", ["scan with checkpoints", "rules that are loops", "linearize", "jit"],
     ["hessian"]),
    (61, "switch", ["fori", "rules that are loops", "linearize"], ["grad"]),
    (63, "kernel under a schedule", ["one of three", "exchanged"], ["vmap"]),
    (64, "pairs", ["half used", "kept by name"], ["grad"]),
    (65, "steps by value", ["as often as a value says"], ["grad", "vmap"]),
    (68, "effects", ["custom_vjp", "scan"], ["jacrev", "grad"]),
    (69, "effects", ["custom_vjp", "while"], ["jacrev"]),
    (66, "windows of a function", ["donated into a carry"], ["jvp", "grad"])]


@pytest.mark.cases(8)
@pytest.mark.parametrize("seed,leaf,wrappers,word", COMPOSITIONS)
def test_structures_inside_structures_are_the_plain_functions(
        seed: int, leaf: str, wrappers: list[str], word: list[str]) -> None:
    compositions.check(compositions.Composed(leaf, wrappers, word), seed)
