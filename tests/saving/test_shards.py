"""Folders of blocks: any grid of blocks is read in any parts; damaged ones are refused."""

from __future__ import annotations

import copy
import itertools
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.numpy as jnp
from fnx.core.support.errors import CheckpointError, FnxError, MissingPathError
from fnx.saving import files, safetensors, shards

STATE = {"w": np.arange(24, dtype=np.float32).reshape(4, 6), "n": np.int64(7),
         "none": np.zeros((0, 2), np.int8)}


def in_blocks(folder: Path, value: np.ndarray[Any, Any], cuts: tuple[list[int], ...]) -> None:
    """Write a checkpoint of one leaf in a file for each block."""
    ranges = [list(itertools.pairwise([0, *at, n])) for at, n in zip(cuts, value.shape)]
    blocks = list(itertools.product(*ranges))
    names = [f"{1:016x}-{i}.safetensors" for i in range(len(blocks))]
    for name, block in zip(names, blocks):
        part = np.array(value[tuple([slice(a, b) for a, b in block])], order="C")
        files.write(str(folder / name), lambda f, part=part: safetensors.write(f, {"x": part}))
    (folder / shards.INDEX).write_text(json.dumps({
        "format": "fnx.shards", "version": 1, "files": names, "leaves": {"x": {
            "dtype": str(value.dtype), "shape": value.shape,
            "blocks": [[i, block] for i, block in enumerate(blocks)]}}}))


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_part_of_any_grid(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    shape = data.draw(st.lists(st.integers(1, 6), max_size=3))
    value = np.random.default_rng(0).integers(0, 99, shape).astype("int32")
    cuts = tuple([sorted(data.draw(st.sets(st.integers(1, n - 1), max_size=3))) if n > 1 else []
                  for n in shape])
    folder = tmp_path_factory.mktemp("grid")
    in_blocks(folder, value, cuts)
    part = []
    for n in shape:
        start = data.draw(st.integers(0, n))
        part.append(slice(start, data.draw(st.integers(start, n))))
    checkpoint = shards.Checkpoint(str(folder), True)
    np.testing.assert_array_equal(checkpoint.read("x", part), value[tuple(part)])
    np.testing.assert_array_equal(checkpoint.whole("x"), value)


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "run.shards"
    state = {"a": jnp.ones((2, 3), jnp.bfloat16), "b": [jnp.arange(3), 7, True],
             "k": fnx.random.key(3), "c": np.array([1j], np.complex64)}
    fnx.save(path, state)
    again = fnx.load(path, like=state)
    assert repr(again) == repr(dict(sorted(state.items())))
    fnx.save(path, {**state, "b": [jnp.arange(3), 8, True]})
    assert fnx.load(path, like=state)["b"][1] == 8
    assert len(os.listdir(path)) == 2  # the first file is removed
    with pytest.raises(CheckpointError, match=r"expected float32\[3\] at a"):
        fnx.load(path, like={**state, "a": jnp.ones(3)})
    with pytest.raises(MissingPathError, match=r"index\.json"):
        fnx.load(tmp_path / "other.shards")


def damaged(index: dict[str, Any]) -> dict[str, Any]:
    """Return indexes with one fault each."""
    out: dict[str, Any] = {}

    def fault(name: str, *path: Any, value: Any) -> None:
        out[name] = copy.deepcopy(index)
        at = out[name]
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value
    fault("outside", "files", 0, value="../x.safetensors")
    fault("format", "format", value="other")
    fault("version", "version", value=2)
    fault("no leaves", "leaves", value=[])
    fault("dtype", "leaves", "w", "dtype", value="float31")
    fault("negative", "leaves", "w", "shape", value=[-4, 6])
    fault("huge", "leaves", "w", "shape", value=[1 << 61, 1 << 61])
    fault("bool", "leaves", "w", "shape", value=[True, 6])
    fault("no file", "leaves", "w", "blocks", 0, 0, value=9)
    fault("gap", "leaves", "w", "blocks", 0, 1, value=[[1, 4], [0, 6]])
    fault("twice", "leaves", "w", "blocks", value=index["leaves"]["w"]["blocks"] * 2)
    fault("nothing", "leaves", "w", "blocks", value=[])
    fault("other shape", "leaves", "w", value={"dtype": "float32", "shape": [3, 6], "blocks": [
        [0, [[0, 3], [0, 6]]]]})
    return out


def test_damaged_indexes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.shards"
    fnx.save(path, STATE)
    good = (path / shards.INDEX).read_text()
    for name, index in damaged(json.loads(good)).items():
        (path / shards.INDEX).write_text(json.dumps(index))
        with pytest.raises(CheckpointError, match=r"index\.json|safetensors"):
            fnx.load(path)
            pytest.fail(name)
    for text in ("", "{", "[" * 100_000, good.replace('"w"', '"n"'), "nan"):
        (path / shards.INDEX).write_text(text)
        with pytest.raises(CheckpointError):
            fnx.load(path)
    (path / shards.INDEX).write_text(good)
    fnx.load(path)
    for file in path.glob("*.safetensors"):
        file.unlink()
    with pytest.raises(CheckpointError, match="which index.json names"):
        fnx.load(path)


def test_a_path_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file.shards").write_text("x")
    with pytest.raises((OSError, FnxError)):
        fnx.save(tmp_path / "file.shards", STATE)
    assert (tmp_path / "file.shards").read_text() == "x"
