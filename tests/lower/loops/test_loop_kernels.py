"""Command loops as one kernel: their values, which loops qualify, and how they are strip-mined."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.backends.device.base import get_device
from fnx.core.ir import accessors, build, ops
from fnx.core.ir.uop import toposort
from fnx.core.support.config import override
from fnx.lower.loops import strip_mine

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
    """Indices before and after a table: reads are clamped, writes are dropped."""
    def step(i: Any, table: Any) -> Any:
        table = table.at[3 * i].set(table[5 * i - 40] + 1, mode="drop")
        return table.at[i - N].add(a[i])
    return lax.fori_loop(0, N, step, b)


def queue(a: Any, b: Any) -> Any:
    """A loop with a data-dependent condition and scalar carries."""
    def step(state: Any) -> Any:
        head, tail, table, last = state
        table = table.at[tail].set(table[head] + last)
        return head + 1, tail + 1 + head % 2, table, table[head]
    table = jnp.concatenate([a, jnp.zeros(40, jnp.int32)])
    return lax.while_loop(lambda s: s[1] < 40, step, (0, N, table, jnp.int32(1)))


def rounds(a: Any, b: Any) -> Any:
    """A carry with two buffers: each step reads all of it after the first write."""
    def step(c: Any, x: Any) -> Any:
        return jnp.cumsum(c[::-1])[jnp.argsort(x + c)] % 7, c[0]
    return lax.scan(step, a, b[:, None] * jnp.arange(N))


def swapped(a: Any, b: Any) -> Any:
    """Two tables that are swapped; a step writes an element of one of them."""
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
    """A carry that starts as 0, 1, 2 ... and changes, next to one that does not."""
    def step(i: Any, both: Any) -> Any:
        table, far = both
        return table.at[table[i] % N].add(i), far.at[i - 3].set(table[i - 2] + far[i + 50])
    return lax.fori_loop(3, N, step, (jnp.arange(N), jnp.arange(5, 70)))


def sieve(a: Any, b: Any) -> Any:
    """A data-dependent loop in a branch in a counted loop."""
    def cross_out(p: Any, prime: Any) -> Any:
        def of(prime: Any) -> Any:
            return lax.while_loop(lambda s: s[0] < 90, lambda s: (
                s[0] + p, s[1].at[s[0]].set(p)), (p * p, prime))[1]
        return lax.cond(prime[p] == 0, of, lambda prime: prime, prime)
    return lax.fori_loop(2, 10, cross_out, jnp.zeros(90, jnp.int32))


def forest(a: Any, b: Any) -> Any:
    """Two consecutive loops, which may run no steps."""
    def root(parent: Any, i: Any) -> Any:
        return lax.while_loop(lambda i: parent[i] != i, lambda i: parent[i], i)

    def join(k: Any, parent: Any) -> Any:
        return parent.at[root(parent, (7 * k + a[k]) % N)].set(root(parent, (k + b[k]) % N))
    return lax.fori_loop(0, N, join, jnp.arange(N))


def three_deep(a: Any, b: Any) -> Any:
    """Nested data-dependent loops with a counted loop between them, and a branch."""
    def inner(s: Any) -> Any:
        k, t = s
        return k - 1, t.at[k % N].add(k)

    def middle(i: Any, t: Any) -> Any:
        t = lax.while_loop(lambda s: s[0] > 0, inner, (t[i] % 4, t.at[i].add(1)))[1]
        return lax.fori_loop(0, 2, lambda j, t: t.at[i + j].add(t[i] + j), t)

    def outer(s: Any) -> Any:
        n, t = s
        t = lax.switch(n % 3, [lambda t: lax.fori_loop(0, 4, middle, t), lambda t: t.at[n].add(2),
                               lambda t: inner((n, middle(1, t)))[1]], t)
        return n + 1 + t[n] % 2, t.at[n].add(n)
    return lax.while_loop(lambda s: s[0] < N, outer, (0, a))


def turned_inside(a: Any, b: Any) -> Any:
    """An inner carry with two buffers, one that an outer step swaps, and rows indexed by the
    counter."""
    def step(c: Any, given: Any) -> Any:
        x, y = c
        k, row = given

        def inside(s: Any) -> Any:
            n, z, last = s
            return n - 1 - z[n] % 2, z[::-1].at[n % 5].add(row[n % 3]), z
        n, z, last = lax.while_loop(lambda s: s[0] > 0, inside, (k, x, y))
        return (last, z.at[k].add(n)), z[k] + last[0]
    return lax.scan(step, (a, b), (jnp.arange(N) % 6, jnp.stack([a, b, a + b], 1)))


def never(a: Any, b: Any) -> Any:
    """An inner loop with no steps, followed by an outer loop with none."""
    def step(i: Any, t: Any) -> Any:
        return lax.while_loop(lambda s: s[0] < 0, lambda s: (s[0] + 1, s[1] + 1), (i, t))[1]
    t = lax.fori_loop(0, N, step, a)
    return t, lax.while_loop(lambda s: s[0] < 0, lambda s: (s[0], step(s[0], s[1])), (3, t))


ENDED_BY_DATA = [sieve, forest, three_deep, turned_inside]
PROGRAMS = [subsequence, knapsack, outside, queue, swapped, branches, backwards,
            counts_that_change, *ENDED_BY_DATA]


def kernels(f: Callable[..., Any], *args: Any) -> list[Any]:
    """Return the CMD_LOOPs of a function that became kernels."""
    found = fnx.jit(f).lower(*args).commands
    return [run.src[0] for run in accessors.all_execs(found) if run.src[0].op is ops.CMD_LOOP]


def agree(f: Callable[..., Any], *args: Any) -> None:
    """Check that the values are the interpreter's, and those of command loops."""
    with override(check_spec=True):
        got = fnx.tree.leaves(fnx.jit(f)(*args))
    with override(unfused="loop_kernels"):
        plain = fnx.tree.leaves(fnx.jit(f)(*args))
    with override(device="interp"):
        want = fnx.tree.leaves(fnx.jit(f)(*args))
    for x, y, z in zip(got, plain, want, strict=True):
        np.testing.assert_array_equal(np.asarray(x), np.asarray(z))
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


