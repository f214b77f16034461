"""What a schedule is predicted to cost: what is known of machines; every kernel has a number."""

from __future__ import annotations

import math
from typing import Any

import pytest

import fnx
import fnx.numpy as jnp
from fnx.core import build, dtypes, ops, tiling
from fnx.core.target import Target
from fnx.core.uop import UOp
from fnx.lower.pipeline import lower
from fnx.lower.schedule.candidates import candidates, first
from fnx.lower.schedule.choose import decided
from fnx.lower.schedule.cost import predicted
from fnx.lower.schedule.plan import Decisions, Plan
from tests.lower.test_candidates import CASES, TARGETS, kernels

CPU = Target("cpu", cores=2)


def product(m: int, k: int, n: int, pitch: int = 0) -> UOp:
    """x @ w, of which w is a part of wider rows."""
    i, j, t = (build.range_(e, id, name=name) for id, (e, name) in enumerate((
        (m, "i"), (n, "j"), (k, "t"))))
    x = build.load(build.at(build.ref(0, dtypes.float32, (m, k)), i, t))
    w = build.load(build.at(build.ref(1, dtypes.float32, (k, pitch or n)), t, j))
    o = build.at(build.ref(2, dtypes.float32, (m, n)), i, j)
    return build.kernel([build.store(o, build.reduce_ranges(build.mul(x, w), ops.ADD, [t]))],
                        "product", (0, 1, 2))


def cost(kernel: UOp, target: Target = CPU, **plan: Any) -> float:
    from_rules = Decisions(Plan(**plan))
    made, _ = first(kernel, target)
    return predicted(made, decided(made, target, from_rules), target)


def test_lanes_tiles_and_workers_pay() -> None:
    kernel = product(256, 256, 256)
    naive, model = predicted(kernel, (), CPU), cost(kernel)
    assert model < naive / 30
    assert cost(kernel, tile=(1, 1)) > 2 * model
    assert cost(kernel, shared=False) > 1.5 * model
    assert model < cost(kernel, Target("cpu", cores=1)) < 2.1 * model


def test_twice_the_work_is_twice_as_long() -> None:
    assert 1.8 < cost(product(512, 256, 256)) / cost(product(256, 256, 256)) < 2.1
    assert 1.8 < cost(product(256, 256, 512)) / cost(product(256, 256, 256)) < 2.1


def test_rows_a_page_apart_are_lost_by_caches() -> None:
    """The same panel of 64 columns, in rows of 1024 floats and in rows of 1040."""
    apart, near = (product(512, 1024, 64, pitch) for pitch in (1024, 1040))
    assert cost(apart, form="tile", right="") > 1.03 * cost(near, form="tile", right="")


def test_a_panel_beyond_the_second_cache_is_worth_packing() -> None:
    kernel = product(2048, 2048, 2048)
    assert cost(kernel) < cost(kernel, form="tile", right="", left="")


def test_what_is_not_legal_is_infinite() -> None:
    assert predicted(product(8, 8, 8), (tiling.vectorize("nobody"),), CPU) == math.inf


@pytest.mark.parametrize("target", [CPU, *TARGETS.values()], ids=["cpu", *TARGETS])
@pytest.mark.parametrize("name", CASES)
def test_candidates_come_in_the_order_of_their_cost(name: str, target: Target) -> None:
    for kernel in kernels(name, target):
        made, model = first(kernel, target)
        model_again, *others = candidates(made, target)
        assert model_again.schedule == model.schedule
        found = [predicted(made, c.schedule, target) for c in others]
        assert found == sorted(found) and all(0 < c < math.inf for c in found)


def test_lengths_that_are_known_at_run_time_only() -> None:
    graph = fnx.jit(lambda x: jnp.exp(x - x.max(1, keepdims=True))).lower(jnp.zeros((40, 50))).graph
    general: list[UOp] = []
    made = lower(graph, CPU, True)
    general += [kernel for kernel in made.code if kernel.op is ops.KERNEL]
    assert general and all(0 < predicted(kernel, (), CPU) < math.inf for kernel in general)
