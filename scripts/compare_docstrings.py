"""Run the examples in the docstrings of JAX's public names, on JAX and on fnx, and compare.

    python scripts/compare_docstrings.py                    # counts, and each example that differs
    python scripts/compare_docstrings.py jax.numpy.take     # only some names

The examples are read from the installed JAX. Each runs in one process with JAX and in another with
fnx as JAX (``fnx.as_jax``), and the output is compared: numbers to six digits, the rest as text.
Skipped are examples that fail in JAX itself, and those that reach a feature that fnx lacks for now
or excludes by name, along with the statements that depend on it; docstrings_out.toml lists the
others that differ on purpose, with reasons.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import inspect
import io
import json
import re
import subprocess
import sys
import tempfile
import tomllib
import traceback
import types
import warnings
from pathlib import Path
from typing import Any

MODULES = (
    "jax", "jax.numpy", "jax.lax", "jax.nn", "jax.nn.initializers", "jax.random", "jax.tree",
    "jax.tree_util", "jax.scipy.special", "jax.scipy.stats", "jax.scipy.sparse.linalg",
    "jax.scipy.integrate", "jax.scipy.interpolate", "jax.scipy.ndimage", "jax.scipy.signal",
    "jax.scipy.cluster.vq", "jax.scipy.spatial.transform", "jax.scipy.optimize",
    "jax.custom_batching", "jax.custom_derivatives", "jax.dtypes", "jax.errors", "jax.ops",
    "jax.image", "jax.flatten_util", "jax.profiler", "jax.sharding", "jax.debug", "jax.dlpack",
    "jax.experimental", "jax.ad_checkpoint", "jax.stages", "jax.typing", "jax.core")
OUT = Path(__file__).with_name("docstrings_out.toml")


def examples() -> dict[str, str]:
    """Return dotted name -> docstring of everything public in the installed JAX, each docstring
    once."""
    found: dict[str, str] = {}
    seen: set[str] = set()
    for path in MODULES:
        module = importlib.import_module(path)
        for name in sorted(n for n in dir(module) if not n.startswith("_")):
            value = getattr(module, name, None)
            if isinstance(value, types.ModuleType):
                continue
            members = [(f"{path}.{name}", value)]
            if inspect.isclass(value):
                members += [(f"{path}.{name}.{n}", v) for n, v in vars(value).items()
                            if not n.startswith("_")]
            for dotted, member in members:
                text = inspect.getdoc(member) if member is not None else None
                if text and ">>>" in text and text not in seen:
                    seen.add(text)
                    found[dotted] = text
    return found


def run(text: str) -> list[tuple[str, str]]:
    """Return (source, printed or raised) of each statement in a docstring."""
    import jax
    import numpy as np
    space: dict[str, Any] = {"jax": jax, "jnp": jax.numpy, "np": np, "lax": jax.lax,
                             "__name__": "example"}
    found = []
    for example in doctest.DocTestParser().get_examples(text):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                exec(compile(example.source, "<example>", "single"), space)
            except Exception as error:
                last = traceback.format_exception_only(error)[-1].strip()
                printed.write(f"raised {last}")
        found.append((example.source.rstrip(), printed.getvalue()))
    return found


def ran(texts: dict[str, str], by: str) -> dict[str, list[tuple[str, str]]]:
    """Run each docstring's examples in a process of ``by``: jax or fnx."""
    with tempfile.TemporaryDirectory() as folder:
        given, got = Path(folder, "given"), Path(folder, "got")
        given.write_text(json.dumps(texts))
        subprocess.run([sys.executable, __file__, f"--{by}", str(given), str(got)], check=True)
        found: dict[str, list[tuple[str, str]]] = json.loads(got.read_text())
    return found


# fnx's messages for missing and excluded features, and for a later statement that needs them.
OUT_BY_NAME = re.compile(r"come later|complex|a name of JAX that fnx does not have")
MISSES = re.compile(r"raised NameError")
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|nan|inf")


def same(a: str, b: str) -> bool:
    """Whether two outputs agree: numbers to some digits, errors by their type."""
    if a.startswith("raised ") and b.startswith("raised "):
        return True
    a, b = (re.sub(r"dtype=bool, weak_type=True", "dtype=bool", s) for s in (a, b))
    words_a, words_b = (re.sub(r"\s+", "", NUMBER.sub("#", s)) for s in (a, b))
    if re.sub(r"0x[0-9a-f]+", "", words_a) != re.sub(r"0x[0-9a-f]+", "", words_b):
        return False
    for x, y in zip(map(float, NUMBER.findall(a)), map(float, NUMBER.findall(b))):
        if not (x == y or x != x and y != y or abs(x - y) <= 2e-6 * (1 + abs(x))):
            return False
    return True


def main() -> None:
    """Compare and print."""
    if sys.argv[1:2] in (["--jax"], ["--fnx"]):
        if sys.argv[1] == "--fnx":
            import fnx.as_jax
            fnx.as_jax.install()
        texts = json.loads(Path(sys.argv[2]).read_text())
        Path(sys.argv[3]).write_text(json.dumps({n: run(t) for n, t in texts.items()}))
        return
    texts = {name: text for name, text in examples().items()
             if not sys.argv[1:] or any(name.startswith(a) for a in sys.argv[1:])}
    theirs, ours = ran(texts, "jax"), ran(texts, "fnx")
    out = tomllib.loads(OUT.read_text()) if OUT.exists() else {}
    agree = differ = left = later = 0
    for name in texts:
        gone = False
        reason = next((why for prefix, why in out.items() if name.startswith(prefix)), None)
        for (source, a), (_, b) in zip(theirs[name], ours[name]):
            if a.startswith("raised ") and not b.startswith("raised "):
                left += 1
            elif same(a, b):
                agree += 1
            elif b.startswith("raised ") and (OUT_BY_NAME.search(b) or gone and MISSES.match(b)):
                later, gone = later + 1, True
            elif reason is not None:
                left += 1
            else:
                differ += 1
                print(f"--- {name}\n>>> {source}\nJAX: {a}\nfnx: {b}")
    print(f"{agree} examples agree, {differ} differ, {later} meet parts that come later, {left} "
          "are out (docstrings_out.toml) or fail by JAX")
    sys.exit(differ > 0)


if __name__ == "__main__":
    main()
