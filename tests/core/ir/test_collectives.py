"""Collectives: what each process gets, what is legal, how they print."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fnx.core.ir import build, collectives, dtypes, ops
from fnx.core.ir.collectives import ProcessGrid
from fnx.core.levels import interp, show, spec
from fnx.core.support.errors import ArgumentError
from tests.lower.partition.processes import run_ranks

GRID = ProcessGrid(("a", "b"), (2, 3))
BLOCKS = np.arange(6 * 12, dtype=np.float32).reshape(6, 6, 2)  # one for each rank


def run(routine: str, names: tuple[str, ...], **options: Any) -> list[Any]:
    x = build.param(0, dtypes.float32, (6, 2))
    outs = collectives.collective(routine, GRID, names, () if routine == "process_index" else [x],
                                  **options)
    function = build.function(outs, 1)
    spec.check([function], "tensor")
    return [out for out, in run_ranks(GRID, lambda r: interp.apply(function, [BLOCKS[r]]))[0]]


@pytest.mark.parametrize("names", [("a",), ("b",), ("a", "b"), ("b", "a"), ()])
def test_each_process_gets_its_part(names: tuple[str, ...]) -> None:
    groups = [collectives.group(GRID, rank, names) for rank in range(6)]
    n = GRID.count(names)
    for rank, out in enumerate(run("process_index", names)):
        assert out == groups[rank].index(rank)
    for rank, out in enumerate(run("all_reduce", names, monoid=ops.ADD)):
        np.testing.assert_array_equal(out, BLOCKS[[*groups[rank]]].sum(0))
    for rank, out in enumerate(run("all_gather", names, axis=1)):
        np.testing.assert_array_equal(out, np.concatenate(BLOCKS[[*groups[rank]]], 1))
    for rank, out in enumerate(run("reduce_scatter", names, axis=0, monoid=ops.MAX)):
        at = groups[rank].index(rank)
        np.testing.assert_array_equal(out, np.split(BLOCKS[[*groups[rank]]].max(0), n)[at])
    for rank, out in enumerate(run("all_to_all", names, axis=0, to_axis=1)):
        at = groups[rank].index(rank)
        np.testing.assert_array_equal(out, np.concatenate(
            [np.split(x, n)[at] for x in BLOCKS[[*groups[rank]]]], 1))


def test_a_permutation_sends_blocks_and_zeros_to_who_gets_none() -> None:
    out = run("permute", ("b",), pairs=((0, 1), (1, 2)))
    for rank in range(6):
        np.testing.assert_array_equal(out[rank], BLOCKS[rank - 1] if rank % 3 else 0 * BLOCKS[0])


def test_operands_that_do_not_fit_are_refused() -> None:
    x = build.param(0, dtypes.float32, (5, 2))
    for routine, options in [("reduce_scatter", {"monoid": ops.ADD}), ("all_to_all", {"axis": 0}),
                             ("all_gather", {"axis": 2}), ("all_reduce", {}), ("gossip", {}),
                             ("permute", {"pairs": ((0, 1), (0, 2))})]:
        with pytest.raises(ArgumentError, match="fit the processes"):
            collectives.collective(routine, GRID, ("b",), [x], **options)


def test_a_program_for_more_processes_names_the_cure() -> None:
    function = build.function(collectives.collective("process_index", GRID, ("a",)), 0)
    with pytest.raises(ArgumentError, match=r"(?s)6 processes.*in as many processes"):
        interp.apply(function, [])


def test_a_collective_prints_its_axes() -> None:
    x = build.param(0, dtypes.float32, (6, 2))
    function = build.function(collectives.collective(
        "all_reduce", GRID, ("a", "b"), [build.neg(x), x], monoid=ops.ADD), 1)
    assert "= all_reduce[a, b](" in show.pretty(function)
