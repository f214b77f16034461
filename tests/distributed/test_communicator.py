"""Collectives over MPI against their meaning in NumPy, and what happens if a process does not
come."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.distributed.launch import launch, run

pytest.importorskip("mpi4py")

COLLECTIVES = """
import numpy as np, fnx
fnx.distributed.initialize(num_processes=4)
from fnx.core.ir import dtypes, low_precision, ops
from fnx.core.ir.collectives import Collective, ProcessGrid, group, results
from fnx.core.scope import communicator
me, grid = communicator.current(), ProcessGrid(("a", "b"), (2, 2))
assert fnx.process_index() == me.rank and fnx.process_count() == 4 == fnx.device_count()
assert [d.process_index for d in fnx.devices()] == [0, 1, 2, 3]
assert [d.id for d in fnx.local_devices()] == [me.rank] and fnx.local_device_count() == 1
assert me.exchange(bytes([me.rank]) * me.rank, "x") == [bytes([r]) * r for r in range(4)]
rng = np.random.default_rng(0)
routines = [dict(name="all_gather", axis=1), dict(name="all_to_all", axis=0, to_axis=1),
            dict(name="permute", pairs=((0, 1),)), dict(name="permute", pairs=((0, 1), (1, 0))),
            *[dict(name=name, axis=1, monoid=monoid) for monoid in (ops.ADD, ops.MAX, ops.AND)
              for name in ("all_reduce", "reduce_scatter")]]
for names in ("a",), ("b",), ("b", "a"):
    ranks = group(grid, me.rank, names)
    for t in (dtypes.float32, dtypes.bool_, dtypes.bfloat16, dtypes.uint64, dtypes.int4):
        blocks = [low_precision.encode(rng.integers(0, 4, (4, 8)).astype(t.compute.np), t)
                  for _ in range(4)]
        decode = lambda x: low_precision.decode(x, t)
        for options in routines:
            if not options.get("monoid", ops.MAX).accepts_dtype(t):
                continue
            arg = Collective(grid=grid, names=names, ins=(((4, 8), t),), **options)
            got, = communicator.run(arg, [blocks[me.rank]])
            assert got.dtype == blocks[0].dtype
            want, = results(arg, ranks.index(me.rank), [[decode(blocks[r])] for r in ranks])
            want = decode(low_precision.encode(want, t))  # int4 wraps
            np.testing.assert_array_equal(decode(got), want, str(arg))
nan = np.array([me.rank, np.nan if me.rank == 2 else 1], np.float32)
arg = Collective("all_reduce", grid, ("a", "b"), (((2,), dtypes.float32),), monoid=ops.MAX)
np.testing.assert_array_equal(communicator.run(arg, [nan])[0], np.float32([3, np.nan]))
print("equal")
"""

FAILURES = """
import sys, time, numpy as np, fnx
how, rank = sys.argv[1], int(__import__("os").environ["PMI_RANK"])
if how == "never" and rank:
    time.sleep(60)
fnx.distributed.initialize(initialization_timeout=2 if how == "never" else 100,
                           heartbeat_timeout_seconds=2 if how == "waits" else 100)
from fnx.core.ir import dtypes, ops
from fnx.core.ir.collectives import Collective, ProcessGrid
from fnx.core.scope import communicator
if rank and how == "ends":
    sys.exit()
if rank and how == "raises":
    raise ValueError("of process 1")
if rank and how == "waits":
    time.sleep(60)
x = np.ones(1 + rank * (how == "differs"), np.float32)
arg = Collective("all_reduce", ProcessGrid(("a",), (2,)), ("a",), ((x.shape, dtypes.float32),),
                 monoid=ops.ADD)
communicator.wait(communicator.start(arg, [x]))
"""


def test_collectives_are_those_of_numpy(tmp_path: Path) -> None:
    assert run(4, COLLECTIVES, folder=tmp_path).count("equal") == 4


@pytest.mark.cases(2)
@pytest.mark.parametrize(("how", "says"), [
    ("never", "within 2 s, process 1 of 2 has not come"),
    ("waits", "process 1 did not come"),
    ("ends", "float32[1] over axis 'a' of the mesh: process 1 has ended"),
    ("raises", "ValueError: of process 1"), ("differs", "process 0 another collective")])
def test_nobody_waits_forever(how: str, says: str, tmp_path: Path) -> None:
    done = launch(2, FAILURES, how, folder=tmp_path)
    assert done.returncode != 0 and says in done.stdout + done.stderr, done.stderr


def test_a_process_is_alone_without_a_launcher(tmp_path: Path) -> None:
    program = "import fnx\nfnx.distributed.initialize()\nprint(fnx.process_count())"
    assert run(1, program, folder=tmp_path).split() == ["1"]


def test_without_mpi4py_the_error_says_how_to_install_it(tmp_path: Path) -> None:
    program = "import sys, fnx; sys.modules['mpi4py'] = None; fnx.distributed.initialize()"
    done = launch(1, program, folder=tmp_path)
    assert done.returncode != 0 and "RequirementError" in done.stderr
    assert "pip install 'fnx[distributed]'" in done.stderr, done.stderr
