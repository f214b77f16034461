"""The cost model of schedules: facts that are known of machines hold, and every kernel has a
cost."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.ir import build, dtypes, ops, tiling
from fnx.core.ir.uop import UOp, toposort
from fnx.core.support.target import Target
from fnx.lower.attention.tile_attention import tile_attention
from fnx.lower.candidates import candidates, first
from fnx.lower.pipeline import lower
from fnx.lower.schedule.cost_model import predict_cycles
from fnx.lower.schedule.heuristics import schedule_for_knobs
from fnx.lower.schedule.knobs import KnobValues, TuningKnobs
from fnx.lower.tensor.inline import inline
from fnx.lower.tensor.simplify import simplify
from tests.lower.test_candidates import CASES, TARGETS, kernels

CPU = Target("cpu", cores=2)


def product(m: int, k: int, n: int, pitch: int = 0) -> UOp:
    """x @ w, where w is a slice of wider rows."""
    i, j, t = (build.range_(e, id, name=name) for id, (e, name) in enumerate((
        (m, "i"), (n, "j"), (k, "t"))))
    x = build.load(build.index_into(build.ref(0, dtypes.float32, (m, k)), i, t))
    w = build.load(build.index_into(build.ref(1, dtypes.float32, (k, pitch or n)), t, j))
    o = build.index_into(build.ref(2, dtypes.float32, (m, n)), i, j)
    return build.kernel([build.store(o, build.reduce_ranges(build.mul(x, w), ops.ADD, [t]))],
                        "product", (0, 1, 2))


def cost(kernel: UOp, target: Target = CPU, **plan: Any) -> float:
    from_rules = TuningKnobs(KnobValues(**plan))
    made, _ = first(kernel, target)
    return predict_cycles(made, schedule_for_knobs(made, target, from_rules), target)


def test_lanes_tiles_and_workers_pay() -> None:
    kernel = product(256, 256, 256)
    naive, model = predict_cycles(kernel, (), CPU), cost(kernel)
    assert model < naive / 30
    assert cost(kernel, tile=(1, 1)) > 2 * model
    assert cost(kernel, parallel=False) > 1.5 * model
    assert model < cost(kernel, Target("cpu", cores=1)) < 2.1 * model


def test_twice_the_work_is_twice_as_long() -> None:
    assert 1.8 < cost(product(512, 256, 256)) / cost(product(256, 256, 256)) < 2.1
    assert 1.8 < cost(product(256, 256, 512)) / cost(product(256, 256, 256)) < 2.1


def test_rows_a_page_apart_are_lost_by_caches() -> None:
    """The same panel of 64 columns, in rows of 1024 floats and in rows of 1040."""
    page_apart, near = (product(512, 1024, 64, pitch) for pitch in (1024, 1040))
    assert cost(page_apart, form="tile", right="") > 1.03 * cost(near, form="tile", right="")


def walked(place: Callable[[UOp, UOp], tuple[UOp, ...]], dims: tuple[int, ...]) -> float:
    """Return the cost of 512 independent sums, each of values read at 512 strided addresses."""
    i, j = build.range_(512, 0, name="i"), build.range_(512, 1, name="j")
    value = build.load(build.index_into(build.ref(0, dtypes.float32, dims), *place(i, j)))
    kernel = build.kernel([build.store(
        build.index_into(build.ref(1, dtypes.float32, (512,)), j),
        build.reduce_ranges(value, ops.ADD, [i]))], "walked", (1, 0))
    return predict_cycles(kernel, (tiling.split("j", 16, "jo", "jl"), tiling.order("i", "jo", "jl"),
                                   tiling.unroll("jo"), tiling.vectorize("jl")), CPU)


def test_strided_lanes_wait_for_a_line_each() -> None:
    near = walked(lambda i, j: (i, j), (512, 512))
    assert walked(lambda i, j: (j, i), (512, 512)) > 20 * near


def test_rows_that_begin_inside_of_a_line_take_two_for_a_vector() -> None:
    near = walked(lambda i, j: (i, j), (512, 512))
    assert 1.1 * near < walked(lambda i, j: (i, j), (512, 513)) < 2 * near


def test_digits_of_a_place_are_one_index() -> None:
    by = build.index_const(16)

    def digits(i: UOp, j: UOp) -> tuple[UOp, ...]:
        return (build.elementwise(ops.IDIV, i, by), build.elementwise(ops.REM, i, by), j)
    assert walked(digits, (32, 16, 512)) == walked(lambda i, j: (i, j), (512, 512))


def test_a_loop_that_a_condition_ends_takes_half() -> None:
    def scores(q: Any, k: Any, v: Any, causal: bool) -> Any:
        s = q @ k.swapaxes(-1, -2)
        n = q.shape[-2]
        s = jnp.where(jnp.arange(n) <= jnp.arange(n)[:, None], s, -jnp.inf) if causal else s
        return fnx.nn.softmax(s) @ v
    whole, half = (sum(by_blocks(partial(scores, causal=causal))) for causal in (False, True))
    assert 0.4 < half / whole < 0.7


def by_blocks(f: Any) -> list[float]:
    """Return the costs of the kernels of attention regions."""
    x = fnx.ShapeDtypeStruct((8, 2048, 64), "float32")
    made = tile_attention(simplify(inline(fnx.make_jaxpr(f)(x, x, x).function)), CPU)
    return [predict_cycles(n.src[0], n.arg.schedule, CPU) for n in toposort(made.src)
            if n.op is ops.CALL and n.arg.schedule]


def test_a_panel_beyond_the_second_cache_is_worth_packing() -> None:
    kernel = product(2048, 2048, 2048)
    assert cost(kernel) < cost(kernel, form="tile", right="", left="")


def test_what_is_not_legal_is_infinite() -> None:
    assert predict_cycles(product(8, 8, 8), (tiling.vectorize("nobody"),), CPU) == math.inf


@pytest.mark.cases(18)
@pytest.mark.parametrize("target", [CPU, *TARGETS.values()], ids=["cpu", *TARGETS])
@pytest.mark.parametrize("name", CASES)
def test_candidates_come_in_the_order_of_their_cost(name: str, target: Target) -> None:
    for kernel in kernels(name, target):
        made, model = first(kernel, target)
        model_again, *others = candidates(made, target)
        assert model_again.schedule == model.schedule
        found = [predict_cycles(made, c.schedule, target) for c in others]
        assert found == sorted(found) and all(0 < c < math.inf for c in found)


def test_lengths_that_are_known_at_run_time_only() -> None:
    graph = fnx.jit(lambda x: jnp.exp(x - x.max(1, keepdims=True))).lower(jnp.zeros((40, 50))).graph
    any_length: list[UOp] = []
    made = lower(graph, CPU, frozenset())
    any_length += [kernel for kernel in made.code if kernel.op is ops.KERNEL]
    assert any_length
    assert all(0 < predict_cycles(kernel, (), CPU) < math.inf for kernel in any_length)
