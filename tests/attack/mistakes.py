"""Mistakes of users, and fnx's answer to each: ``mistakes.txt`` has a few lines of code for each.

The line at fault ends with ``# here``: the message begins with it, and says how to fix it.
"""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fnx
import fnx.kernel as k
import fnx.numpy as jnp
from fnx import lax, nn, random
from fnx.core.support.config import Config, override
from fnx.core.support.errors import PACKAGE

FILE = Path(__file__).with_suffix(".txt")


class Mistake(NamedTuple):
    """``code`` has its fault in ``line``; it is in a file of its own."""

    name: str
    file: str
    code: str
    line: int


def mistakes() -> Iterator[Mistake]:
    """Yield all mistakes."""
    for i, text in enumerate(FILE.read_text().split("## ")[1:]):
        name, _, code = text.partition("\n")
        line, = [n for n, words in enumerate(code.splitlines(), 1) if words.endswith("# here")]
        yield Mistake(name, f"user{i}.py", code, line)


def made(mistake: Mistake) -> Exception:
    """Return the error that it raises."""
    space: dict[str, Any] = dict(
        __name__="user", np=np, fnx=fnx, jnp=jnp, lax=lax, nn=nn, random=random, k=k, Config=Config,
        ShapeDtypeStruct=fnx.ShapeDtypeStruct, override=override, X=jnp.arange(3.0) + 1,
        M=jnp.ones((2, 3)))
    lines = mistake.code.splitlines(keepends=True)
    linecache.cache[mistake.file] = len(mistake.code), None, lines, mistake.file
    try:
        with override(check_spec=False):  # as users have it
            exec(compile(mistake.code, mistake.file, "exec"), space)
    except Exception as error:
        return error
    raise AssertionError(f"{mistake.name}: nothing was raised")


def frames(error: Exception) -> list[bool]:
    """Return for each frame of a traceback whether it is one of fnx's."""
    return [frame.filename.startswith(PACKAGE)
            for frame in traceback.extract_tb(error.__traceback__)]
