"""Donated arguments are overwritten where nothing else can observe it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.lax as lax
import fnx.numpy as jnp
from fnx.backends.cpu.device import CpuCommandBuffer
from fnx.core.support.config import OWN_MEMORY, config, override
from fnx.core.support.errors import DonatedError

N = 1000


def commands(f: Any, *args: Any) -> str:
    """Return the printed command list."""
    text: str = f.lower(*args).text("commands")
    return text


def address(x: Any) -> int:
    pointer: int = x._storage.ptr
    return pointer


def shift(x: Any, n: int = 10) -> Any:
    return lax.fori_loop(0, n, lambda i, x: x.at[i].set(x[i] + x[i + 1]), x)


def scanned(x: Any) -> Any:
    return lax.scan(lambda x, v: (x.at[3].add(v), v * 2), x, jnp.arange(5.0))


CASES: dict[str, tuple[Any, Any]] = {
    "update": (lambda x: x.at[2].set(7.0), None),
    "elementwise": (lambda x: x * 2 + 1, None),
    "fori": (shift, None), "scan": (lambda x: scanned(x)[0], None),
    "scan with rows": (scanned, None),
    "while": (lambda x: lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1,
              s[1].at[s[0]].add(2.0)), (0, x))[1], None),
    "nested": (lambda x: lax.fori_loop(0, 3, lambda i, x: shift(x, 4), x), None)}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("device", ["cpu", "interp"])
def test_the_result_is_in_the_memory_of_the_argument(name: str, device: str) -> None:
    f = CASES[name][0]
    with override(device=device):
        x = jnp.asarray(np.random.default_rng(0).standard_normal(N).astype(np.float32) + 0)
        want = fnx.jit(f)(x + 0)
        g = fnx.jit(f, donate_argnums=0)
        given = x + 0
        for _ in range(3):  # by the general path and by the fast path
            given = x + 0
            at = address(given)
            got = g(given)
            first = got[0] if isinstance(got, tuple) else got
            assert address(first) == at
        want_first = want[0] if isinstance(want, tuple) else want
        np.testing.assert_array_equal(first, want_first)


def test_the_printed_plan_has_no_copy() -> None:
    x = jnp.ones(N)
    kept, given = fnx.jit(shift), fnx.jit(shift, donate_argnums=0)
    assert "copy(" in commands(kept, x)
    assert "copy(" not in commands(given, x) and "out0" not in commands(given, x)


def test_views_and_arrays_in_common_keep_their_values() -> None:
    g = fnx.jit(lambda x: x * 0 - 1, donate_argnums=0)
    x = jnp.ones(N) + 1
    view = np.asarray(x)
    assert float(g(x)[0]) == -1 and (view == 2).all()
    x = jnp.ones(N) + 1
    y = fnx.jit(lambda x: x.reshape(10, 100))(x)
    g(x).block_until_ready()
    assert (np.asarray(y) == 2).all()
    x = jnp.ones(N) + 1
    a, b = fnx.jit(lambda x: (x + 1, x + 1))(x)
    g(a).block_until_ready()
    assert (np.asarray(b) == 3).all()
    assert (np.asarray(x) == 2).all()


def test_what_graphs_hold_keeps_its_value() -> None:
    g = fnx.jit(lambda x: x * 0 - 1, donate_argnums=0)
    x = jnp.ones(N) + 1
    pull = fnx.vjp(lambda x: jnp.sin(x) * x * x, x)[1]
    before = np.array(pull(jnp.ones(N))[0])
    g(x).block_until_ready()
    np.testing.assert_array_equal(pull(jnp.ones(N))[0], before)
    x = jnp.ones(N) + 1
    f, consts = fnx.closure_convert(lambda y: y * x, jnp.ones(N))
    g(x).block_until_ready()
    assert float(f(jnp.ones(N), *consts)[0]) == 2
    x = jnp.ones(N) + 1
    h = fnx.jit(lambda y: y + x)
    assert float(h(jnp.ones(N))[0]) == 3
    g(x).block_until_ready()
    assert float(h(jnp.ones(N))[0]) == 3


def test_what_is_captured_keeps_its_value() -> None:
    x = jnp.ones(N) + 1
    g = fnx.jit(lambda y: y * x, donate_argnums=0)
    np.testing.assert_array_equal(g(x), np.full(N, 4, np.float32))


def test_two_of_a_type_each_get_one() -> None:
    step = fnx.jit(lambda p, q, s: (q + s, p - s), donate_argnums=(0, 1))
    p, q = jnp.ones(N) + 0, jnp.ones(N) + 1
    for k in range(4):
        p, q = step(p, q, 0.5)
    assert (float(p[0]), float(q[0])) == (1.0, 2.0)


def test_memory_of_another_length_is_not_taken() -> None:
    """Small buffers have the size of a cache line, whatever their length."""
    g = fnx.jit(lambda x, y: (y[:2].sum() + jnp.ones(5), x * 2), donate_argnums=(0, 1))
    for _ in range(2):
        a, b = g(jnp.ones(3) + 0, jnp.ones(4) + 0)
        np.testing.assert_array_equal(a, np.full(5, 3, np.float32))
        np.testing.assert_array_equal(b, np.full(3, 2, np.float32))


def test_a_result_that_reads_what_another_overwrites() -> None:
    step = fnx.jit(lambda x: (jnp.flip(x) + x, x.sum(), x[::2] * 2), donate_argnums=0)
    for _ in range(3):
        x = jnp.arange(float(N))
        a, s, h = step(x)
        np.testing.assert_array_equal(a, np.full(N, N - 1, np.float32))
        assert float(s) == N * (N - 1) / 2 and float(h[1]) == 4


def test_steps_in_flight() -> None:
    """The memory that a step donates is still in use by the previous step."""
    def f(x: Any) -> Any:
        return (x @ x) / 512 + 0.25

    step, plain = fnx.jit(f, donate_argnums=0), fnx.jit(f)
    x = y = jnp.ones((256, 256))
    x = x + 0
    for _ in range(20):
        x, y = step(x), plain(y)
    np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("warm", [0, 8], ids=["general path", "launcher"])
def test_interrupted_when_it_is_written_over(warm: int, monkeypatch: pytest.MonkeyPatch) -> None:
    step = fnx.jit(lambda w: w * 2, donate_argnums=0)
    w = jnp.ones(1000)
    for _ in range(warm):
        w = step(w)
    kind: Any = CpuCommandBuffer
    if config.device in OWN_MEMORY:
        kind = import_module("fnx.backends.gpu.device").GpuCommandBuffer
    submit = kind.submit

    def then_interrupt(self: Any, *args: Any) -> None:
        submit(self, *args)
        raise KeyboardInterrupt

    monkeypatch.setattr(kind, "submit", then_interrupt)
    with pytest.raises(KeyboardInterrupt):
        step(w)
    monkeypatch.undo()
    with pytest.raises(DonatedError):  # rather than return the overwritten value
        np.asarray(w)
