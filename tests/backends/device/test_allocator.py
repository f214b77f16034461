"""The pool: alignment, no overlap between live blocks, reuse, and what it returns to the system."""

import gc
import os
import subprocess
import sys
import threading
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
from fnx.backends.device.allocator import (
    ALIGNMENT,
    CARVE_COUNT,
    HUGE,
    SLAB,
    Pool,
    PoolBlock,
    size_class,
)
from fnx.backends.device.hcq import HostStorage
from fnx.core.support.errors import DeviceError, OutOfMemoryError, ShapeError

sizes = st.one_of(st.integers(0, 5000), st.integers(0, 4 << 20))


@given(st.integers(0, 1 << 50))
def test_a_class_holds_its_sizes_and_wastes_little(nbytes):
    size = size_class(nbytes)
    assert size >= max(nbytes, 1) and size % ALIGNMENT == 0
    assert size_class(size) == size
    assert size <= max(nbytes * 9 // 8 + 1, nbytes + ALIGNMENT)


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_classes_grow_with_sizes(a, b):
    assert (size_class(a) <= size_class(b)) or a > b


@settings(max_examples=50)
@given(st.lists(st.tuples(st.booleans(), sizes), max_size=60))
def test_live_blocks_are_aligned_and_apart(steps):
    pool, live = Pool(), []
    for free, nbytes in steps:
        if free and live:
            live.pop(nbytes % len(live))
        else:
            live.append(PoolBlock(pool, nbytes))
    spans = sorted((b.ptr, b.ptr + max(b.nbytes, 1)) for b in live)
    assert all(start % ALIGNMENT == 0 for start, _ in spans)
    assert all(end <= start for (_, end), (start, _) in zip(spans, spans[1:]))
    live.clear()
    pool.trim()


@given(st.lists(st.lists(st.sampled_from([1, 20, 65, 130, 260, 1040, 5000]), max_size=8),
                max_size=8))
def test_results_of_calls_are_apart(calls):
    """Also if a new size is allocated between two known ones."""
    pool, held = Pool(), []
    for i, sizes in enumerate(calls):
        held.append(HostStorage.allocate_all(pool, None, sizes))
        if i % 2:
            held.pop(0)
        spans = sorted((s.ptr, s.ptr + s.nbytes) for made in held for s in made)
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))


def test_freed_memory_is_reused_at_once():
    pool = Pool()
    for nbytes in (1, 100, 40_000, 3 << 20):
        address = PoolBlock(pool, nbytes).ptr
        assert PoolBlock(pool, nbytes).ptr == address


def test_sizes_of_one_class_share_memory():
    pool = Pool()
    address = PoolBlock(pool, 1000).ptr
    assert PoolBlock(pool, 1024).ptr == address and size_class(1000) == size_class(1024)


def test_nothing_is_preallocated_and_trim_returns_it():
    pool = Pool()
    assert pool.stats() == {"held": 0, "free": 0}
    block = PoolBlock(pool, HUGE)
    assert HUGE <= pool.stats()["held"] <= HUGE + (64 << 10) and pool.stats()["free"] == 0
    del block
    assert pool.stats()["free"] == HUGE
    pool.trim()
    assert pool.stats() == {"held": 0, "free": 0}


def test_what_nobody_had_for_a_while_goes_back():
    pool = Pool()
    kept, used, idle = (PoolBlock(pool, n * HUGE) for n in (1, 2, 3))
    del used, idle
    pool.release_idle()
    assert pool.stats()["free"] == 5 * HUGE  # it was free for less than one interval
    PoolBlock(pool, 2 * HUGE)  # allocated and freed
    pool.release_idle()
    assert pool.stats()["free"] == 2 * HUGE
    pool.release_idle()
    assert pool.stats()["free"] == 0 and pool.stats()["held"] >= kept.nbytes
    assert PoolBlock(pool, 3 * HUGE).ptr


