"""Each kernel has a line of the user's program, also what transforms and passes made."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fnx
import fnx.numpy as jnp

VECTOR, MATRIX = jnp.ones(50), jnp.ones((20, 20))
PROGRAMS: dict[str, tuple[Callable[..., Any], Any]] = {
    "basis of a Jacobian": (fnx.jacrev(lambda x: jnp.cumsum(jnp.sin(x))), VECTOR),
    "Hessian": (fnx.hessian(lambda x: (jnp.sin(x) ** 3).sum()), VECTOR),
    "steps of a transform": (fnx.grad(lambda x: jnp.abs(jnp.fft.fft(x)).sum()), VECTOR),
    "one-hot product": (lambda x: jnp.eye(20) @ x, MATRIX),
    "copies of a carry": (fnx.grad(lambda a: fnx.lax.scan(
        lambda c, row: (jnp.tanh(a @ c) + row, None), jnp.ones(20), a)[0].sum()), MATRIX),
    "finished lanes": (fnx.vmap(lambda x: fnx.lax.while_loop(
        lambda v: v < 100, lambda v: v * 2, x)), VECTOR),
}


@pytest.mark.cases(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_each_kernel_has_a_line(name: str) -> None:
    f, x = PROGRAMS[name]
    rows = fnx.jit(f).lower(x).roofline(measured=False).rows
    assert rows
    assert {row.line.partition(":")[0] for row in rows} == {"test_kernel_lines.py"}


def test_no_kernel_has_a_line_of_another_program(tmp_path: Path) -> None:
    """A program with equal graphs, of another file, lives; also what a pass made has no line of it.
    """
    (tmp_path / "another.py").write_text("""
import fnx, fnx.numpy as jnp
f = fnx.jit(fnx.vmap(lambda x: fnx.lax.while_loop(lambda v: v < 99, lambda v: v * 3, x)))
f(jnp.ones(50))
""")
    (tmp_path / "this.py").write_text("""
import another, fnx, fnx.numpy as jnp
f = fnx.vmap(lambda x: fnx.lax.while_loop(lambda v: v < 99, lambda v: v * 3, x))
print(*[row.line for row in fnx.jit(f).lower(jnp.ones(50)).roofline(measured=False).rows])
""")
    run = subprocess.run([sys.executable, tmp_path / "this.py"], capture_output=True, text=True,
                         env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sys.path))})
    lines = run.stdout.split()
    assert lines and {line.partition(":")[0] for line in lines} == {"this.py"}, run.stderr
