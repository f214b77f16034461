"""The program of a process: equal values, and which collectives it has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.lax as lax
import fnx.numpy as jnp
from fnx.core.ir.axis_partitions import Partitions
from fnx.core.ir.collectives import Collective, ProcessGrid
from fnx.core.support.errors import FnxError, ShapeError
from fnx.lower.partition.partition import partition
from tests.lower.partition.programs import compare, compare_layers, compare_random, traced
from tests.lower.partition.shard_programs import compare_sharded, constraints
from tests.sharding import programs

A, AB = ProcessGrid(("a",), (4,)), ProcessGrid(("a", "b"), (2, 2))
RNG = np.random.default_rng(0)
ROWS, COLUMNS, WHOLE = (("a",), ()), ((), ("a",)), ((), ())
X, Y = [RNG.standard_normal(shape) for shape in ((8, 4), (8, 4))]
W = [RNG.standard_normal(shape) for shape in ((4, 8), (8, 8), (8, 8), (8, 4))]


def run(f: Callable[..., Any], cuts: list[Partitions], *xs: Any, grid: ProcessGrid = A,
        **options: Any) -> tuple[list[Partitions], list[Collective]]:
    function, args = traced(f, *xs)
    params = [*cuts, *[((),) * x.ndim for x in args[len(cuts):]]]
    return compare(function, args, grid, params, rtol=1e-5, **options)[1:]


def names(log: list[Collective]) -> Counter[str]:
    return Counter([arg.name for arg in log])


def mlp(x: Any, *ws: Any) -> Any:
    for i, w in enumerate(ws):
        x = x @ w if i == len(ws) - 1 else jnp.tanh(x @ w)
    return x


def loss(x: Any, y: Any, *ws: Any) -> Any:
    return ((mlp(x, *ws) - y) ** 2).mean()


def test_random_programs_have_the_values_of_whole_arrays() -> None:
    for seed in range(60):
        compare_random(seed)
        compare_layers(seed)


def test_data_parallel_gradients_are_summed_once() -> None:
    grads = fnx.value_and_grad(loss, argnums=(2, 3, 4, 5))
    parts, log = run(grads, [ROWS, ROWS, *[WHOLE] * 4], X, Y, *W)
    assert names(log) == {"all_reduce": 1} and len(log[0].ins) == 5  # in one message
    assert parts == [(), *[WHOLE] * 4]

    def step(x: Any, y: Any, *ws: Any) -> Any:
        return [w - 0.1 * g for w, g in zip(ws, grads(x, y, *ws)[1])]
    _, log = run(step, [ROWS, ROWS, *[WHOLE] * 4], X, Y, *W)
    assert names(log) == {"all_reduce": 4}


def test_tensor_parallel_layers_are_summed_once_a_pair() -> None:
    cuts = [WHOLE, COLUMNS, ROWS, COLUMNS, ROWS]
    parts, log = run(mlp, cuts, X, *W)
    assert names(log) == {"all_reduce": 2} and parts == [WHOLE]
    both = [ROWS, *[tuple([("b",) if p else () for p in cut]) for cut in cuts[1:]]]
    parts, log = run(mlp, both, X, *W, grid=AB)
    assert names(log) == {"all_reduce": 2} and parts == [ROWS]


def test_cut_weights_are_gathered_if_activations_are_larger() -> None:
    x = RNG.standard_normal((64, 4))
    _, log = run(mlp, [ROWS, ROWS, ROWS, ROWS, ROWS], x, *W)
    assert names(log) == {"all_gather": 4}
    assert all(arg.ins[0][0][0] in (1, 2) for arg in log)  # the blocks of weights


def test_fully_cut_weights_are_gathered_and_their_gradients_scattered() -> None:
    def step(x: Any, y: Any, *ws: Any) -> Any:
        grads = fnx.grad(loss, argnums=(2, 3, 4, 5))(x, y, *ws)
        return [w - 0.1 * g for w, g in zip(ws, grads)]
    x, y = RNG.standard_normal((2, 64, 4))
    parts, log = run(step, [ROWS] * 6, x, y, *W)
    assert names(log) == {"all_gather": 4, "reduce_scatter": 4} and parts == [ROWS] * 4


def test_a_batch_axis_of_vmap_is_cut_as_others() -> None:
    parts, log = run(fnx.vmap(fnx.grad(lambda x, w: jnp.tanh(x @ w).sum()), (0, None)),
                     [ROWS, WHOLE], X, W[0])
    assert parts == [ROWS] and not log


def test_loops_and_branches_are_cut_inside() -> None:
    def rnn(xs: Any, h: Any, w: Any) -> Any:
        return lax.scan(lambda h, x: (jnp.tanh(h @ w + x), h.sum()), h, xs)
    xs, h = RNG.standard_normal((5, 8, 4)), np.zeros((8, 4))
    parts, log = run(rnn, [((), ("a",), ()), WHOLE], xs, h, RNG.standard_normal((4, 4)))
    assert parts[0] == ROWS and set(names(log)) == {"all_reduce"}

    def loop(x: Any) -> Any:
        return lax.while_loop(lambda x: jnp.sum(x) < 100, lambda x: x * 2 + 1, x)
    assert run(loop, [ROWS], np.abs(X))[0] == [ROWS]
    branch = lambda x: lax.cond(x.sum() > 0, lambda x: x * 2, lambda x: x.T.T - 1, x)
    assert run(branch, [ROWS], X)[0] == [ROWS]


def test_gradients_that_add_up_over_steps_are_summed_after_the_loop() -> None:
    def microbatches(w: Any, xs: Any, ys: Any) -> Any:
        def step(total: Any, batch: Any) -> Any:
            return total + fnx.grad(loss, argnums=2)(*batch, w), None
        return lax.scan(step, jnp.zeros_like(w), (xs, ys))[0]

    def recurrent(w: Any, xs: Any, h: Any) -> Any:
        h, ys = lax.scan(lambda h, x: (jnp.tanh(h @ w + x), h), h, xs)
        return (h ** 2).sum() + (ys ** 2).sum()
    w, xs, ys = [RNG.standard_normal(shape) for shape in ((4, 4), (5, 8, 4), (5, 8, 4))]
    steps = ((), ("a",), ())
    for f, cuts, arrays in ((microbatches, [WHOLE, steps, steps], (w, xs, ys)),
                            (fnx.value_and_grad(recurrent), [WHOLE, steps, ROWS], (w, xs, ys[0]))):
        assert names(run(f, cuts, *arrays)[1]) == {"all_reduce": 1}


def test_other_ops_on_axes_that_are_whole_need_no_collective() -> None:
    for f in (lambda x: jnp.sort(x, 1), lambda x: jnp.argmax(x, 1), lambda x: jnp.cumsum(x, 1),
              lambda x: jnp.linalg.norm(x, axis=1), lambda x: jnp.fft.rfft(x, axis=1),
              lambda x: x.reshape(2, 4, 2, 2).reshape(8, 4),
              lambda x: jnp.pad(x[:, 1:], ((0, 0), (1, 2))),
              lambda x: jnp.where(jnp.arange(8)[:, None] < 3, x, 0)):
        _, log = run(f, [ROWS], X)
        assert names(log)["all_gather"] == 0, f


def test_random_bits_do_not_depend_on_the_cuts() -> None:
    run(lambda x: x + fnx.random.normal(fnx.random.key(3), (8, 4)), [ROWS], X)


def test_shard_map_runs_on_processes() -> None:
    ran = 0
    for seed in range(24):
        try:
            compare_sharded(programs.draw(seed), (2, 4, 8)[seed % 3], seed % 2 == 0)
        except FnxError:
            continue
        ran += 1
    assert ran > 8


@pytest.mark.parametrize(("f", "routine"), [
    (lambda x: lax.psum(x, "a"), "all_reduce"), (lambda x: lax.pmax(x, "a"), "all_reduce"),
    (lambda x: lax.psum_scatter(x, "a", scatter_dimension=0, tiled=True), "reduce_scatter"),
    (lambda x: lax.psum_scatter(x, "a", scatter_dimension=1, tiled=True), "reduce_scatter"),
    (lambda x: lax.all_to_all(x, "a", 0, 1, tiled=True), "all_to_all"),
    (lambda x: lax.all_to_all(x, "a", 1, 0, tiled=True), "all_to_all"),
    (lambda x: lax.ppermute(x, "a", [(i, (i + 1) % 4) for i in range(4)]), "permute"),
    (lambda x: lax.all_gather(x, "a", axis=0, tiled=True), "all_gather")])
def test_a_collective_of_shard_map_is_one(f: Callable[..., Any], routine: str) -> None:
    mesh = fnx.make_mesh((4,), ("a",))
    for count in (2, 4):
        grid = ProcessGrid(("a",), (count,))
        _, log = run(fnx.shard_map(f, mesh=mesh, in_specs=fnx.P("a"), out_specs=fnx.P("a"),
                                   check_vma=False),
                     [ROWS], RNG.standard_normal((16, 8)), grid=grid,
                     constraint=constraints({"a": 4}, grid))
        assert set(names(log)) == {routine} and len(log) == 1


def test_the_gradient_of_a_permutation_is_one() -> None:
    mesh = fnx.make_mesh((4,), ("a",))
    for pairs in ([(0, 1), (1, 2), (2, 3), (3, 0)], [(0, 2), (3, 1)]):
        def f(x: Any, pairs: Any = pairs) -> Any:
            send = lambda x: lax.ppermute(x, "a", pairs)
            return (fnx.shard_map(send, mesh=mesh, in_specs=fnx.P("a"),
                                  out_specs=fnx.P("a"))(x) ** 2).sum()
        _, log = run(fnx.grad(f), [ROWS], X, constraint=constraints({"a": 4}, A))
        assert names(log) == {"permute": 2}


def test_gradients_of_tables_are_summed_once() -> None:
    def f(table: Any, tokens: Any) -> Any:
        return jnp.tanh(table[tokens]).sum()
    tokens = RNG.integers(0, 16, (8, 3)).astype(np.int32)
    _, log = run(fnx.grad(f), [WHOLE, ROWS], RNG.standard_normal((16, 4)), tokens)
    assert names(log) == {"all_reduce": 1}


def test_rolls_and_flips_send_rows() -> None:
    for f, count in ((lambda x: x - jnp.roll(x, 1, 0), 1), (lambda x: x[::-1] * 2, 1),
                     (lambda x: jnp.roll(x, 3, 0) + jnp.roll(x, -1, 0), 3)):
        _, log = run(f, [ROWS], X)
        assert names(log) == {"permute": count}


def step(u: Any) -> Any:
    return u.at[1:-1].add(0.1 * (u[2:] - 2 * u[1:-1] + u[:-2]))


STENCILS: dict[str, tuple[Callable[[Any], Any], dict[str, int]]] = {
    "fixed ends": (step, {"permute": 2}),
    "steps": (lambda u: lax.fori_loop(0, 3, lambda i, u: step(u), u), {"permute": 6}),
    "gradient": (fnx.grad(lambda u: (step(u) ** 2).sum()), {"permute": 4}),
    "set": (lambda u: u.at[1:-1].set((u[2:] + u[:-2]) / 2), {"permute": 2}),
    "two axes": (lambda u: u.at[1:-1, 1:-1].add(u[2:, 1:-1] + u[1:-1, :-2]), {"permute": 1}),
    "padded": (lambda u: jnp.pad(u, ((1, 1), (0, 0)), constant_values=7)[2:] - u, {"permute": 1}),
    "joined": (lambda u: jnp.concatenate([u[:1], (u[2:] + u[:-2]) / 2, u[-1:]]), {"permute": 2}),
    "sum of squares": (lambda u: ((u[1:] - u[:-1]) ** 2).sum(), {"permute": 1, "all_reduce": 1}),
    "largest": (lambda u: jnp.abs(u[2:] - u[:-2]).max(0), {"permute": 1, "all_reduce": 1}),
    "transposed": (lambda u: (u[1:] - u[:-1]).T.sum(), {"permute": 1, "all_reduce": 1}),
    "places": (lambda u: u.at[1:].add(u[:-1] * jnp.arange(15)[:, None]), {"permute": 2}),
    "further than a block": (lambda u: u.at[5:].add(u[:-5]), {"all_gather": 1})}


@pytest.mark.parametrize("name", STENCILS)
def test_stencils_exchange_the_rows_at_borders(name: str) -> None:
    f, count = STENCILS[name]
    _, log = run(f, [ROWS], RNG.standard_normal((16, 4)))
    assert {**names(log), "process_index": 0} == {**count, "process_index": 0}


def test_blocks_must_be_equal() -> None:
    function, _ = traced(lambda x: x + 1, np.ones(6))
    with pytest.raises(ShapeError, match=r"(?s)equal blocks, got \(6,\).*pad it"):
        partition(function, A, [(("a",),)])
