"""In-place updates: which buffers may alias, and the memory plans of loops that follow from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.backends.device.base import get_device
from fnx.core.ir import build, build_calls, dtypes, ops
from fnx.core.ir.uop import UOp
from fnx.core.levels import interp, show
from fnx.core.support.config import override
from fnx.core.support.record import Record
from fnx.lower.memory.buffer_sharing import hoist_readers
from fnx.lower.memory.in_place import aliasable_slots, copied_slots
from fnx.lower.pipeline import lower
from fnx.transforms.link import link
from tests.lower.steps import TARGET, steps_of

F = dtypes.float32


def shared(*outs: UOp) -> list[tuple[tuple[int, int], ...]]:
    """Return the aliased pairs in the kernels of some results."""
    return [aliasable_slots(step.kernel) for step in steps_of(build.function(outs, 4))]


def x(slot: int = 0, shape: tuple[int, ...] = (8, 16)) -> UOp:
    return build.param(slot, F, shape)


def test_elementwise_work_may_go_over_any_of_its_operands() -> None:
    assert shared(build.add(build.exp(x()), x(1))) == [((2, 0), (2, 1))]


def test_what_is_read_elsewhere_may_not_be_written_over() -> None:
    total = build.reduce(x(), ops.ADD, (1,))
    assert shared(build.permute(x(shape=(8, 8)), (1, 0))) == [()]
    assert shared(build.flip(x(), (0,))) == [()]
    assert shared(build.add(x(), build.expand(build.reshape(total, (8, 1)), (8, 16)))) == [()]


@pytest.mark.parametrize(("rows", "is_in_place"), [
    (lambda y: fnx.nn.softmax(y, -1), True),
    (lambda y: y / jnp.linalg.norm(y, axis=-1, keepdims=True), True),
    (lambda y: jnp.roll(y, 1, 0) - jnp.max(y, -1, keepdims=True), False),
    (lambda y: y[:, ::-1] - jnp.max(y, -1, keepdims=True), False),
], ids=["softmax", "norm", "roll", "flip"])
def test_a_row_that_is_read_before_may_be_written_over(rows: Any, is_in_place: bool) -> None:
    """Its reductions end before its first element is written; those of other rows do not."""
    a, b = (np.random.default_rng(i).standard_normal((n, 256)).astype("float32")
            for i, n in enumerate((300, 256)))
    f = fnx.jit(lambda a, b: rows(a @ b) @ b[:, :4])
    assert (f.lower(a, b).arena < 2 * a.nbytes) == is_in_place
    np.testing.assert_allclose(f(a, b), np.asarray(rows(jnp.asarray(a @ b))) @ b[:, :4],
                               rtol=1e-3, atol=1e-3)


def test_an_accumulated_product_may_go_over_what_is_added() -> None:
    a, b = (build.expand(build.reshape(p, s), (8, 16, 4)) for p, s in (
        (x(1, (8, 4)), (8, 1, 4)), (x(2, (16, 4)), (1, 16, 4))))
    assert shared(build.add(x(), build.reduce(build.mul(a, b), ops.ADD, (2,)))) in (
        [((3, 0),)], [((3, 1),)], [((3, 2),)])


def test_results_that_share_one_loop_may_go_over_their_own_operands() -> None:
    m = build.add(x(), x(1))
    pairs, = shared(m, build.mul(m, x(2)))
    assert {r for _, r in pairs} == {0, 1, 2}


def test_a_copy_is_known() -> None:
    o, i = (build.index_into(build.ref(slot, F, (8,)), build.range_(8, 0)) for slot in (1, 0))
    assert copied_slots(build.kernel([build.store(o, build.load(i))], "copy")) == (1, 0)
    assert copied_slots(build.kernel([build.store(o, build.neg(build.load(i)))], "negate")) is None
    back = build.index_into(build.ref(0, F, (8,)),
                            build.sub(build.index_const(7), build.range_(8, 0)))
    assert copied_slots(build.kernel([build.store(o, build.load(back))], "flip")) is None


# ---- plans ---------------------------------------------------------------------------------------


def printed(f: Any, *args: Any) -> str:
    stages = fnx.jit(f).lower(*args)
    return str(show.pretty(stages.commands, scopes=False))


def test_an_update_in_a_loop_copies_nothing() -> None:
    text = printed(lambda x: lax.fori_loop(0, 9, lambda i, x: x.at[i].set(2.0), x),
                   jnp.zeros(100))
    loop = text[text.index("for i in"):].splitlines()
    assert len(loop) == 2 and "scatter" in loop[1] and "-> m0 " in loop[1]


def test_carries_that_are_padded_and_cut_at_their_own_places_have_one_buffer() -> None:
    """Maxwell's equations: slices of fields are computed from slices of others, and padded back."""
    def step(i: Any, fields: Any) -> Any:
        e, hx, hy = fields
        hx = hx.at[:, :-1].add(-0.5 * (e[:, 1:] - e[:, :-1]))
        hy = hy.at[:-1, :].add(0.5 * (e[1:, :] - e[:-1, :]))
        return e.at[1:, 1:].add(hy[1:, 1:] - hy[:-1, 1:] - hx[1:, 1:] + hx[1:, :-1]), hx, hy

    x = np.random.default_rng(0).normal(size=(3, 33, 35)).astype(np.float32)
    text = printed(lambda *xs: lax.fori_loop(0, 9, step, xs), *x)
    assert "for i in" in text and "|" not in text  # two buffers: (m0|out0 by i)
    with override(device="interp"):
        want = fnx.jit(lambda *xs: lax.fori_loop(0, 9, step, xs))(*x)
    for got, meant in zip(fnx.jit(lambda *xs: lax.fori_loop(0, 9, step, xs))(*x), want):
        np.testing.assert_allclose(got, meant, rtol=1e-4, atol=1e-4)


