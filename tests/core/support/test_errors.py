"""Where errors and warnings say that the user's line is."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

import fnx

CELL = "/tmp/ipykernel_12/345.py"


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """IPython, as far as fnx asks it: which cell a file name stands for."""
    compiler = SimpleNamespace(format_code_name={CELL: ("Cell", "In[3]")}.get)
    shell = SimpleNamespace(compile=compiler)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))


def run(code: str) -> None:
    exec(compile(code, CELL, "exec"), {"fnx": fnx, "jnp": fnx.numpy})


def test_errors_in_a_notebook_name_the_cell(notebook: None) -> None:
    with pytest.raises(fnx.FnxError, match=r"^In \[3\], line 2: ones: expected a shape"):
        run("x = jnp.ones(3)\njnp.ones((2, 'a'))")


def test_warnings_in_a_notebook_name_the_cell(notebook: None) -> None:
    with pytest.warns(UserWarning) as seen, fnx.numpy_rank_promotion("warn"):
        run("\njnp.ones((2, 3)) + jnp.ones(3)")
    assert (seen[0].filename, seen[0].lineno) == ("In [3]", 2)


def test_stages_in_a_notebook_name_the_cell(notebook: None, capsys: pytest.CaptureFixture[str]
                                            ) -> None:
    run("fnx.jit(lambda x: x + x * x).lower(jnp.ones(3)).show('graph')")
    assert "In [3]:1" in capsys.readouterr().out


PROGRAM = """import fnx, fnx.numpy as jnp
def f(x):
    return x + jnp.ones(4)
fnx.jit(f)(jnp.ones(3))
"""


@pytest.mark.parametrize("command", [["-c", PROGRAM], ["-"]], ids=["command", "stdin"])
def test_code_without_a_file_has_line_numbers(command: list[str]) -> None:
    done = subprocess.run([sys.executable, *command], input=PROGRAM, capture_output=True, text=True)
    name = "<string>" if command[0] == "-c" else "<stdin>"
    assert f"{name}:3: add: expected" in done.stderr
    assert f"Inside jit of f ({name}:4)" in done.stderr
