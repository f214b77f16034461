"""Loops of commands as one kernel: what they give, which are, how they are cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.backends.base import get_device
from fnx.core import ops, parts
from fnx.core.config import override
from fnx.core.uop import toposort
from fnx.lower.loops import loop_kernels

N = 20
rng = np.random.default_rng(0)
WORDS = rng.integers(0, 3, (2, N)).astype("int32")


def subsequence(a: Any, b: Any) -> Any:
    def row(i: Any, table: Any) -> Any:
        def cell(j: Any, table: Any) -> Any:
            best = jnp.maximum(table[i, j + 1], table[i + 1, j])
            return table.at[i + 1, j + 1].set(jnp.where(a[i] == b[j], table[i, j] + 1, best))
        return lax.fori_loop(0, 5, cell, table)
    return lax.fori_loop(0, 5, row, jnp.zeros((6, 6), jnp.int32))


def knapsack(a: Any, b: Any) -> Any:
    def item(table: Any, given: Any) -> Any:
        weight, value = given

        def place(k: Any, table: Any) -> Any:
            left = 30 - k
            taken = jnp.where(left >= weight, table[jnp.maximum(left - weight, 0)] + value, 0)
            return table.at[left].max(taken)
        return lax.fori_loop(0, 31, place, table), table.sum()
    return lax.scan(item, jnp.zeros(31, jnp.int32), (a[:4] + 3, b[:4] + 1))


def outside(a: Any, b: Any) -> Any:
    """Places before and behind a table: reads are clamped, writes are left out."""
    def step(i: Any, table: Any) -> Any:
        table = table.at[3 * i].set(table[5 * i - 40] + 1, mode="drop")
        return table.at[i - N].add(a[i])
    return lax.fori_loop(0, N, step, b)


def queue(a: Any, b: Any) -> Any:
    """A loop that data end, whose scalars go round."""
    def step(state: Any) -> Any:
        head, tail, table, last = state
        table = table.at[tail].set(table[head] + last)
        return head + 1, tail + 1 + head % 2, table, table[head]
    table = jnp.concatenate([a, jnp.zeros(40, jnp.int32)])
    return lax.while_loop(lambda s: s[1] < 40, step, (0, N, table, jnp.int32(1)))


def rounds(a: Any, b: Any) -> Any:
    """A carry that two buffers hold: each step reads all of it after the first write."""
    def step(c: Any, x: Any) -> Any:
        return jnp.cumsum(c[::-1])[jnp.argsort(x + c)] % 7, c[0]
    return lax.scan(step, a, b[:, None] * jnp.arange(N))


def swapped(a: Any, b: Any) -> Any:
    """Two tables that change places, one of which a step writes a cell of."""
    def step(i: Any, both: Any) -> Any:
        x, y = both
        return y, x.at[y[i] % N].add(y[0])
    return lax.fori_loop(0, N - 1, step, (a, b))


def branches(a: Any, b: Any) -> Any:
    def step(i: Any, table: Any) -> Any:
        return lax.switch(table[i], [lambda t: t.at[i].add(5), lambda t: t[::-1],
                                     lambda t: t.at[0].set(i)], table)
    return lax.fori_loop(0, N, step, a)


def backwards(a: Any, b: Any) -> Any:
    def step(table: Any, x: Any) -> Any:
        k, y = x
        table = table.at[k].add(table[(k + 1) % N] * y)
        return table, table[k]
    return lax.scan(step, a, (jnp.arange(N), b), reverse=True)


def counts_that_change(a: Any, b: Any) -> Any:
    """What begins as 0, 1, 2 ... and does not stay so, beside what does."""
    def step(i: Any, both: Any) -> Any:
        table, far = both
        return table.at[table[i] % N].add(i), far.at[i - 3].set(table[i - 2] + far[i + 50])
    return lax.fori_loop(3, N, step, (jnp.arange(N), jnp.arange(5, 70)))


PROGRAMS = [subsequence, knapsack, outside, queue, swapped, branches, backwards,
            counts_that_change]


def kernels(f: Callable[..., Any], *args: Any) -> list[Any]:
    """The LOOPs of a function that are kernels."""
    found = fnx.jit(f).lower(*args).commands
    return [run.src[0] for run in parts.executions(found) if run.src[0].op is ops.LOOP]


def agree(f: Callable[..., Any], *args: Any) -> None:
    """The values of the interpreter, and those of the loops of commands."""
    with override(check_spec=True):
        got = fnx.tree.leaves(fnx.jit(f)(*args))
    with override(unfused="loop_kernels"):
        plain = fnx.tree.leaves(fnx.jit(f)(*args))
    with override(device="interp"):
        want = fnx.tree.leaves(fnx.jit(f)(*args))
    for x, y, z in zip(got, plain, want, strict=True):
        np.testing.assert_array_equal(np.asarray(x), np.asarray(z))
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_the_interpreter_gives_the_same(f: Any) -> None:
    assert len(kernels(f, *WORDS)) == 1
    agree(f, *WORDS)


@pytest.mark.parametrize("f", [rounds, *PROGRAMS], ids=lambda f: f.__name__)
def test_over_lanes(f: Any) -> None:
    agree(fnx.vmap(f), *np.stack([WORDS, WORDS[::-1]]))


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("cycles", [300, 3000])
def test_loops_that_are_cut(f: Any, cycles: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Into portions of some steps, of which the last is shorter."""
    monkeypatch.setattr(loop_kernels, "STEPS", cycles)
    monkeypatch.setattr(loop_kernels, "FIRST", cycles)
    with override(check_spec=True, cache_bytes=0):
        fnx.clear_caches()
        got = fnx.tree.leaves(fnx.jit(f)(*WORDS))
    fnx.clear_caches()
    with override(unfused="loop_kernels"):
        want = fnx.tree.leaves(fnx.jit(f)(*WORDS))
    for x, y in zip(got, want, strict=True):
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_the_interpreter_runs_the_kernel(f: Any) -> None:
    """The commands of the cpu, loops that are kernels among them."""
    found = fnx.jit(f).lower(*WORDS)
    sizes: dict[int, int] = {}
    for node in toposort([found.commands]):
        if node.op is ops.SLOT and node.arg.kind == "out":
            sizes[node.arg.index] = node.arg.nbytes
    device = get_device("interp")
    ins = [device.upload(word) for word in WORDS]
    outs = device.allocate([sizes[i] for i in range(len(sizes))])
    device.encode(found.commands, {}, found.arena).submit(ins, outs)
    for out, want in zip(outs, fnx.tree.leaves(fnx.jit(f)(*WORDS)), strict=False):
        np.testing.assert_array_equal(out.view(np.dtype(str(want.dtype)), want.shape),
                                      np.asarray(want))