def test_the_base_of_an_update_that_dies_is_not_copied() -> None:
    text = printed(lambda x: jnp.exp(x @ x).at[3].set(0.0) * 2, jnp.ones((32, 32)))
    assert "map(" not in text and "copy" not in text


def test_a_base_that_is_read_later_is_copied() -> None:
    def f(x: Any) -> Any:
        return lax.fori_loop(0, 3, lambda i, x: x.at[i].set(x[::-1].sum() + x[i]), x)

    with override(device="interp"):
        want = fnx.jit(f)(jnp.arange(10.0))
    np.testing.assert_allclose(fnx.jit(f)(jnp.arange(10.0)), want, rtol=1e-6)


@pytest.mark.parametrize("device", ["cpu", "interp"])
def test_an_update_reads_what_was_there_before(device: str) -> None:
    """Rows are read at the indices of other rows, before and after the one that is written."""
    def f(x: Any) -> Any:
        return lax.fori_loop(0, 4, lambda i, x: x.at[i].set(x[3 - i] + x[i] * 2), x)

    want = np.arange(12.0, dtype=np.float32).reshape(4, 3)
    start = jnp.asarray(want)
    for i in range(4):
        want[i] = want[3 - i] + want[i] * 2
    with override(device=device):
        np.testing.assert_array_equal(fnx.jit(f)(start), want)
        assert start[0, 1] == 1, "the argument stays as it was"


@pytest.mark.parametrize("device", ["cpu", "interp"])
def test_carries_that_change_places(device: str) -> None:
    def f(a: Any, b: Any) -> Any:
        return lax.fori_loop(0, 5, lambda i, c: (c[1], c[0] + c[1]), (a, b))

    with override(device=device):
        a, b = fnx.jit(f)(jnp.asarray([0, 1]), jnp.asarray([1, 1]))
    assert [*np.asarray(a), *np.asarray(b)] == [5, 8, 8, 13]


@pytest.mark.parametrize("device", ["cpu", "interp"])
def test_a_branch_that_updates(device: str) -> None:
    def f(x: Any) -> Any:
        def step(x: Any, i: Any) -> Any:
            return lax.cond(i % 2 == 0, lambda x: x.at[i].add(1.0), lambda x: x, x), x.sum()
        return lax.scan(step, x, jnp.arange(4))

    with override(device=device):
        last, sums = fnx.jit(f)(jnp.zeros(4))
    np.testing.assert_array_equal(last, [1, 0, 1, 0])
    np.testing.assert_array_equal(sums, [0, 1, 1, 2])
    text = printed(f, jnp.zeros(4))
    assert "copy(" not in text[text.index("for i in"):]


