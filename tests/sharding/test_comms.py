"""What programs cost on meshes that do not exist: collectives, their times, a search."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.ir import dtypes, ops
from fnx.core.ir.collectives import Collective, ProcessGrid
from fnx.core.support.errors import ArgumentError, ShapeError
from fnx.sharding import TOPOLOGIES, AbstractMesh, Level, NamedSharding, Topology, comms, plan
from fnx.sharding.topology import seconds

MESH = AbstractMesh((4, 2), ("data", "model"))


def shaped(*shape: int, spec: tuple[Any, ...] = (), mesh: AbstractMesh = MESH) -> Any:
    return fnx.ShapeDtypeStruct(shape, "float32", sharding=NamedSharding(mesh, fnx.P(*spec)))


def layer(w: Any, v: Any, x: Any) -> Any:
    return jnp.tanh(x @ w) @ v


def test_a_layer_cut_by_both_axes_has_one_sum() -> None:
    f = fnx.jit(layer)
    args = shaped(64, 128, spec=(None, "model")), shaped(128, 64, spec=("model",)), \
        shaped(32, 64, spec=("data",))
    row, = f.lower(*args).comms().rows
    assert (row.routine, row.axes, row.count) == ("all_reduce", ("model",), 1)
    assert row.nbytes == 32 // 4 * 64 * 4 == comms(f, *args).nbytes
    assert comms(f, *args).out_specs == (fnx.P("data", None),)


def test_collectives_in_a_scan_count_for_each_step_and_constraints_hold() -> None:
    def f(w: Any, x: Any) -> Any:
        def step(c: Any, _: None) -> tuple[Any, None]:
            c = fnx.lax.with_sharding_constraint(jnp.tanh(c @ w), NamedSharding(MESH, fnx.P()))
            return c, None
        return lax.scan(step, x, None, 5)[0]
    report = comms(f, shaped(64, 64, spec=(None, "model")), shaped(8, 64))
    assert [(row.routine, row.count) for row in report.rows] == [("all_gather", 5)]


@settings(max_examples=60)
@given(st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]),
       st.sampled_from([2, 8, 16, 64, 512]), st.integers(1, 1 << 20))
def test_times_grow_with_bytes_and_latency(routine: str, n: int, size: int) -> None:
    def time(size: int, slower: float = 1.0) -> float:
        levels = [Level("a", 8, 1e-6 * slower, 1e11), Level("b", 512, 1e-5 * slower, 1e10)]
        arg = Collective(routine, ProcessGrid(("d",), (n,)), ("d",),
                         (((size * n,), dtypes.float32),), monoid=ops.ADD)
        return seconds(arg, Topology(tuple(levels), 1e12, 1e11))
    assert 0 < time(size) < time(2 * size) and time(size) < time(size, 2.0)
    slowest, nbytes = (1e11 if n <= 8 else 1e10), 4 * size * n
    assert time(size) <= 2 * n * nbytes / slowest + 2 * n * 1e-5


def test_the_formula_of_one_level_is_the_one_of_the_paper() -> None:
    arg = Collective("all_reduce", ProcessGrid(("d",), (16,)), ("d",),
                     (((1000,), dtypes.float32),), monoid=ops.ADD)
    time = seconds(arg, Topology((Level("a", 16, 2e-6, 1e9),), 1e12, 1e11))
    assert math.isclose(time, 2 * 4 * 2e-6 + 2 * 15 / 16 * 4000 / 1e9)


def test_a_search_finds_what_people_take() -> None:
    """Rows of a batch over devices; with a limit of memory, weights too."""
    def step(w: Any, x: Any) -> Any:
        return w - 0.1 * fnx.grad(lambda w: (jnp.tanh(x @ w) ** 2).sum())(w)
    args = [fnx.ShapeDtypeStruct(s, "float32") for s in ((2048, 2048), (1 << 16, 2048))]
    mesh = AbstractMesh((8,), ("d",))
    found = plan(step, args, mesh)
    assert found.shardings[1].spec == fnx.P("d", None)
    assert found.report.total < found.replicated.total / 4
    limit = found.replicated.argument_bytes // 4
    fits = plan(step, args, mesh, memory=limit)
    assert fits.report.argument_bytes + fits.report.result_bytes <= limit
    assert "args[1] as P('d', None): " in repr(found)
    with pytest.raises(ArgumentError, match="at most 1 KB"):
        plan(step, args, mesh, memory=1000)


def test_bad_input() -> None:
    with pytest.raises(ArgumentError, match="an argument with a NamedSharding"):
        comms(layer, *[jnp.ones((4, 4))] * 3)
    with pytest.raises(ArgumentError, match="over one mesh"):
        comms(jnp.add, shaped(8, spec=("data",)),
              shaped(8, spec=("x",), mesh=AbstractMesh((4,), ("x",))))
    with pytest.raises(ShapeError):
        comms(jnp.sin, shaped(7, spec=("data",)))
    with pytest.raises(ArgumentError, match="infiniband"):
        comms(jnp.sin, shaped(8, spec=("data",)), topology="carrier pigeon")
    with pytest.raises(ArgumentError, match="multiple"):
        comms(jnp.sin, shaped(8, spec=("data",)), topology=Topology(
            (Level("a", 8, 1e-6, 1e9), Level("b", 12, 1e-6, 1e9)), 1e12, 1e11))
    assert set(TOPOLOGIES) == {"nvlink", "infiniband", "ethernet"}
