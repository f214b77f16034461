"""Random programs in the style of JAX's documentation, which run on fnx or on JAX.

    text = program(7)          lines of Python over the names ``jax``, ``jnp``, ``lax``, ...
    run(text, fnx, 0)          the result of the first of its ``calls``

A program defines some functions, each in a style of its own (functions.py), whose bodies are
statements (statements.py), and calls the last one under transforms. Any line may be invalid; then
both must reject it.

>>> program(7) == program(7), program(7).count("lambda: ") >= CALLS
(True, True)
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import io
import random
import re
import textwrap
import typing
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from tests.idioms.functions import DEFINITIONS, OF_ARRAYS, OF_SCALARS, SAVED
from tests.idioms.statements import BLOCKS, EXPRESSIONS, FIRST

_PLACE = re.compile(r"\{(M|V|R|S|I|B|C|T|num|int|row|col|axis|out)\}")
_NUMBERS = {"num": ("0.5", "2", "-1.5", "1", "0.25", "3"), "int": ("0", "1", "2"),
            "row": ("0", "1", "-1", "2"), "col": ("0", "3", "-2", "1"), "axis": ("0", "1", "-1")}
_DTYPES = ("float32",) * 9 + ("float16", "bfloat16", "int32")
CALLS = 3  # per program


class Writer:
    """Lines of one function, and the names that they have defined, by kind."""

    def __init__(self, draw: random.Random, names: dict[str, list[str]]) -> None:
        self.draw, self.names, self.lines = draw, names, list[str]()

    def filled(self, text: str, out: str = "") -> str:
        """Fill a template's placeholders with names and numbers."""
        def one(match: re.Match[str]) -> str:
            what = match[1]
            return out if what == "out" else self.draw.choice(_NUMBERS[what]) \
                if what in _NUMBERS else self.name(what)
        return _PLACE.sub(one, text)

    def name(self, kind: str) -> str:
        """Return a value of a kind; if there is none, make it from others."""
        known = self.names.get(kind)
        if not known or kind != "M" and self.draw.random() < 0.1:
            if kind == "M":
                return "x"
            return f"({self.filled(FIRST[kind])})"
        return self.draw.choice(known[-3:])

    def statement(self, kind: str) -> None:
        """Add lines that define a value."""
        out = f"{kind.lower()}{len(self.lines)}"
        blocks = BLOCKS.get(kind, ())
        if blocks and self.draw.random() < 0.3:
            self.lines += self.filled(self.draw.choice(blocks), out).splitlines()
        else:
            self.lines.append(f"{out} = {self.filled(self.draw.choice(EXPRESSIONS[kind]))}")
        self.names.setdefault(kind, []).append(out)

    def result(self, kind: str) -> str:
        """Return an expression that uses defined values."""
        m, s = self.name("M"), self.name("S")
        return f"jnp.sum(jnp.tanh({m})) + jnp.sin({s})" if kind == "S" else \
            f"jnp.tanh({m}) + jnp.sin({s})"


def _indented(lines: Sequence[str], text: str, place: str) -> str:
    """Replace a placeholder by lines with its indentation."""
    found = re.search(rf"^( *){re.escape(place)}", text, flags=re.M)
    return text if found is None else text.replace(
        found[0], textwrap.indent("\n".join(lines), found[1]))


def _definition(draw: random.Random, name: str, kind: str, calls: Sequence[tuple[str, str]]
                ) -> str:
    """Return the text of a function in some style."""
    writer = Writer(draw, {"M": ["x"], "S": ["scale"]})
    for other, result in calls:
        if draw.random() < 0.7:
            made = f"{result.lower()}{other}"
            writer.lines.append(f"{made} = {other}({writer.name('M')})")
            writer.names[result].append(made)
    for _ in range(draw.randint(1, 5)):
        writer.statement(draw.choice("MMMVVRSSIBCT"))
    text = draw.choice(DEFINITIONS)
    saved, unpack = draw.choice(SAVED)
    inline = Writer(draw, {"M": ["x"], "S": ["scale"]})
    body = [*writer.lines, f"return {writer.result(kind)}"]
    text = text.replace("{f}", name).replace("{expr}", inline.result(kind)).replace(
        "{saved}", saved)
    text = _indented(unpack.splitlines(), _indented(body, text, "{body}"), "{unpack}")
    return writer.filled(text)


def program(seed: int) -> str:
    """Return the text of a program."""
    draw = random.Random(f"idiom {seed}")
    dtype = draw.choice(_DTYPES)
    lines = [f"DTYPE = {dtype if dtype != 'int32' else 'float32'!r}", "key = random.key(3)",
             "W = (jnp.arange(16.) / 16 - 0.4).reshape(4, 4).astype(DTYPE)",
             f"x = jnp.sin(jnp.arange(12.) * 1.7 + 0.3).reshape(3, 4).astype({dtype!r})"]
    if dtype == "int32":
        lines[-1] = "x = (jnp.arange(12, dtype='int32') * 7 % 11 - 4).reshape(3, 4)"
    calls: list[tuple[str, str]] = []
    for i in range(draw.randint(1, 3)):
        kind = draw.choice("MSS")
        lines.append(_definition(draw, f"f{i}", kind, calls))
        calls.append((f"f{i}", kind))
    name, kind = calls[-1]
    uses = draw.sample(OF_SCALARS if kind == "S" else OF_ARRAYS, CALLS)
    if kind == "S" and draw.random() < 0.1:
        lines += ["def trained(x):", "    for step in range(3):",
                  f"        x = x - 0.1 * jax.grad({name})(x)", "    return x"]
        uses[0] = "trained(x)"
    lines += ["calls = [", *[f"    lambda: {use.replace('{f}', name)}," for use in uses], "]"]
    return "\n".join(lines)


def names(package: ModuleType) -> dict[str, Any]:
    """Return a package's names as programs see them."""
    parts = {name: importlib.import_module(f"{package.__name__}.{path}") for name, path in (
        ("jnp", "numpy"), ("lax", "lax"), ("nn", "nn"), ("random", "random"))}
    importlib.import_module(f"{package.__name__}.tree_util")
    return {"jax": package, "np": np, "functools": functools, "dataclasses": dataclasses,
            "NamedTuple": NamedTuple, "Any": typing.Any, "__name__": __name__, **parts}


def run(text: str, package: ModuleType, call: int) -> Any:
    """Return the result of one of a program's calls; its output is discarded."""
    seen = names(package)
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(text, "<idiom>", "exec"), seen)
        return seen["calls"][call]()


def shortest(text: str, fails: Callable[[str], bool]) -> str:
    """Shorten a program: remove lines, with what is indented under them, while it still fails."""
    lines = text.splitlines()
    for i in reversed(range(len(lines))):
        depth = len(lines[i]) - len(lines[i].lstrip())
        end = next((j for j in range(i + 1, len(lines))
                    if len(lines[j]) - len(lines[j].lstrip()) <= depth), len(lines))
        rest = "\n".join([*lines[:i], *lines[end:]])
        with contextlib.suppress(SyntaxError):
            compile(rest, "<idiom>", "exec")
            if fails(rest):
                lines = rest.splitlines()
    return "\n".join(lines)