def test_time_is_linear_in_the_steps_and_flat_in_the_size() -> None:
    """Counted by the memory that the commands access: each step runs one kernel on one element."""
    small, large = (build.param(0, F, (n,)) for n in (1 << 10, 1 << 20))
    for p in (small, large):
        i = build.param(1, dtypes.int32, ())
        body = build.function([build.scatter(p, [i], build.const(1.0, F))], 2)
        xs = build.param(1, dtypes.int32, (100,))
        fn = build.function(build_calls.scan(body, 100, [], [p], [xs]), 2)
        loop = lower(fn, TARGET).block.commands.src[-1]
        assert loop.op is ops.CMD_LOOP
        kernel, = [e.src[0] for e in loop.src[0].src]
        assert not [r for store in kernel.src for r in store.ranges]


def test_a_loop_over_what_a_loop_made_copies_nothing() -> None:
    def f(x: Any) -> Any:
        x = lax.fori_loop(0, 5, lambda i, x: x * 2, x + 1)
        return lax.fori_loop(0, 5, lambda i, x: x.at[i].set(0.0), x)

    assert printed(f, jnp.ones(100)).count("copy") == 0


def test_values_of_many_loops_in_place() -> None:
    """Random programs of updates, swaps and branches give the interpreter's bits."""
    rng = np.random.default_rng(0)
    cpu = get_device("cpu")
    for seed in range(10):
        n = int(rng.integers(2, 6))
        p, q, i = build.param(0, F, (n, 3)), build.param(1, F, (n, 3)), \
            build.param(2, dtypes.int32, ())
        row = build.gather(q if seed % 2 else p, build.rem(i, build.const_like(i, n)))
        new = build.scatter(p, [i], build.add(row, build.const_like(row, 1.0)))
        other = build.add(q, p) if seed % 3 else build.mul(q, new)
        outs = [new, other] if seed % 5 else [other, new]
        body = build.function(outs, 3)
        a, b = build.param(0, F, (n, 3)), build.param(1, F, (n, 3))
        fn = build.function(build_calls.scan(body, n, [], [a, b], [build.iota(n)]), 2)
        args = [rng.integers(0, 9, (n, 3)).astype(np.float32) for _ in range(2)]
        outs_ = link(fn, cpu).run([cpu.upload(v) for v in args])
        for got, want in zip(outs_, interp.apply(fn, args)):
            np.testing.assert_array_equal(got.view(np.float32, (n, 3)), want)


@pytest.mark.parametrize("device", ["interp", "cpu"])
def test_a_carry_that_is_stacked_too_is_copied(device: str) -> None:
    """The next carry may overwrite the last one, which is dead early; the row of the results may
    not."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((6, 8)).astype("f4"), rng.standard_normal((8, 8)).astype("f4") / 3

    def step(h: Any, _: Any) -> Any:
        new = jnp.tanh(h @ w @ w)
        return new, (h.sum(), new)

    def unrolled(x: Any) -> Any:
        rows = []
        for _ in range(4):
            x, row = step(x, None)
            rows.append(row)
        return x, tuple(map(jnp.stack, zip(*rows)))

    with override(device=device):
        got, want = (fnx.jit(lambda x, f=f: fnx.jvp(f, (x,), (x,)))(x)
                     for f in (lambda x: lax.scan(step, x, None, 4), unrolled))
    for a, b in zip(fnx.tree.leaves(got), fnx.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


class Step(Record):
    """The part of a launch's interface that ``hoist_readers`` uses."""

    name: str
    uses: tuple[UOp, ...]
    writes: tuple[UOp, ...] = ()
    copy_pair: tuple[UOp, UOp] | None = None
    follows_loop: bool = False
    may_alias: tuple[tuple[UOp, UOp], ...] = ()
    has_effects: bool = False


def test_what_asks_how_often_a_loop_ran_stays_behind_it() -> None:
    source, to, carry, row = (x(slot) for slot in range(4))
    steps = [Step("copy", (to, source), (to,), (to, source)),
             Step("for", (to, row), (row,)),
             Step("while", (source, carry), (carry,)),
             Step("which of two", (carry,), (carry,), follows_loop=True)]
    assert [s.name for s in hoist_readers(steps)] == ["while", "which of two", "copy", "for"]
