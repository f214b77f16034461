"""Entries of the disk cache, changed and resealed: a miss, or the same results; never a crash.

    python -m tests.attack.entries --count 2000 --seed 1

Programs get other bytes, or other numbers in their commands; schedules and limits get other
numbers. Machine code is trusted if its checksum is valid, so kernels are damaged without a new
checksum. Each mutant is read by a process of its own, which must compute the right results.
"""

from __future__ import annotations

import functools
import os
import pickle
import random
import signal
import subprocess
import sys
import tempfile
import traceback
from typing import Any

import numpy as np

import fnx
import fnx.lax as lax
import fnx.numpy as jnp
from fnx.backends.disk.cache import DiskCache
from fnx.core.ir import ops
from fnx.core.ir.uop import rebuild
from fnx.core.support.config import override
from tests.attack import seeds

CODE = ("kernel", "loops")  # entries of machine code
X = np.arange(40, dtype=np.float32).reshape(5, 8) / 8
FUNCTIONS: dict[str, Any] = {
    "product": lambda x: jnp.tanh(x @ x.T).sum(0),
    "scan": lambda x: lax.scan(lambda c, r: (c * 0.5 + r, c.sum()), x[0], x),
    "while": lambda x: lax.while_loop(lambda c: c.sum() < 100, lambda c: c * 2 + 1, x),
    "cond": lambda x: lax.cond(x.sum() > 0, lambda y: jnp.sort(y), lambda y: y + 1, x)}

_WRITER = """
import pickle, sys
from fnx.backends.disk.cache import DiskCache
found, put = [], DiskCache.put
def kept(self, key, value, about=""):
    found.append((key, value, about))
DiskCache.put = kept
import fnx
from fnx.backends.disk import background_writer
from tests.attack.entries import FUNCTIONS, X
with fnx.core.support.config.override(cache_dir=sys.argv[1]):
    for f in FUNCTIONS.values():
        fnx.tree.map(lambda y: y.block_until_ready(), fnx.jit(f)(X))
    background_writer.wait()
sys.stdout.buffer.write(pickle.dumps(found))
"""


@functools.cache
def corpus() -> list[tuple[bytes, bytes, str]]:
    """Return (key, value, description) of all entries that the functions make."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, "-c", _WRITER, folder], capture_output=True,
                              check=True)
    found: list[tuple[bytes, bytes, str]] = pickle.loads(done.stdout)
    assert {about.split()[0] for *_, about in found} >= {"kernel", "program"}
    return found


def _damaged(data: bytes, choose: random.Random) -> bytes:
    out, at = bytearray(data), choose.randrange(len(data))
    what = choose.randrange(4)
    if what == 0:
        del out[at:]
    elif what == 1:
        out[at:at] = choose.randbytes(8)
    else:
        out[at] = choose.choice((out[at] ^ 1 << choose.randrange(8), 0, 255))
    return bytes(out)


def _other_numbers(data: bytes, choose: random.Random) -> bytes:
    """Return a program with numbers that no pass can have given it."""
    commands, *rest = pickle.loads(data)
    by = choose.choice((1, 64, 1 << 20, 1 << 40, -64, 1 << 62))
    far = choose.choice((-1, 0.5, 1 << 60, "x"))  # nearby numbers might be another valid program's
    some = choose.random()

    def visit(node: Any, src: Any) -> Any:
        if node.op is ops.SLOT and some < 0.6 and choose.random() < 0.5:
            field = choose.choice(("offset", "nbytes", "index", "strides"))
            value = (by,) * 2 if field == "strides" else getattr(node.arg, field) + by
        elif node.op is ops.LINKED and 0.6 <= some < 0.8:
            field = choose.choice(("parallel", "scratch", "nanoseconds", "writes"))
            value = (far,) if field == "writes" else -1.0 if field == "nanoseconds" else far
        elif node.op is ops.CMD_LOOP and some >= 0.8:
            field, value = "trips", far
        else:
            return None
        return node.replace(src=src, arg=node.arg.replace(**{field: value}))
    if choose.random() < 0.4:
        at = choose.randrange(len(rest))
        rest[at] = choose.choice((0, far, (), ((0, far),), (("out", far),), (("in", 1),)))
    return pickle.dumps((rebuild([commands], visit)[0], *rest))


class _Call:
    """A call that a hostile program would make when it is unpickled."""

    def __reduce__(self) -> Any:
        return os.kill, (os.getpid(), signal.SIGKILL)


def planted(seed: int, folder: str) -> str:
    """Write all entries, one of them changed; return the kind of that one."""
    choose = random.Random(seed)
    disk, entries = DiskCache(folder), corpus()
    kinds = [about.split()[0] for *_, about in entries]
    wanted = choose.choice(sorted({*kinds}))
    which = choose.choice([i for i, kind in enumerate(kinds) if kind == wanted])
    for i, (key, value, about) in enumerate(entries):
        kind = about.split()[0]
        if i == which and kind not in CODE:
            how = choose.random()
            if kind == "program" and how < 0.4:
                value = _other_numbers(value, choose)
            elif kind == "program" and how < 0.5:
                value = pickle.dumps(_Call())
            else:
                value = _damaged(value, choose)
        disk.put(key, value, about)
    key, _, about = entries[which]
    if about.split()[0] in CODE:
        with open(disk.path(key), "r+b") as file:
            data = _damaged(file.read(), choose)
            file.seek(0)
            file.write(data)
            file.truncate()
    return about.split()[0]


def check(seed: int) -> str:
    """Read a mutant in a child process."""
    corpus()
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        os.write(write, _said(seed).encode()[:4000])
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    assert status == 0 and said.startswith("found "), f"status {status}: {said}"
    return said.removeprefix("found ")


def _said(seed: int) -> str:
    try:
        with tempfile.TemporaryDirectory() as folder, override(cache_dir=folder, device="cpu"):
            kind = planted(seed, folder)
            for name, f in FUNCTIONS.items():
                found = fnx.tree.leaves(fnx.jit(f)(X))
                with override(device="interp"):
                    want = fnx.tree.leaves(f(jnp.asarray(X)))
                for a, b in zip(found, want, strict=True):
                    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5, atol=1e-5,
                                               err_msg=name)
    except BaseException:
        return traceback.format_exc(limit=-6)
    return f"found {kind}"


def main() -> int:
    return seeds.attack(str(__doc__), "entries", check)


if __name__ == "__main__":
    sys.exit(main())