def test_a_gradient_through_a_table() -> None:
    def loss(x: Any) -> Any:
        def step(table: Any, i: Any) -> Any:
            return table.at[i + 1].set(jnp.sin(table[i]) * table[(3 * i) % N]), None
        return lax.scan(step, x, jnp.arange(N - 1))[0].sum()
    x = rng.standard_normal(N).astype("float32")
    assert kernels(fnx.grad(loss), x)
    with override(device="interp"):
        want = np.asarray(fnx.jit(fnx.grad(loss))(x))
    np.testing.assert_allclose(np.asarray(fnx.jit(fnx.grad(loss))(x)), want, rtol=1e-5)


def test_large_steps_stay_commands() -> None:
    def f(x: Any, w: Any) -> Any:
        return lax.fori_loop(0, 10, lambda i, x: jnp.tanh(x @ w).at[i].set(0.0), x)
    assert not kernels(f, np.zeros((256, 256), "f4"), np.zeros((256, 256), "f4"))


def test_the_commands_are_printed_with_what_is_inside() -> None:
    text = fnx.jit(subsequence).lower(*WORDS).text("commands")
    assert "kernel row(" in text and "    for j in 0 .. 5:" in text


def test_what_counts_is_not_read_from_memory() -> None:
    found = fnx.jit(subsequence).lower(*WORDS)
    assert "numbers[4*i:+4], numbers[4*j:+4]" in found.text("commands")
    assert "smin" not in found.llvm()  # no place is clamped


def test_profiles_know_what_is_inside() -> None:
    found = fnx.jit(queue).lower(*WORDS)
    assert found.cost_analysis()["bytes accessed"] > 0
    assert "while" in str(found.roofline(measured=False)) or found.kernels
