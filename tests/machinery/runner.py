"""Run the programs of this folder on whatever ``import jax`` means in this process."""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
import sys
import tomllib
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
_NUMBER = re.compile(r"-?\d+\.?\d*(?:e[+-]?\d+)?")
_PRELUDE = """\
import functools, math, operator, pickle
import numpy as np, jax, jax.numpy as jnp
from jax import lax, jit, grad, vmap, jvp, vjp, jacfwd, jacrev
from functools import partial
"""


def _read() -> dict[str, str]:
    """Return name -> program, for the parts of each file that begin with ``#: name``."""
    cases = {}
    for path in sorted(HERE.glob("*.txt")):
        for part in path.read_text().split("#: ")[1:]:
            name, _, text = part.partition("\n")
            cases[f"{path.stem}.{name}"] = text
    return cases


CASES = _read()


def reasons() -> dict[str, list[str]]:
    """Return reason -> cases that differ from JAX for it."""
    return tomllib.loads((HERE / "differences.toml").read_text())


DIFFERENCES = {name: reason for reason, names in reasons().items() for name in names}


def run(text: str) -> str:
    """Return what a program prints; an exception is printed as its class and message."""
    out = io.StringIO()

    def attempt(kind: type[BaseException], f: Any, *args: Any, **kwargs: Any) -> None:
        """Print whether f raises an error of a class."""
        try:
            print("returned", f(*args, **kwargs))
        except kind:
            print("raised")

    def says(kind: type[BaseException], words: str, f: Any, *args: Any, **kwargs: Any) -> None:
        """Print whether f raises an error of a class with a message that matches words."""
        try:
            print("returned", f(*args, **kwargs))
        except BaseException as error:
            print("raised" if isinstance(error, kind) else f"raised {type(error).__name__}",
                  "so" if re.search(words, str(error), re.S) else "in other words")

    with contextlib.redirect_stdout(out), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            names: dict[str, Any] = {"raises": attempt, "says": says, "__name__": "machinery"}
            exec(_PRELUDE + text, names)
            sys.modules["jax"].effects_barrier()
        except BaseException as error:
            print(f"{type(error).__name__}: {str(error)[:700]}")
    return out.getvalue()


def equal(got: str, want: str) -> bool:
    """Whether two texts are equal up to spaces, and numbers to four digits."""
    a, b = (_NUMBER.sub("#", x).split() for x in (got, want))
    if a != b:
        return False
    numbers = zip(_NUMBER.findall(got), _NUMBER.findall(want))
    return all(math.isclose(float(x), float(y), rel_tol=1e-4, abs_tol=1e-5) for x, y in numbers)


def main() -> None:
    """Run the cases named on the command line, and print what they print as JSON."""
    sys.modules["machinery"] = type(sys)("machinery")
    print(json.dumps({name: run(CASES[name]) for name in sys.argv[1:]}))