def test_idle_memory_goes_back_by_itself():
    code = """
import time
from fnx.backends.device.allocator import PoolBlock, Pool
pool = Pool()
PoolBlock(pool, 64 << 20)
end = time.monotonic() + 100
while pool.stats()["held"] and time.monotonic() < end:
    time.sleep(0.02)
print(pool.stats())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          env={**os.environ, "FNX_IDLE_SECONDS": "0.05"}, timeout=200)
    assert done.stdout.strip() == "{'held': 0, 'free': 0}", done.stderr


def test_cached_memory_is_bounded():
    """Blocks of sizes that are never requested again do not accumulate."""
    pool = Pool()
    for i in range(200):
        PoolBlock(pool, (32 << 20) + i * (5 << 20))
    assert pool.stats()["held"] < 4 << 30


def test_the_whole_block_is_writable():
    import ctypes

    pool = Pool()
    blocks = [PoolBlock(pool, n) for n in (1, 64, 65, 32 << 10, (32 << 10) + 1, HUGE, 3 * HUGE + 5)]
    for i, b in enumerate(blocks):
        ctypes.memset(b.ptr, i + 1, b.nbytes)
    for i, b in enumerate(blocks):
        assert set(ctypes.string_at(b.ptr, b.nbytes)) == {i + 1}


def test_threads_never_share_a_block():
    pool, clashes = Pool(), []

    def work(mark: int) -> None:
        rng = np.random.default_rng(mark)
        import ctypes

        for _ in range(300):
            blocks = [PoolBlock(pool, int(n)) for n in rng.integers(1, 3000, 8)]
            for b in blocks:
                ctypes.memset(b.ptr, mark, b.nbytes)
            if any(set(ctypes.string_at(b.ptr, b.nbytes)) != {mark} for b in blocks):
                clashes.append(mark)

    threads = [threading.Thread(target=work, args=(i + 1,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not clashes


def test_an_impossible_allocation_says_how_much():
    pool = Pool()
    with pytest.raises(DeviceError, match=r"expected 4,611,686,018,427,387,904 bytes .*held"):
        PoolBlock(pool, 1 << 62)
    gc.collect()  # the incomplete block has nothing to free
    assert PoolBlock(pool, 100).ptr


def test_a_failed_allocation_first_empties_the_pool():
    """Under an address-space limit, memory cached in one size class serves another."""
    code = """
import resource
from fnx.backends.device.allocator import PoolBlock, Pool
pool = Pool()
PoolBlock(pool, 8 << 20)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (230 << 20), resource.RLIM_INFINITY))
for mb in (100, 150, 200, 120):
    PoolBlock(pool, mb << 20)
print("fine")
"""
    if not sys.platform.startswith("linux"):
        pytest.skip("reads /proc")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "fine\n", done.stderr


@pytest.mark.cases(2)
@pytest.mark.parametrize("nbytes", [1 << 57, (1 << 63) - 1, 1 << 63, 1 << 64, (1 << 64) + 64])
def test_what_no_machine_has_is_refused(nbytes: int) -> None:
    """Also if the number of bytes, truncated to 64 bits, is small."""
    with pytest.raises(OutOfMemoryError):
        Pool().take(nbytes)
    with pytest.raises(MemoryError):
        fnx.numpy.eye(nbytes >> 33)


def test_a_shape_that_numpy_has_not() -> None:
    """It has no elements, and the product of its other lengths overflows 64 bits."""
    x = fnx.numpy.zeros((2**40, 2**40, 0))
    with pytest.raises(ShapeError, match="NumPy"):
        np.asarray(x)


def test_sizes_of_a_class_cost_no_objects() -> None:
    pool = Pool()
    keep = [PoolBlock(pool, 100_000)]
    gc.collect()
    before = len(gc.get_objects())
    for n in range(99_000, 100_000):
        PoolBlock(pool, n)
    gc.collect()
    assert len(gc.get_objects()) < before + 100 and keep


def test_blocks_are_carved_as_they_are_needed() -> None:
    pool = Pool()
    first = PoolBlock(pool, 64)
    assert len(pool.owners) == CARVE_COUNT
    held = [first, *[PoolBlock(pool, 64) for _ in range(SLAB // 64)]]
    places = sorted(block.ptr for block in held)
    assert all(b - a >= 64 for a, b in zip(places, places[1:]))
    assert pool.stats()["held"] == 2 * SLAB
    assert pool.stats()["free"] == 2 * SLAB - 64 * len(held)
