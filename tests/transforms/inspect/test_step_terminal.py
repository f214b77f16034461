"""``debug.step`` in a terminal: expressions, Ctrl-C, and a session as a person types it."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.transforms.inspect import step_prompt
from tests.transforms.inspect.test_step import double

FACTOR = jnp.array([1.0, 10.0])


def scaled(w: Any, table: Any) -> Callable[..., Any]:
    def model(params: Any, x: Any) -> Any:
        bias, shape, rows = jnp.array([1.0, 2.0]), x.shape, []
        h = x * params["a"] + bias
        rows.append(h)
        unread = h - 1
        h = double(h * w * FACTOR)
        return h.sum() * shape[0] + table[1] + len(str(unread.shape))
    return model


def test_expressions_know_the_names_of_the_frame() -> None:
    f = scaled(jnp.array([1.0, 3.0]), np.arange(3))
    session = fnx.debug.step(f)({"a": jnp.ones(2)}, jnp.ones(2))
    line = f.__code__.co_firstlineno + 2
    out = io.StringIO()
    commands = ("bias", "shape", "table + 1", "w", "FACTOR", "params['a'].max()", "jnp.abs(-h)",
                "double(h)[0]", "[h[i] for i in (0, 1)]", "rows", "unread", "nosuch", "h[0] + line")
    step_prompt.interact(session, stdin=io.StringIO("\n".join([
        f"b {line} if jnp.abs(h).max() > FACTOR.min()", "r", *[f"p {c}" for c in commands], "v",
        "b double", "r", "p bias", "u", "p bias", "p rows[0]", "p unread", "q\n"])), stdout=out)
    said = out.getvalue().split("(step) ")[1:]
    for at, text in enumerate(("[1. 2.]", "(2,)", "[1 2 3]", "[1. 3.]", "[ 1. 10.]", "1.0",
                               "[2. 3.]", "5.0", "[np.float32(2.0), np.float32(3.0)]", "[]",
                               "unread has no value here", "NameError", "NameError")):
        assert text in said[2 + at], (text, said[2 + at])
    variables = said[2 + len(commands)]
    assert "bias = float32[2]  [1. 2.]" in variables and "shape = (2,)" in variables
    assert "double" not in variables and "   params = " not in variables
    *_, inner, _, outer, row, unread, _ = said
    assert "NameError" in inner and "[1. 2.]" in outer and "[2. 3.]" in row
    assert "unread has no value here" in unread


def interrupted(script: str, tmp_path: Path, talk: Callable[[Callable[[bytes, bytes], None]], None]
                ) -> tuple[int, str]:
    """Run a script in a terminal; ``talk`` waits for a text, then types another."""
    (tmp_path / "script.py").write_text(textwrap.dedent(script))
    controller, terminal = pty.openpty()
    process = subprocess.Popen([sys.executable, str(tmp_path / "script.py")], stdin=terminal,
                               stdout=terminal, stderr=terminal, close_fds=True,
                               preexec_fn=lambda: os.login_tty(terminal))
    os.close(terminal)
    said = b""
    read_to = 0

    def type_after(text: bytes, typed: bytes) -> None:
        nonlocal said, read_to
        while (at := said.find(text, read_to)) < 0:
            said += os.read(controller, 4096)
        read_to = at + len(text)
        if typed == b"\x03":
            time.sleep(0.5)  # a Ctrl-C takes back what was typed and not read
        os.write(controller, typed)
    talk(type_after)
    try:
        while chunk := os.read(controller, 4096):
            said += chunk
    except OSError:  # the terminal is closed
        pass
    os.close(controller)
    return process.wait(timeout=60), said.decode()


LONG = '''
    import fnx
    import fnx.numpy as jnp
    from fnx import lax

    def f(x):
        def body(i, c):
            c = c + i
            return c
        y = lax.fori_loop(0, 400_000_000, body, x)
        return y

    fnx.debug.step(f)(jnp.ones(()))
    print("went" + " on")
'''


@pytest.mark.skipif(sys.platform == "win32" or not hasattr(os, "login_tty"), reason="no terminals")
def test_interrupts_return_to_the_prompt(tmp_path: Path) -> None:
    def talk(type_after: Callable[[bytes, bytes], None]) -> None:
        type_after(b"(step) ", b"\x03")
        type_after(b"(step) ", b"p c + 1\n")
        type_after(b"(step) ", b"p [0 for _ in iter(int, 1)]\n")
        type_after(b"iter(int, 1)]", b"\x03")
        type_after(b"(step) ", b"p 100 + 11\n")
        type_after(b"111", b"q\n")
    code, text = interrupted(LONG.replace("400_000_000", "3"), tmp_path, talk)
    assert code == 0 and "went on" in text and "Traceback" not in text
    assert text.count("Ctrl-C: q leaves the prompt") == 2


@pytest.mark.skipif(sys.platform == "win32" or not hasattr(os, "login_tty"), reason="no terminals")
def test_an_interrupt_stops_at_the_next_line(tmp_path: Path) -> None:
    def talk(type_after: Callable[[bytes, bytes], None]) -> None:
        type_after(b"(step) ", b"r\n")
        type_after(b"r\r\n", b"\x03")
        type_after(b"iteration ", b"p 100 + 11\n")
        type_after(b"111", b"o\n")
        type_after(b"o\r\n", b"\x03")
        type_after(b"iteration ", b"q\n")
        type_after(b"q\r\n", b"\x03")
    code, text = interrupted(LONG, tmp_path, talk)
    assert "in body, iteration" in text and "KeyboardInterrupt" in text and code != 0


def test_a_session_in_a_terminal(tmp_path: Path) -> None:
    script = tmp_path / "wrong.py"
    script.write_text(textwrap.dedent('''
        import fnx
        import fnx.numpy as jnp

        def f(x):
            y = x - 2
            z = jnp.sqrt(y)
            return z.sum()

        fnx.debug.step(f)(jnp.arange(4.0))
        print("went on")
    '''))
    controller, terminal = pty.openpty()
    process = subprocess.Popen([sys.executable, str(script)], stdin=terminal, stdout=terminal,
                               stderr=terminal, close_fds=True)
    os.close(terminal)
    os.write(controller, b"nan\np y\nq\n")
    said = b""
    try:
        while chunk := os.read(controller, 4096):
            said += chunk
    except OSError:  # the terminal is closed
        pass
    assert process.wait(timeout=60) == 0
    text = said.decode()
    assert "z = jnp.sqrt(y)" in text and "[-2. -1.  0.  1.]" in text and "went on" in text
