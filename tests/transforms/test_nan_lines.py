"""``debug_nans`` and ``debug.step`` name the line that made a NaN, also in derivatives of loops."""

from __future__ import annotations

import linecache
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from tests.transforms import nan_programs

X = np.float32(0.75)
SEEDS = range(int(os.environ.get("NAN_PROGRAMS", "9")))
FUNCTIONS: dict[str, Callable[[Any], Callable[[Any], Any]]] = {
    "grad": fnx.grad, "value_and_grad": fnx.value_and_grad,
    "jvp": lambda f: lambda x: fnx.jvp(f, (x,), (jnp.ones_like(x),)),
    "vmap of grad": lambda f: lambda x: fnx.vmap(fnx.grad(f))(jnp.stack([x, x * 0.5])),
}


def load(seed: int, path: Path, *sources: tuple[str, ...]) -> tuple[Any, int, str]:
    text, line, loop = nan_programs.source(seed, *sources)
    path.write_text(text)
    linecache.checkcache(str(path))
    names: dict[str, Any] = {}
    exec(compile(text, str(path), "exec"), names)
    return names["f"], line, loop


def iteration(loop: str) -> int | None:
    """Return the iteration in which the line makes a NaN."""
    return None if loop == "cond" else 3 - nan_programs.AT if loop == "backward scan" else \
        nan_programs.AT


def check_debug_nans(f: Any, path: Path, line: int, loop: str) -> None:
    with fnx.debug_nans(), np.errstate(all="ignore"), pytest.raises(FloatingPointError) as raised:
        f(X)
    error: Any = raised.value
    assert error.loc == (str(path), line), str(error)
    if (at := iteration(loop)) is not None:
        assert f"iteration {at} of" in str(error), str(error)


def check_step(f: Any, path: Path, line: int, loop: str) -> None:
    with np.errstate(all="ignore"):
        step = fnx.debug.step(f)(X).first_nan()
    assert step is not None and (step.file, step.line) == (str(path), line), step
    if (at := iteration(loop)) is not None:
        assert step.loops[-1].number == at, step


@pytest.mark.cases(1)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_line_of_a_derivative(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    f, line, loop = load(seed, path)
    names = list(FUNCTIONS) if len(SEEDS) > 9 else [list(FUNCTIONS)[seed % len(FUNCTIONS)]]
    for name in names:
        g = FUNCTIONS[name](f)
        check_debug_nans(g, path, line, loop)
        check_debug_nans(fnx.jit(g), path, line, loop)
        check_step(g, path, line, loop)


@pytest.mark.cases(2)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_line_of_a_value(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    f, line, loop = load(seed, path, nan_programs.VALUES)
    for g in (f, fnx.jit(f)):
        check_debug_nans(g, path, line, loop)
    check_step(f, path, line, loop)
