"""Buffers between inaccessible pages: an out-of-bounds read ends the process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

COMPILED = True
PROGRAM = """
import ctypes, mmap
import numpy as np
import fnx, fnx.numpy as jnp

libc = ctypes.CDLL(None, use_errno=True)

def walled(x, at_end):
    page = mmap.PAGESIZE
    pages = -(-x.nbytes // page)
    memory = mmap.mmap(-1, (pages + 2) * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for wall in (start, start + (pages + 1) * page):
        assert libc.mprotect(ctypes.c_void_p(wall), ctypes.c_size_t(page), 0) == 0
    first = page + (pages * page - x.nbytes & -64 if at_end else 0)
    out = np.frombuffer(memory, x.dtype, x.size, first).reshape(x.shape)
    out[...] = x
    return out

def life(np_, x):
    return sum(np_.roll(np_.roll(x, i, 0), j, 1) for i in (-1, 0, 1) for j in (-1, 0, 1))

CASES = [
    ((4096,), lambda np_, x: np_.roll(x, 1) + np_.roll(x, -1) - 2 * x),
    ((1000,), lambda np_, x: np_.roll(x, 3) * np_.roll(x, -70)),
    ((13,), lambda np_, x: np_.roll(x, 5) - x),
    ((997,), lambda np_, x: np_.diff(x)),
    ((61, 67), lambda np_, x: np_.pad(x, 2)[1:-1, :-2] * 2),
    ((64, 100), life),
    ((1600, 9), lambda np_, x: sum([x[:, i] * x[:, 8 - i] for i in range(9)])),
    ((33, 31), lambda np_, x: np_.concatenate([x[:, 1:], x[:, :3]], 1)),
    ((40, 50), lambda np_, x: (x[:, 1:] - x[:, :-1]).sum(1)),
    ((51, 37), lambda np_, x: x.T + 1),
    ((30, 33), lambda np_, x: x[:, ::2] + 1),
]
for shape, f in CASES:
    for t in ("int32", "int8"):
        for at_end in (False, True):
            x = walled(np.arange(np.prod(shape)).reshape(shape).astype(t), at_end)
            a = jnp.from_dlpack(x)
            want = np.asarray(f(np, x))
            for found in (fnx.jit(lambda x: f(jnp, x))(a), f(jnp, a)):
                np.testing.assert_array_equal(np.asarray(found).astype(want.dtype), want)
print("done")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="mprotect as Linux has it")
def test_nothing_is_read_behind_a_buffer():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": os.getcwd()}, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-2000:]
