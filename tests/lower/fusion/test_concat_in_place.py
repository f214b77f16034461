"""Operands of a CONCAT are computed in place: few kernels, few bytes, equal values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.support.config import override
from fnx.lower.fusion import concat_in_place
from tests.helpers import small_integers


def kernels_of(f: Any, *args: Any) -> Any:
    with override(device="null"):
        return fnx.jit(f).lower(*args).kernels


def test_sums_are_written_into_their_stack() -> None:
    kernels = kernels_of(lambda x: jnp.stack([x.sum(0), x.max(0), x.prod(0)]), small_integers(5, 8))
    assert [k.name.split()[0] for k in kernels] == ["reduce"] * 3


def test_what_has_to_be_elsewhere_is_copied() -> None:
    """Copied are an operand that occurs twice, a result, an argument and a constant."""
    def f(m: Any, x: Any) -> Any:
        total, peak = x.sum(0), x.max(0)
        parts = [total, peak, peak, x[0], m.zeros((8,)), *[x.sum(0) * i for i in range(70)]]
        return m.concatenate([m.stack(parts), x]) * 2, total

    x = small_integers(5, 8)
    for got, want in zip(fnx.jit(lambda x: f(jnp, x))(x), f(np, x)):
        np.testing.assert_array_equal(got, want)


def test_the_gradient_of_a_loop_over_rows_takes_linear_time_and_memory() -> None:
    """The transpose of reading xs[t] for each t is a stack of rows."""
    def kernels(steps: int) -> Any:
        def loss(w: Any, xs: Any) -> Any:
            h = jnp.zeros(3)
            for t in range(steps):
                h = jnp.tanh(w @ h + w @ xs[t])
            return h.sum()
        return kernels_of(fnx.grad(loss, argnums=1), small_integers(3, 3), small_integers(steps, 3))

    few, many = kernels(70), kernels(140)
    assert len(many) - len(few) <= 3 * 70 and len({k.node for k in many}) <= 8
    assert sum(k.bytes for k in many) < 2.1 * sum(k.bytes for k in few)


def test_many_columns_are_a_stack_that_is_transposed() -> None:
    x = small_integers(70, 6, 3)

    def f(m: Any, x: Any) -> Any:
        return m.stack([x[i].sum(1) for i in range(70)], 1), \
            m.concatenate([x[i] * 2 for i in range(70)], 1)
    for got, want in zip(fnx.jit(lambda x: f(jnp, x))(x), f(np, x)):
        np.testing.assert_array_equal(got, want)
    assert len({k.node for k in kernels_of(lambda x: f(jnp, x), x)}) <= 4


def test_in_loops_and_over_donated_memory() -> None:
    def step(c: Any, x: Any) -> Any:
        rows = jnp.stack([c.sum(0), c.max(0) * x, c.min(0)])
        return rows, jnp.concatenate([rows.sum(1), c.sum(1)])

    c, xs = small_integers(3, 3), small_integers(4, 3, seed=1)
    last, ys = fnx.jit(lambda c, xs: lax.scan(step, c, xs), donate_argnums=0)(jnp.asarray(c), xs)
    for x, y in zip(xs, ys):
        rows = np.stack([c.sum(0), c.max(0) * x, c.min(0)])
        np.testing.assert_array_equal(y, np.concatenate([rows.sum(1), c.sum(1)]))
        c = rows
    np.testing.assert_array_equal(last, c)


# ---- programs -----------------------------------------------------------------------------------


def program(m: Any, rng: np.random.Generator, x: Any) -> list[Any]:
    """A random program of rows computed from one another; some are stacked, and stacks are
    nested."""
    rows = [x[i] for i in range(3)]
    some: list[Any] = []
    for _ in range(int(rng.integers(4, 14))):
        kind, i, j = rng.integers(0, 7), *rng.integers(0, len(rows), 2)
        a, b = rows[i], rows[j]
        if kind < 2:
            rows.append(m.maximum(a, b) - 1)
        elif kind == 2:
            rows.append(m.full((6,), int(i), np.float32))
        elif kind == 3:
            rows.append(x.min(0) + a[::-1])
        else:
            parts = [rows[k] for k in rng.integers(0, len(rows), int(rng.integers(2, 11)))]
            some.append(m.stack(parts) if kind < 6 else m.concatenate(parts).reshape(-1, 6))
            if len(some) > 1:
                some.append(m.concatenate([some[-2], x[:2], some[-1]]))
            rows += [some[-1].max(0), m.minimum(some[-1][int(i) % 2], 9)]
    return [*[r for r in rows if rng.random() < .3], *[s for s in some if rng.random() < .5], x]


@pytest.mark.cases(2)
@pytest.mark.parametrize("device", ["cpu", "interp"])
@pytest.mark.parametrize("always", [True, False])
def test_programs(device: str, always: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if always:  # operands have buffers wherever possible
        monkeypatch.setattr(concat_in_place, "is_profitable", lambda node,
                            *_: concat_in_place.is_contiguous(node))
    x = small_integers(4, 6)
    for seed in range(6 if device == "cpu" and not always else 16):
        want = program(np, np.random.default_rng(seed), x)
        with override(device=device):
            got = fnx.jit(lambda x, seed=seed: program(jnp, np.random.default_rng(seed), x))(x)
        for g, w in zip(got, want):
            np.testing.assert_array_equal(g, w, err_msg=str(seed))


@pytest.mark.cases(1)
@pytest.mark.parametrize("read", [lambda x: jnp.roll(x, 1, 0) - x,
                                  lambda x: x[1:] * x[:-1] + x[1:2]])
def test_a_stack_read_at_several_rows_is_written_first(read: Any) -> None:
    """One kernel would select among all columns for each read."""
    def f(x: Any) -> Any:
        return read(jnp.stack([jnp.sin(x[:, k % 4] * (k + 1)) for k in range(20)], -1))
    x = small_integers(64, 4).astype(np.float32)
    group, = [g for g in fnx.jit(f).lower(x).text("groups").split("group ") if "concat([t" in g
              and ", axis=1" in g]
    assert "sin(" in group and group.count("concat([") == 1
    with override(device="interp"):
        want = fnx.jit(f)(x)
    np.testing.assert_allclose(fnx.jit(f)(x), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("parts,expected", [(2, 1), (7, 2)])
def test_columns_of_many_parts_that_are_read_twice_are_in_memory(parts: int, expected: int) -> None:
    """A kernel that reduces its columns would select among all parts at each element, and the
    next one again."""
    def f(x: Any, labels: Any) -> Any:
        hot = fnx.nn.one_hot(labels, 100)
        wide = jnp.concatenate([hot if k % 3 == 1 else x for k in range(parts)], 1)
        return wide / (jnp.abs(wide).max(0) + 1)
    x = np.linspace(-2, 3, 2000 * 50, dtype=np.float32).reshape(2000, 50)
    labels = np.arange(2000, dtype=np.int32) * 7 % 103
    assert len(kernels_of(f, x, labels)) == expected
    hot = (labels[:, None] == np.arange(100)).astype(np.float32)
    wide = np.concatenate([hot if k % 3 == 1 else x for k in range(parts)], 1)
    np.testing.assert_allclose(fnx.jit(f)(x, labels), wide / (np.abs(wide).max(0) + 1), rtol=1e-6)
