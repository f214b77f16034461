"""Nothing grows: redefined functions, new constants, new shapes, dropped derivatives."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.array import eager_cache
from fnx.core.ir import derivations
from fnx.core.ir.uop import live_nodes
from fnx.core.support.config import override
from fnx.lower import driver
from fnx.transforms import link

ONE = fnx.jit(lambda x: jnp.tanh(x).sum() + x)


def redefine(i: int) -> None:
    @fnx.jit
    def f(x: fnx.Array) -> fnx.Array:
        return jnp.tanh(x * (i + 0.5)).sum() + x

    f(jnp.ones(4))


def differentiate(i: int) -> None:
    inner = fnx.jit(lambda x: jnp.tanh(x * (i + 0.5)).sum())
    fnx.jit(fnx.grad(lambda x: inner(x)))(jnp.ones(4))


def keep_in_vain(i: int) -> None:
    """Make and drop a pullback over a redefined call."""
    inner = fnx.call(lambda x: jnp.exp(x * (i + 0.5)))
    fnx.vjp(lambda x: inner(x).sum(), jnp.ones(4))


def batch(i: int) -> None:
    """Batch redefined bodies with a collective and with a per-element branch."""
    x = jnp.ones((i % 3 + 2, 3))
    fnx.vmap(fnx.grad(lambda r: (lax.psum(r, "i") * r * (i + 0.5)).sum()), axis_name="i")(x)
    fnx.vmap(lambda r: lax.cond(r.sum() > i, lambda r: r, lambda r: -r, r))(x)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Shrink the caches, so that they are full soon."""
    for cache in (driver._results, link._eager._cache, eager_cache.number_cache,
                  eager_cache._call_cache, derivations.recent_forms):
        monkeypatch.setattr(cache, "limit", 100)
    with override(device="interp", check_spec=False):
        yield


@pytest.mark.cases(1)
@pytest.mark.parametrize("work", [
    redefine, differentiate, keep_in_vain, batch, lambda i: ONE(jnp.ones(i + 1)),
    lambda i: jnp.ones(i + 1) * 2.5],
    ids=["redefinitions", "derivatives", "pullbacks", "batches", "shapes", "eager shapes"])
def test_nodes_and_objects_are_flat(work: Callable[[int], None]) -> None:
    counts = []
    for start, stop in ((0, 300), (300, 350), (350, 400)):
        for i in range(start, stop):
            work(i)
        gc.collect()
        counts.append((live_nodes(), len(gc.get_objects())))
    _, (nodes, objects), (nodes_after, objects_after) = counts
    # What a call leaves in caches depends on its shape, and caches that other tests filled still
    # evict; a leak is 9 nodes and 80 objects for each of the 50 calls.
    assert nodes_after - nodes < 300 and objects_after - objects < 2000, counts
