"""Profile one first call of ``jit(grad(loss))(x)``: files, functions, changes of file.

This counts what a newcomer who follows that call must read. ``python benchmarks/call_path.py`` runs
it with an empty object cache and prints the counts, then the time of each package (of the function
that was running; imports are done earlier, by a call of another function).

    files        source files of fnx in which a function ran
    functions    functions of fnx that ran
    changes      how often the running function was in another file than the one before
"""

from __future__ import annotations

import argparse
import collections
import os
import sys
import tempfile
import time
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


def walk() -> Walk:
    """Profile one first call of the gradient of a small loss."""
    import fnx
    import fnx.numpy as jnp

    def loss(w: Any, x: Any, y: Any) -> Any:
        return jnp.mean((jnp.tanh(x @ w) - y) ** 2)

    fnx.jit(lambda x: x + 1)(jnp.ones(3)).block_until_ready()
    x, y, w = jnp.ones((64, 8)), jnp.ones(64), jnp.ones(8)
    found = Walk(Path(fnx.__file__).parent)
    step = fnx.jit(fnx.grad(loss))
    sys.setprofile(found)
    try:
        step(w, x, y)
    finally:
        sys.setprofile(None)
    return found


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
        os.environ["FNX_CACHE_DIR"] = cache
        found = walk()
    print(f"{len(found.files)} files, {len(found.functions)} functions, "
          f"{found.changes} changes of file")
    print(f"\n{'room':<28}{'functions':>10}{'ms':>9}")
    for room, functions, milliseconds in found.rooms():
        print(f"{room:<28}{functions:>10}{milliseconds:>9.2f}")


if __name__ == "__main__":
    main()