@pytest.mark.cases(4)
@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_the_interpreter_gives_the_same(f: Any) -> None:
    assert len(kernels(f, *WORDS)) == 1
    agree(f, *WORDS)


@pytest.mark.cases(4)
@pytest.mark.parametrize("k", [-1, 0, 1, 2])
def test_a_branch_in_another_on_the_same_number(k: int) -> None:
    def f(a: Any, k: Any) -> Any:
        def step(i: Any, table: Any) -> Any:
            def inside(t: Any) -> Any:
                return lax.switch(k, [lambda t: t.at[i].add(5), lambda t: t.at[0].add(i),
                                      lambda t: t.at[1].add(2)], t)
            return lax.switch(k, [lambda t: inside(t.at[2].add(1)), lambda t: inside(t[::-1]),
                                  lambda t: inside(t.at[4].add(1))], table)
        return lax.fori_loop(0, N, step, a)
    assert len(kernels(f, WORDS[0], np.int32(k))) == 1
    agree(f, WORDS[0], np.int32(k))


@pytest.mark.cases(3)
@pytest.mark.parametrize("f", [rounds, never, *PROGRAMS], ids=lambda f: f.__name__)
def test_over_lanes(f: Any) -> None:
    agree(fnx.vmap(f), *np.stack([WORDS, WORDS[::-1]]))


@pytest.mark.cases(2)
@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("cycles", [300, 3000])
def test_loops_that_are_cut(f: Any, cycles: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loops are cut into strips, the last of which is shorter."""
    monkeypatch.setattr(strip_mine, "KERNEL_CYCLES", cycles)
    monkeypatch.setattr(strip_mine, "STRIP_CYCLES", cycles)
    with override(check_spec=True, cache_bytes=0):
        fnx.clear_caches()
        got = fnx.tree.leaves(fnx.jit(f)(*WORDS))
    fnx.clear_caches()
    with override(unfused="loop_kernels"):
        want = fnx.tree.leaves(fnx.jit(f)(*WORDS))
    for x, y in zip(got, want, strict=True):
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


@pytest.mark.cases(4)
@pytest.mark.parametrize("f", [never, *ENDED_BY_DATA], ids=lambda f: f.__name__)
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_strips_go_on_where_they_ended(f: Any, steps: int, monkeypatch: pytest.MonkeyPatch
                                         ) -> None:
    monkeypatch.setattr(strip_mine, "MAX_STEPS", steps)
    fnx.clear_caches()
    with override(cache_bytes=0):
        found = {loop.arg.strip_length for loop in kernels(f, *WORDS)}
        agree(f, *WORDS)
    fnx.clear_caches()
    assert found <= {0, steps} and (steps in found or f is never)


@pytest.mark.cases(3)
@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_the_interpreter_runs_the_kernel(f: Any) -> None:
    """The interpreter runs the commands of the cpu device, including loops that are kernels."""
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
    assert "smin" not in found.llvm()  # no index is clamped


def test_profiles_know_what_is_inside() -> None:
    found = fnx.jit(queue).lower(*WORDS)
    assert found.cost_analysis()["bytes accessed"] > 0
    assert "while" in str(found.roofline(measured=False)) or found.kernels


def test_a_number_is_copied_as_one() -> None:
    """An element that a step wrote is read back alone, not with the rest of its cache line."""
    copies = [run.src[0] for loop in kernels(queue, *WORDS) for run in accessors.all_execs(loop)
              if run.arg.name.startswith("copy")]
    assert copies
    assert {build.const_of(d) for k in copies
            for d in accessors.dims(accessors.buffer(k.src[0]))} == {1}


def test_parts_of_a_carry_with_two_buffers_are_copied_whole() -> None:
    """An odd number of narrow elements, in rows that a step writes one at a time."""
    def f(a: Any, b: Any) -> Any:
        def step(i: Any, both: Any) -> Any:
            rows, seen = both
            new = jnp.stack([rows[(i + k) % 3] + b[i % 5].astype(jnp.int8) for k in (1, 2, 0)])
            return new, seen.at[i].set(new[2, i % 5].astype(jnp.int32))
        return lax.fori_loop(0, N, step, (a[:15].astype(jnp.int8).reshape(3, 5), b))
    agree(f, *WORDS)


def test_a_number_in_two_buffers_one_of_them_a_row_of_results() -> None:
    """The carry of a loop is a row of a scan's results; a kernel inside reads and writes it."""
    def f(a: Any, b: Any) -> Any:
        table = jnp.outer(jnp.tile(a, 12), jnp.tile(b, 12))  # its product is no part of a kernel

        def step(c: Any, start: Any) -> Any:
            def outer(s: Any) -> Any:
                k, x, y = s

                def inside(t: Any) -> Any:
                    n, i, row = t
                    return n - 1, i * 3 % 7, row.at[i].add(x + n)
                row = lax.while_loop(lambda t: t[0] > 0, inside, (k + y % 2, y % 7, a))[2]
                return k + 1, x + row[3], (table @ table)[k, 2] % 5 + row[0] % 3
            return c + 1, lax.while_loop(lambda s: s[0] < 3, outer, (start, c, start))[1:]
        return lax.scan(step, a[0], b[:3])
    assert len(kernels(f, *WORDS)) == 1
    agree(f, *WORDS)
