"""Checkpoints that several processes write: loaded by other numbers of them, and after kills."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.distributed.kills import kill
from tests.distributed.launch import launch, run

pytest.importorskip("mpi4py")

PROGRAM = """
import sys, fnx, fnx.numpy as jnp, numpy as np
how, path, lengths = sys.argv[1], sys.argv[2], tuple(map(int, sys.argv[3].split("x")))
fnx.distributed.initialize()
mesh = fnx.make_mesh(lengths, ("a", "b"))
P, put = fnx.P, lambda x, *spec: fnx.device_put(x, fnx.NamedSharding(mesh, P(*spec)))
whole = np.arange(64, dtype=np.float32).reshape(8, 8)
state = {"rows": put(whole, "a"), "both": put(whole, "b", "a"), "all": put(whole), "step": 3,
         "alone": jnp.arange(5)}
if how == "save":
    fnx.save(path, state)
elif how == "differ":
    fnx.save(path, {"rows": state["rows"], "step": fnx.process_index() or "x"})
else:
    again = fnx.load(path, like=fnx.tree.map(lambda x: x * 0 if hasattr(x, "shape") else 0, state))
    assert again["step"] == 3
    assert again["rows"].sharding == state["rows"].sharding or fnx.process_count() == 1
    for name in ("rows", "both", "all", "alone"):
        expected = np.arange(5) if name == "alone" else whole
        for shard in again[name].addressable_shards:
            np.testing.assert_array_equal(np.asarray(shard.data), expected[shard.index])
    print("equal")
"""


def test_any_number_of_processes_loads_it(tmp_path: Path) -> None:
    path = str(tmp_path / "run.shards")
    run(2, PROGRAM, "save", path, "2x1", folder=tmp_path)
    assert len([*Path(path).glob("*.safetensors")]) == 2
    assert run(1, PROGRAM, "load", path, "1x1", folder=tmp_path).split() == ["equal"]
    assert run(4, PROGRAM, "load", path, "2x2", folder=tmp_path).count("equal") == 4


def test_other_leaves_in_another_process_are_refused(tmp_path: Path) -> None:
    done = launch(2, PROGRAM, "differ", str(tmp_path / "x.shards"), "2x1", folder=tmp_path)
    assert done.returncode != 0 and "leaf step" in done.stderr
    assert not (tmp_path / "x.shards").exists()


@pytest.mark.cases(1)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_kill_leaves_a_checkpoint_whole(seed: int) -> None:
    assert kill(seed)[1] == ""
