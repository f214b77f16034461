"""Checkpoints of arrays over several processes: a folder that a small index commits.

    run.shards/
        index.json                          which block of which leaf is in which file
        1f2e3d4c5b6a7988-0.safetensors      the blocks of process 0, of one ``save``
        1f2e3d4c5b6a7988-1.safetensors      ...

All processes call ``save``: each writes its own blocks under the number of this ``save``; a block
that several have is written by the first of them. When all files are on the disk, process 0
replaces the index atomically, then removes the files of earlier saves. So a process that is killed
at any time leaves the checkpoint before or after. A checkpoint is loaded by any number of
processes, over any mesh: each maps the files that have a part of its blocks.

The index is checked before anything is read: file names cannot leave the folder, and the blocks of
a leaf are a grid that covers it once.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, BinaryIO

import numpy as np

from fnx.core.array.array import Array
from fnx.core.ir import dtypes
from fnx.core.ir.dtypes import DType, NDArray
from fnx.core.ir.ops import Shape
from fnx.core.scope import communicator
from fnx.core.support.errors import (
    CheckpointError,
    DistributedError,
    FnxError,
    MissingPathError,
)
from fnx.core.support.record import Record
from fnx.saving import files, safetensors

INDEX = "index.json"
_VERSION = 1
_FILE = re.compile(r"[0-9a-f]{16}-\d{1,9}\.safetensors")
_TEMPORARY = re.compile(r"\.([0-9a-f]{16}-\d{1,9}\.safetensors)\.[0-9a-f]{16}\.part")
_ATTEMPTS = 3  # reads of an index whose files a newer save removed meanwhile

Block = tuple[tuple[int, int], ...]  # start and stop along each axis


class Leaf(Record):
    """A leaf in the index: its dtype, its shape, and the file that has each block."""

    dtype: DType
    shape: Shape
    blocks: dict[Block, str]


# ---- write --------------------------------------------------------------------------------------


def save(path: str, leaves: Mapping[str, Any], data_of: Callable[[str, Any], NDArray]) -> None:
    """Write the leaves of a tree; all processes call it.

    Args:
        path: of the folder.
        leaves: arrays and numbers by name.
        data_of: returns a leaf, by its name, as NumPy data.

    Raises:
        CheckpointError: the processes have other leaves, or one of them could not write.
    """
    rank = communicator.of_process().rank
    data: dict[str, NDArray] = {}

    def describe() -> dict[str, Any]:
        data.update({name: _local_data(name, x, data_of) for name, x in leaves.items()})
        for name, value in data.items():
            safetensors.check(name, dtypes.as_dtype(value.dtype))
        return {"save": os.urandom(8).hex(), "leaves": {name: [
            str(dtypes.as_dtype(value.dtype)), _shape(leaves[name], value)]
            for name, value in data.items()}, "blocks": {
                name: _block(x) for name, x in leaves.items()}}

    answers = _together(path, describe)
    _check_leaves(path, [x["leaves"] for x in answers])
    generation = answers[0]["save"]
    owners = {name: _owners([x["blocks"][name] for x in answers]) for name in data}
    mine = {name: value for name, value in data.items()
            if owners[name][_as_block(_block(leaves[name]))] == rank}
    _together(path, lambda: _write_blocks(path, f"{generation}-{rank}.safetensors", mine))
    index = {name: Leaf(dtypes.as_dtype(value.dtype), tuple(_shape(leaves[name], value)), {
        block: f"{generation}-{owner}.safetensors" for block, owner in owners[name].items()})
        for name, value in data.items()}
    _together(path, lambda: _commit(path, index) if rank == 0 else None)


def _block(x: Any) -> list[list[int]]:
    """Return the part of a leaf that this process has, as the index says it."""
    if type(x) is not Array:
        return [[0, n] for n in np.shape(x)]
    return [[s.start, s.stop] for s in x.sharding._block(x.shape)]


def _as_block(block: Sequence[Sequence[int]]) -> Block:
    return tuple([(start, stop) for start, stop in block])


def _local_data(name: str, x: Any, data_of: Callable[[str, Any], NDArray]) -> NDArray:
    if type(x) is not Array or x.is_fully_addressable:
        return data_of(name, x)
    x.block_until_ready()
    return np.asarray(x._storage.view(x._dtype.np, tuple([b - a for a, b in _block(x)])))


def _shape(x: Any, value: NDArray) -> list[int]:
    return list(x.shape if type(x) is Array else value.shape)


def _together(path: str, work: Callable[[], Any]) -> list[Any]:
    """Let all processes work, and return the results of all; raise in all if one could not."""
    error, result = None, None
    try:
        result = work()
    except (OSError, FnxError) as why:
        error = why
    answers = [json.loads(x) for x in communicator.of_process().exchange(
        json.dumps([error and str(error), result]).encode(), f"saving {path}")]
    if error is not None:
        raise error
    failed = next(((rank, why) for rank, (why, _) in enumerate(answers) if why), None)
    if failed is not None:
        raise CheckpointError(f"{path}: process {failed[0]} could not save: {failed[1]}",
                              hint="the checkpoint before is whole; mend the cause and save again")
    return [result for _, result in answers]


def _check_leaves(path: str, answers: Sequence[Mapping[str, Any]]) -> None:
    for rank, other in enumerate(answers):
        if other != answers[0]:
            name = next(n for n in {**answers[0], **other} if answers[0].get(n) != other.get(n))
            raise DistributedError(
                f"{path}: expected the same leaves in all processes, process 0 has "
                f"{answers[0].get(name, 'none')} at {name}, process {rank} "
                f"{other.get(name, 'none')}", hint="all processes must save the same tree")


def _owners(blocks: Sequence[Sequence[Sequence[int]]]) -> dict[Block, int]:
    """Return the first process of those that have a block, for each block."""
    owners: dict[Block, int] = {}
    for rank, block in enumerate(blocks):
        owners.setdefault(_as_block(block), rank)
    return owners


def _write_blocks(path: str, name: str, arrays: Mapping[str, NDArray]) -> None:
    os.makedirs(path, exist_ok=True)
    if arrays:
        files.write(os.path.join(path, name), partial(safetensors.write, arrays=arrays))


def _commit(path: str, leaves: Mapping[str, Leaf]) -> None:
    """Replace the index, and remove what it does not name."""
    used = {file for leaf in leaves.values() for file in leaf.blocks.values()}
    if missing := [file for file in sorted(used) if not os.path.exists(os.path.join(path, file))]:
        raise CheckpointError(
            f"{path}: expected the file {missing[0]} of another process, got none",
            hint="save to a folder on a file system that all processes share")
    numbers = {file: i for i, file in enumerate(sorted(used))}
    text = json.dumps({
        "format": "fnx.shards", "version": _VERSION, "files": sorted(used),
        "leaves": {name: {"dtype": str(leaf.dtype), "shape": leaf.shape, "blocks": [
            [numbers[file], block] for block, file in leaf.blocks.items()]}
            for name, leaf in leaves.items()}})

    def fill(file: BinaryIO) -> None:
        file.write(text.encode())
    files.write(os.path.join(path, INDEX), fill)
    for entry in os.listdir(path):
        temporary = _TEMPORARY.fullmatch(entry)
        with contextlib.suppress(OSError):
            if temporary:
                files.remove_stale(path, temporary[1])
            elif _FILE.fullmatch(entry) and entry not in used:
                os.unlink(os.path.join(path, entry))


# ---- read ---------------------------------------------------------------------------------------


class Checkpoint:
    """The leaves of a folder. Files are mapped when a part of them is asked for.

    Args:
        path: of the folder.
        verify: whether to check the elements of each file that is mapped.

    Raises:
        MissingPathError: there is no such folder.
        CheckpointError: the index is damaged.
    """

    def __init__(self, path: str, verify: bool) -> None:
        self.path, self._verify = path, verify
        self._arrays: dict[str, dict[str, NDArray]] = {}
        for attempt in range(_ATTEMPTS):
            if not os.path.exists(os.path.join(path, INDEX)):
                raise MissingPathError(f"expected a folder {path} with {INDEX}, got none",
                                       hint="no save to this path came to its end, or the path is "
                                            "another one")
            self.leaves = _read_index(os.path.join(path, INDEX))
            used = {file for leaf in self.leaves.values() for file in leaf.blocks.values()}
            missing = [f for f in sorted(used) if not os.path.exists(os.path.join(path, f))]
            if not missing:
                break
            if attempt == _ATTEMPTS - 1:
                raise CheckpointError(f"{path}: expected the file {missing[0]}, which {INDEX} "
                                      "names, got none",
                                      hint="copy all files of the folder, or use an earlier one")

    def read(self, name: str, part: Sequence[slice]) -> NDArray:
        """Return a part of a leaf: in its mapped file if one block is just that, else a copy.

        Raises:
            CheckpointError: a file is damaged, or has another array than the index says.
        """
        leaf = self.leaves[name]
        wanted = tuple([(s.start, s.stop) for s in part])
        if wanted in leaf.blocks:
            return self._array(leaf, name, wanted)
        out = np.empty(tuple([b - a for a, b in wanted]), leaf.dtype.np)
        for block in leaf.blocks:
            common = [(max(a, c), min(b, d)) for (a, b), (c, d) in zip(block, wanted)]
            if all(a < b for a, b in common):
                source = self._array(leaf, name, block)
                out[_slices(common, wanted)] = source[_slices(common, block)]
        return out

    def whole(self, name: str) -> NDArray:
        """Return a leaf."""
        return self.read(name, [slice(0, n) for n in self.leaves[name].shape])

    def _array(self, leaf: Leaf, name: str, block: Block) -> NDArray:
        path = os.path.join(self.path, leaf.blocks[block])
        if path not in self._arrays:
            self._arrays[path] = safetensors.read(files.MappedFile(path), self._verify)
        value = self._arrays[path].get(name)
        expected = leaf.dtype, tuple([b - a for a, b in block])
        got = None if value is None else (dtypes.as_dtype(value.dtype), value.shape)
        if value is None or got != expected:
            raise CheckpointError(f"{path}: expected {expected[0]}{list(expected[1])} at {name}, "
                                  f"got {'none' if got is None else f'{got[0]}{list(got[1])}'}",
                                  hint="the file is of another checkpoint than its index")
        return value


def _slices(part: Sequence[tuple[int, int]], within: Block) -> tuple[slice, ...]:
    """Return where a part is within a block."""
    return tuple([slice(a - start, b - start) for (a, b), (start, _) in zip(part, within)])


def _read_index(path: str) -> dict[str, Leaf]:
    file = files.MappedFile(path)

    def fail(expected: str, got: Any) -> CheckpointError:
        return CheckpointError(f"{path}: expected {expected}, got {str(got)[:80]}",
                               hint="the file is damaged or of another format: use an earlier one")
    try:
        index = json.loads(file.memory.tobytes(), object_pairs_hook=safetensors.reject_duplicates)
    except (ValueError, RecursionError) as why:
        raise fail("JSON", why) from None
    if not isinstance(index, dict) or index.get("format") != "fnx.shards":
        raise fail('an object with "format": "fnx.shards"', index)
    if index.get("version") != _VERSION:
        raise fail(f"version {_VERSION}", index.get("version"))
    names, leaves = index.get("files"), index.get("leaves")
    if not isinstance(names, list) or not all(
            isinstance(x, str) and _FILE.fullmatch(x) for x in names):
        raise fail("a list of file names such as 1f2e3d4c5b6a7988-0.safetensors", names)
    if not isinstance(leaves, dict):
        raise fail("an object of leaves", leaves)
    return {name: _read_leaf(name, entry, names, fail) for name, entry in leaves.items()}


def _read_leaf(name: str, entry: Any, names: Sequence[str],
               fail: Callable[[str, Any], CheckpointError]) -> Leaf:
    keys = entry if isinstance(entry, dict) else {}
    shape, blocks = keys.get("shape"), keys.get("blocks")
    dtype = safetensors.DTYPES.get(str(keys.get("dtype")))
    if dtype is None or not isinstance(shape, list) or not all(map(_is_length, shape)) or \
            math.prod(shape) * dtype.itemsize > 1 << 62 or not isinstance(blocks, list):
        raise fail(f"dtype, shape and blocks of {name}", entry)
    out: dict[Block, str] = {}
    for block in blocks:
        number, ranges = block if isinstance(block, list) and len(block) == 2 else (-1, ())
        if not _is_length(number) or number >= len(names) or not isinstance(ranges, list) or \
                len(ranges) != len(shape) or not all(
                    isinstance(r, list) and len(r) == 2 and all(map(_is_length, r))
                    for r in ranges):
            raise fail(f"the number of a file, and a range for each axis, of a block of {name}",
                       block)
        out[_as_block(ranges)] = names[number]
    if len(out) != len(blocks) or not _covers(shape, out):
        raise fail(f"blocks of {name} that are a grid and cover {shape} once", blocks)
    return Leaf(dtype, tuple(shape), out)


def _is_length(x: Any) -> bool:
    return type(x) is int and 0 <= x < 1 << 62


def _covers(shape: Sequence[int], blocks: Mapping[Block, str]) -> bool:
    """Whether different blocks are all cells of one grid: along each axis their ranges follow each
    other from 0 to its end."""
    axes = [sorted({block[i] for block in blocks}) for i in range(len(shape))]
    follow = all(
        ranges and ranges[0][0] == 0 and ranges[-1][1] == n
        and all(a[1] == b[0] for a, b in itertools.pairwise(ranges))
        and (n == 0 or all(a < b for a, b in ranges)) for ranges, n in zip(axes, shape))
    return follow and len(blocks) == math.prod([len(ranges) for ranges in axes])
