"""Profile one first call of a jitted program: files, functions, changes of file.

This counts what a newcomer who follows that call must read. ``python benchmarks/call_path.py`` runs
``jit(grad(loss))(x)`` with an empty object cache and prints the counts, then the time of each
package (of the function that was running; imports are done earlier, by a call of another function).
``--program NAME`` takes another program, ``--program all`` prints the counts of each.

    files        source files of fnx in which a function ran
    functions    functions of fnx that ran
    changes      how often the running function was in another file than the one before
"""

from __future__ import annotations

import argparse
import collections
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any


class Walk:
    """Counts of a profile of Python calls inside fnx."""

    def __init__(self, package: Path) -> None:
        self.package = f"{package}{os.sep}"
        self.functions: collections.Counter[CodeType] = collections.Counter()
        self.seconds: collections.Counter[str] = collections.Counter()
        self.changes = 0
        self._file = ""
        self._last = time.perf_counter()

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        """The profiler callback of ``sys.setprofile``."""
        if event not in ("call", "return"):  # a C function: nothing to read
            return
        now = time.perf_counter()
        if self._file:
            self.seconds[self._file] += now - self._last
        self._last = now
        caller = frame if event == "call" else frame.f_back
        if caller is None or not caller.f_code.co_filename.startswith(self.package):
            return
        if event == "call":
            self.functions[frame.f_code] += 1
            self.changes += frame.f_code.co_filename != self._file
        self._file = caller.f_code.co_filename

    @property
    def files(self) -> set[str]:
        """Paths of the files whose functions ran."""
        return {code.co_filename for code in self.functions}

    def rooms(self) -> list[tuple[str, int, float]]:
        """Return (package, functions that ran, milliseconds), the slowest first."""
        count: collections.Counter[str] = collections.Counter()
        spent: collections.Counter[str] = collections.Counter()
        for code in self.functions:
            count[self._room(code.co_filename)] += 1
        for file, seconds in self.seconds.items():
            spent[self._room(file)] += seconds
        return sorted(((r, n, spent[r] * 1e3) for r, n in count.items()), key=lambda row: -row[2])

    def _room(self, file: str) -> str:
        return str(Path(file.removeprefix(self.package)).parent)


def gradient(fnx: Any, jnp: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The gradient of a small loss."""
    def loss(w: Any, x: Any, y: Any) -> Any:
        return jnp.mean((jnp.tanh(x @ w) - y) ** 2)

    return fnx.grad(loss), (jnp.ones(8), jnp.ones((64, 8)), jnp.ones(64))


def mlp_step(fnx: Any, jnp: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """One step of gradient descent of a network of two layers."""
    def loss(params: Any, x: Any, y: Any) -> Any:
        w0, b0, w1, b1 = params
        return jnp.mean((jnp.maximum(x @ w0 + b0, 0) @ w1 + b1 - y) ** 2)

    def step(params: Any, x: Any, y: Any) -> Any:
        return [p - 0.1 * g for p, g in zip(params, fnx.grad(loss)(params, x, y))]

    params = [jnp.ones((32, 64)), jnp.ones(64), jnp.ones((64, 8)), jnp.ones(8)]
    return step, (params, jnp.ones((128, 32)), jnp.ones((128, 8)))


def attention(fnx: Any, jnp: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """One head of attention."""
    def head(q: Any, k: Any, v: Any) -> Any:
        return fnx.nn.softmax(q @ k.T / 8, -1) @ v

    return head, (jnp.ones((512, 64)),) * 3


def scan(fnx: Any, jnp: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A recurrent layer."""
    def layer(w: Any, h: Any, xs: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = jnp.tanh(w @ h + x)
            return h, h
        return fnx.lax.scan(step, h, xs)

    return layer, (jnp.ones((16, 16)), jnp.ones(16), jnp.ones((32, 16)))


def convolution(fnx: Any, jnp: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A convolution of images with 3x3 kernels, and relu."""
    def layer(x: Any, w: Any) -> Any:
        return jnp.maximum(fnx.lax.conv(x, w, (1, 1), "SAME"), 0)

    return layer, (jnp.ones((4, 8, 32, 32)), jnp.ones((16, 8, 3, 3)))


PROGRAMS = {made.__name__: made for made in (gradient, mlp_step, attention, scan, convolution)}


def walk(program: str = "gradient") -> Walk:
    """Profile one first call of a program."""
    import fnx
    import fnx.lax
    import fnx.nn
    import fnx.numpy as jnp

    fnx.jit(lambda x: x + 1)(jnp.ones(3)).block_until_ready()
    f, args = PROGRAMS[program](fnx, jnp)
    found = Walk(Path(fnx.__file__).parent)
    jitted = fnx.jit(f)
    sys.setprofile(found)
    try:
        jitted(*args)
    finally:
        sys.setprofile(None)
    return found


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="gradient", choices=[*PROGRAMS, "all"])
    program = parser.parse_args().program
    if program == "all":  # each in a process of its own: another has loaded and cached parts
        for name in PROGRAMS:
            shown = subprocess.run([sys.executable, __file__, "--program", name], check=True,
                                   capture_output=True, text=True).stdout
            print(f"{name:<14}{shown.splitlines()[0]}")
        return
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
        os.environ["FNX_CACHE_DIR"] = cache
        found = walk(program)
    print(f"{len(found.files)} files, {len(found.functions)} functions, "
          f"{found.changes} changes of file")
    print(f"\n{'room':<28}{'functions':>10}{'ms':>9}")
    for room, functions, milliseconds in found.rooms():
        print(f"{room:<28}{functions:>10}{milliseconds:>9.2f}")


if __name__ == "__main__":
    main()
