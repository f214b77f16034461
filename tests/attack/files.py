"""Mutants of files with valid digests: rejected by node or member, or as safe as fnx's own files.

    python -m tests.attack.files --count 5000 --seed 1

Each is read in a child process with bounded time and memory. A rejected file leaves no node behind.
An accepted one runs on the interpreter, which checks each index, and compiled, with arguments that
end at pages without access: no crash, and the same results if arithmetic is exact.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import mmap
import os
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
from typing import Any

import numpy as np

import fnx
from fnx.core.ir import ops
from fnx.core.ir.uop import UOp, live_nodes, toposort
from fnx.core.support.config import override
from fnx.core.support.errors import CheckpointError, KernelError
from tests.attack import mutants, seeds

SECONDS, SECONDS_A_BYTE = 2.0, 4e-5  # to read a file, on a busy machine
BYTES, BYTES_A_BYTE = 64 << 20, 2200  # to read one, on top of what the process has
RUN_SECONDS, RUN_BYTES = 5, 2 << 30
MOST = 1 << 22  # elements of arguments that are made
NAMED = re.compile(r"(node \d+|nodes|members|name|ins|outs|consts|in_tree|out_tree|byte [\d,]+)")


def guarded(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a copy whose last element ends a page, followed by one without access."""
    size = -(-max(x.nbytes, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, size + mmap.PAGESIZE)
    whole = np.frombuffer(memory, np.uint8)
    code = ctypes.CDLL(None).mprotect(ctypes.c_void_p(whole.ctypes.data + size),
                                      ctypes.c_size_t(mmap.PAGESIZE), 0)
    assert code == 0
    out = whole[size - x.nbytes:size].view(x.dtype).reshape(x.shape)
    out[...] = x
    return out


def arguments(loaded: Any, seed: int) -> list[Any]:
    """Return leaves for a loaded function: small numbers, and some far out of bounds."""
    rng = np.random.default_rng(seed)
    found = []
    for aval in loaded.in_avals:
        if aval.dtype.name == "key<fry>":
            found.append(fnx.numpy.broadcast_to(fnx.random.key(seed), aval.shape))
            continue
        numbers = rng.integers(-3, 20, aval.shape)
        if aval.dtype.is_bool or aval.dtype.storage is not None or aval.dtype.bits < 8:
            found.append(np.asarray(fnx.numpy.asarray(numbers % 2).astype(aval.dtype.name)))
        else:
            with np.errstate(all="ignore"):
                far = np.asarray([2 ** 31 - 1, -2 ** 31, 10 ** 6])[rng.integers(0, 3, aval.shape)]
                numbers = np.where(rng.random(aval.shape) < 0.1, far, numbers)
                found.append(guarded(numbers.astype(aval.dtype.np)))
    return found


def is_exact(function: UOp) -> bool:
    """Return whether all machines give the same bits."""
    return all(n.op.exact and not (n.op is ops.REDUCE and n.dtype.is_float) and
               n.op not in (ops.BITCAST, ops.SORT) and not n.dtype.is_float
               for n in toposort([function], into_functions=True))


def run(loaded: Any, seed: int) -> str:
    """Run a loaded function and return what happened."""
    closed = loaded._closed.function
    sizes = [np.prod(n.shape) for n in toposort([closed], into_functions=True) if n.shape]
    if max(sizes, default=0) > MOST:
        return "large"
    leaves = arguments(loaded, seed)
    args = fnx.core.array.tree.unflatten(loaded._in_tree, leaves)
    found: list[Any] = []
    for device in ("interp", "cpu"):
        try:
            with override(device=device):
                found.append([np.asarray(x) for x in fnx.tree.leaves(loaded(*args))])
        except KernelError as error:
            if device == "interp" and "index" in error.message:
                raise
            return "refused when it ran"
        except fnx.FnxError:
            return "refused when it ran"
    same = all(a.shape == b.shape and a.dtype == b.dtype for a, b in zip(*found))
    assert same, "other types on the cpu"
    if is_exact(closed):
        for a, b in zip(*found):
            np.testing.assert_array_equal(a, b)
        return "ran, equal"
    return "ran"


def check_one(seed: int, path: str) -> str:
    """Read a mutant in this process and return what happened."""
    kind, name, data = mutants.mutant(seed)
    path = f"{path}.{kind}"
    with open(path, "wb") as file:
        file.write(data)
    load: Any = fnx.load_exported if kind == "fnx" else fnx.load
    load_whole(kind, path)
    gc.collect()
    before = live_nodes()
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    begun = time.process_time()
    found = why = None
    try:
        found = load(path)
    except CheckpointError as error:
        why = error.message
    seconds = time.process_time() - begun
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10) - used
    assert seconds < SECONDS + SECONDS_A_BYTE * len(data), f"{seconds} s for {len(data)} bytes"
    assert peak < BYTES + BYTES_A_BYTE * len(data), f"{peak} bytes for {len(data)} bytes"
    if why is not None:
        assert NAMED.search(why), why
        # tables drop entries on next use
        kept = [kept_after(load, path) for _ in range(3)]
        assert kept[-1] <= max(kept[0], before), f"{kept} nodes are kept of {before}: {why}"
        return f"{kind} refused"
    return f"{kind} {run(found, seed)}" if kind == "fnx" else f"{kind} read"


def kept_after(load: Any, path: str) -> int:
    """Return how many nodes live after a file was rejected once more."""
    with contextlib.suppress(CheckpointError):
        load(path)
    gc.collect()
    return live_nodes()


def load_whole(kind: str, path: str) -> None:
    """Load an intact file of a kind, to load the modules it needs."""
    whole = f"{path}.whole.{kind}"
    with open(whole, "wb") as file:
        file.write(next(iter(mutants.corpus(kind).values())))
    (fnx.load_exported if kind == "fnx" else fnx.load)(whole)


def check(seed: int) -> str:
    """Check a mutant in a child process, which may not die by a signal, except for its time
    limit."""
    mutants.corpus(mutants.KINDS[seed % len(mutants.KINDS)])
    read, write = os.pipe()
    child = os.fork()
    if not child:
        _in_child(seed, read, write)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGXCPU and said.startswith("begun"), \
            f"ended by {signal.Signals(os.WTERMSIG(status)).name}: {said[:300]}"
        return "long"
    assert said.startswith("begun found"), said
    return said.removeprefix("begun found ")


def _in_child(seed: int, read: int, write: int) -> None:
    os.close(read)
    try:
        memory = int(open("/proc/self/statm").read().split()[0]) * mmap.PAGESIZE
        resource.setrlimit(resource.RLIMIT_AS, (memory + RUN_BYTES,) * 2)
        seconds = int(time.process_time()) + int(SECONDS) + RUN_SECONDS
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 2))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with tempfile.TemporaryDirectory() as folder, override(cache_dir=""):
            os.write(write, b"begun ")
            text = f"found {check_one(seed, os.path.join(folder, 'x'))}"
    except MemoryError:
        text = "found out of memory when it ran"
    except BaseException:
        text = traceback.format_exc(limit=-6)
    os.write(write, text.encode(errors="replace")[:4000])
    os._exit(0)


def main() -> int:
    return seeds.attack(str(__doc__), "mutants", check)


if __name__ == "__main__":
    sys.exit(main())
