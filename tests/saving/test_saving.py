"""Checkpoints: round trips, atomic writes, and damaged files."""

from __future__ import annotations

import errno
import io
import json
import os
import random
import signal
import struct
import subprocess
import sys
import time
import warnings
import zipfile
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.ir import dtypes
from fnx.core.support.errors import ArgumentError, CheckpointError, DTypeError
from fnx.saving import npz, safetensors

FORMATS = ("safetensors", "npz")
Pair = namedtuple("Pair", "first second")


def state(seed: int = 0) -> Any:
    """A tree with leaves of all types, ranks and kinds, of sizes that are not multiples of 64."""
    draw = np.random.default_rng(seed)
    arrays = {t.name: jnp.asarray(draw.integers(0, 2, (3, 5))).astype(t) for t in dtypes.USER
              if t.name not in ("int4", "uint4", "complex128")}
    return {"arrays": arrays, "layers": [Pair(jnp.asarray(draw.normal(size=(16, 16)), "float32"),
                                              jnp.zeros(0)), None, (jnp.asarray(2.5), )],
            "step": 3, "rate": 0.1, "on": True, "numpy": draw.normal(size=(2, 3)),
            "number": np.float32(1.5), "empty": jnp.zeros((2, 0, 3), "int8")}


def equal(a: Any, b: Any) -> bool:
    return fnx.tree.structure(a) == fnx.tree.structure(b) and all(
        type(x) is type(y) and (not isinstance(x, fnx.Array) or x._aval == y._aval)
        and np.array_equal(bits(x), bits(y)) and np.shape(x) == np.shape(y)
        for x, y in zip(fnx.tree.leaves(a), fnx.tree.leaves(b)))


def bits(x: Any) -> Any:
    return x._numpy() if isinstance(x, fnx.Array) else np.asarray(x)


@pytest.fixture(params=FORMATS)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / f"state.{request.param}"


def test_what_was_saved_comes_back(path: Path) -> None:
    tree = state()
    fnx.save(path, tree)
    assert equal(fnx.load(path, like=state(1)), tree)
    assert equal(fnx.load(path, like=tree, verify=False), tree)
    flat = fnx.load(path)
    assert set(flat) >= {"arrays.bfloat16", "layers.0.first", "layers.2.0", "step", "numpy"}
    assert flat["numpy"].dtype == np.float64 and int(flat["step"]) == 3
    shapes = fnx.tree.map(lambda x: fnx.ShapeDtypeStruct(x.shape, x._dtype), flat)
    assert equal(fnx.load(path, like=shapes), flat)


@pytest.mark.parametrize("x", [jnp.arange(5), 7, np.arange(6).reshape(2, 3)[:, ::2].T,
                               np.arange(3, dtype=">i4"), jnp.zeros((0, 3))], ids=repr)
def test_a_tree_of_one_leaf(path: Path, x: Any) -> None:
    fnx.save(path, x)
    again = fnx.load(path, like=x)
    assert np.array_equal(np.asarray(again), np.asarray(x))
    assert type(again) is type(x) and list(fnx.load(path)) == ["value"]


def test_an_empty_tree(path: Path) -> None:
    fnx.save(path, {"a": None, "b": []})
    assert fnx.load(path) == {} and fnx.load(path, like={"a": None, "b": []}) == \
        {"a": None, "b": []}


def test_narrow_integers(tmp_path: Path) -> None:
    x = {"a": {"w": jnp.arange(-8, 8).astype("int4"), "b": jnp.arange(16).astype("uint4")}}
    fnx.save(tmp_path / "x.npz", x)
    assert equal(fnx.load(tmp_path / "x.npz", like=x), x)
    with pytest.raises(CheckpointError, match=r"int4 at a.b(.|\n)*npz"):
        fnx.save(tmp_path / "x.safetensors", x)
    assert not (tmp_path / "x.safetensors").exists()


def test_keys_of_random_numbers(path: Path) -> None:
    tree = {"one": fnx.random.key(3), "more": fnx.random.split(fnx.random.key(4), 5),
            "words": jnp.arange(4, dtype="uint64"), "old": fnx.random.PRNGKey(1)}
    fnx.save(path, tree)
    for found in (fnx.load(path), fnx.load(path, like=tree)):
        assert all(found[k]._dtype is x._dtype and np.array_equal(found[k]._numpy(), x._numpy())
                   for k, x in tree.items())
        assert fnx.random.normal(found["one"]) == fnx.random.normal(tree["one"])
    with pytest.raises(CheckpointError, match=r"uint64\[\] at one, got key<fry>\[\]"):
        fnx.load(path, like=tree | {"one": jnp.zeros((), "uint64")})


def test_large_arrays_are_used_where_they_are_mapped(path: Path) -> None:
    tree = {"odd": jnp.ones(3), "w": jnp.ones((64, 64)), "b": jnp.ones(16), "z": jnp.ones(1)}
    fnx.save(path, tree)
    loaded = fnx.load(path)
    assert {k for k, x in loaded.items() if hasattr(x._storage, "owner")} >= {"w", "b"}
    step = fnx.jit(lambda t: fnx.tree.map(lambda x: x * 2, t), donate_argnums=0)
    assert float(step(loaded)["w"].sum()) == 2 * 64 * 64
    fnx.save(path, tree)  # replaces the file that is in use
    assert equal(fnx.load(path), tree)


def _sparse_file(path: Path, shift: int) -> None:
    """Write 8 GB of zeros, without taking that space on the disk; the data begin at 64 n + shift.
    """
    size = 1 << 30
    header = json.dumps({f"w{i}": {"dtype": "F32", "shape": [1 << 18, 1 << 10],
                                   "data_offsets": [i * size, (i + 1) * size]}
                         for i in range(8)} |
                        {"b": {"dtype": "F32", "shape": [3],
                               "data_offsets": [8 * size, 8 * size + 12]}}).encode()
    header += b" " * (-(8 + len(header)) % 64 + shift)
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.seek(8 * size, os.SEEK_CUR)
        file.write(np.arange(3, dtype=np.float32).tobytes())


@pytest.mark.parametrize("shift", [0, 8])
def test_loading_reads_no_element(tmp_path: Path, shift: int) -> None:
    """A file as other writers align it (8 bytes) is loaded as fast, and copied when it is used."""
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    path = tmp_path / "large.safetensors"
    _sparse_file(path, shift)
    before = resident()
    loaded = fnx.load(path)
    row = fnx.jit(lambda w, i: w[i].sum() + 1)
    assert row(loaded["w3"], 70_000) == 1 if shift == 0 else loaded["w3"].shape[0] == 1 << 18
    assert list(loaded["b"] * 2) == [0, 2, 4]
    assert resident() - before < 1 << 28
    path.write_bytes(b"")
    if shift:
        with pytest.raises(CheckpointError, match="as it was when it was loaded"):
            row(loaded["w1"], 0)


def test_others_read_it(tmp_path: Path) -> None:
    tree = state()
    fnx.save(tmp_path / "x.npz", tree)
    with np.load(tmp_path / "x.npz") as theirs:
        assert np.array_equal(theirs["numpy"], tree["numpy"])
        bits = theirs["arrays.bfloat16"]
        assert bits.dtype == np.dtype([("bfloat16", "<u2")])
    fnx.save(tmp_path / "x.safetensors", tree)
    data = (tmp_path / "x.safetensors").read_bytes()
    length, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    assert (8 + length) % 64 == 0 and all(isinstance(v, str)
                                          for v in header.pop("__metadata__").values())
    places = sorted(entry["data_offsets"] for entry in header.values())
    assert places[0][0] == 0 and places[-1][1] == len(data) - 8 - length
    assert all(a[1] == b[0] for a, b in zip(places, places[1:]))


def test_the_package_of_that_name_reads_and_writes_the_same(tmp_path: Path) -> None:
    import safetensors as theirs
    from safetensors.numpy import load_file, save_file

    tree = state()
    fnx.save(tmp_path / "x.safetensors", tree)
    ours = fnx.load(tmp_path / "x.safetensors")
    found = dict(theirs.deserialize((tmp_path / "x.safetensors").read_bytes()))
    assert set(found) == set(ours)
    for name, x in ours.items():
        assert found[name]["shape"] == list(x.shape), name
        assert bytes(found[name]["data"]) == x._numpy().tobytes(), name
    plain = {k: np.asarray(x) for k, x in ours.items() if x._dtype.np.names is None}
    save_file(plain, tmp_path / "theirs.safetensors", {"format": "np"})
    again = fnx.load(tmp_path / "theirs.safetensors")
    assert set(again) == set(plain)
    assert all(np.array_equal(np.asarray(again[k]), x) and again[k].dtype == x.dtype
               for k, x in plain.items())
    fnx.save(tmp_path / "x.safetensors", plain)
    assert all(np.array_equal(x, plain[k])
               for k, x in load_file(tmp_path / "x.safetensors").items())


@pytest.mark.parametrize("large", [1, 300, 3000])
def test_archives_of_more_than_4_gb(large: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                   ) -> None:
    """The limit is lowered from 2 GB to these bytes: sizes, offsets and the directory use 64
    bits."""
    monkeypatch.setattr(npz, "_ZIP64_THRESHOLD", large)
    path, tree = tmp_path / "x.npz", {"a": jnp.arange(100), "b": jnp.ones(3), "ä": jnp.zeros(())}
    fnx.save(path, tree)
    assert all(np.array_equal(x, tree[k]) for k, x in fnx.load(path).items())
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None and len(archive.infolist()) == 3
    with np.load(path) as theirs:
        assert {*theirs} == {*tree} and np.array_equal(theirs["a"], np.arange(100))


def test_files_of_others(tmp_path: Path) -> None:
    x = np.arange(12, dtype="float64").reshape(3, 4)
    for write in (np.savez, np.savez_compressed):
        write(tmp_path / "x.npz", x=x, columns=np.asfortranarray(x), big=x.astype(">f4"))
        found = fnx.load(tmp_path / "x.npz")
        assert all(np.array_equal(np.asarray(found[k]), x) for k in ("x", "columns", "big"))
    header = b'{"x":{"dtype":"F64","shape":[3,4],"data_offsets":[0,96]}}'
    (tmp_path / "x.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + x.tobytes())
    assert np.array_equal(np.asarray(fnx.load(tmp_path / "x.safetensors")["x"]), x)


# ---- mistakes


def test_mistakes_name_leaf_and_cure(path: Path) -> None:
    with pytest.raises(ArgumentError, match="safetensors or .npz, got 'x.pt'"):
        fnx.save("x.pt", {})
    with pytest.raises(ArgumentError, match="safetensors or .npz"):
        fnx.load("x")
    with pytest.raises(DTypeError, match=r"leaf a\.0: .*got str"):
        fnx.save(path, {"a": ["text"]})
    with pytest.raises(DTypeError, match=r"leaf a: .*object"):
        fnx.save(path, {"a": np.array([None])})
    with pytest.raises(DTypeError, match=r"leaf a: .*complex256"):
        fnx.save(path, {"a": np.array([1j], np.clongdouble)})
    with pytest.raises(CheckpointError, match="64 bits"):
        fnx.save(path, {"a": 1 << 70})
    with pytest.raises(CheckpointError, match=r"unique leaf names, got a\.b.*\['a\.b'\]"):
        fnx.save(path, {"a": {"b": 1}, "a.b": 2})
    with pytest.raises(fnx.errors.TracedValueError):
        fnx.jit(lambda x: fnx.save(path, x))(jnp.ones(2))
    assert not path.exists() and not os.listdir(path.parent)
    with pytest.raises(FileNotFoundError, match="got none") as caught:
        fnx.load(path)
    assert isinstance(caught.value, fnx.errors.MissingPathError)
    assert "the working directory" in caught.value.hint
    with pytest.raises(FileNotFoundError, match="expected a folder") as caught:
        fnx.save(path.parent / "no" / path.name, {})
    assert "os.makedirs(" in caught.value.hint
    for write in (fnx.profile(jnp.sin)(1.0).save,
                  fnx.debug.visualize(jnp.ones((2, 2))).save):
        with pytest.raises(fnx.errors.MissingPathError, match="expected a folder"):
            write(path.parent / "no" / "other.json")
    with pytest.raises(CheckpointError, match="a regular file, got a folder"):
        (path.parent / "folder.npz").mkdir()
        fnx.load(path.parent / "folder.npz")
    (path.parent / "folder.npz").rmdir()
    with pytest.raises(FileNotFoundError, match="nor a folder"):
        fnx.load(path.parent / "no" / path.name)
    fnx.save(path, {"weight": jnp.ones((2, 3))})
    with pytest.raises(FileNotFoundError) as caught:
        fnx.load(path.with_stem(f"{path.stem}s"))
    assert caught.value.hint == f"did you mean {path.name!r}?"
    with pytest.raises(CheckpointError, match=r"the leaf weigth, (.|\n)*'weight'"):
        fnx.load(path, like={"weigth": jnp.ones((2, 3))})
    with pytest.raises(CheckpointError, match="got weight"):
        fnx.load(path, like={})
    with pytest.raises(CheckpointError, match=r"float32\[3, 2\] at weight, got float32\[2, 3\]"):
        fnx.load(path, like={"weight": jnp.ones((3, 2))})
    with pytest.raises(CheckpointError, match=r"int32\[2, 3\] at weight(.|\n)*convert"):
        fnx.load(path, like={"weight": jnp.ones((2, 3), "int32")})
    with pytest.raises(CheckpointError, match="weight of like.*got str"):
        fnx.load(path, like={"weight": "x"})


def test_what_is_no_file(path: Path) -> None:
    os.mkfifo(path)
    with pytest.raises(CheckpointError, match="regular file"):
        fnx.load(path)  # and does not wait for a writer
    path.unlink()
    path.mkdir()
    with pytest.raises((CheckpointError, OSError), match="regular file|directory"):
        fnx.load(path)
    with pytest.raises(OSError):
        fnx.save(path, {"a": 1})
    assert os.listdir(path.parent) == [path.name]


def test_links(path: Path) -> None:
    """Reading follows a link. Writing replaces it, since its target may belong to somebody else."""
    other = path.with_name("other" + path.suffix)
    fnx.save(other, {"a": 1})
    path.symlink_to(other)
    assert int(fnx.load(path)["a"]) == 1
    fnx.save(path, {"a": 2})
    assert not path.is_symlink() and int(fnx.load(path)["a"]) == 2
    assert int(fnx.load(other)["a"]) == 1
    path.unlink()
    path.symlink_to(path)
    with pytest.raises(OSError):
        fnx.load(path)
    fnx.save(path, {"a": 3})
    assert int(fnx.load(path)["a"]) == 3


def test_modes_stay(path: Path) -> None:
    fnx.save(path, {"a": 1})
    os.chmod(path, 0o640)
    fnx.save(path, {"a": 2})
    assert path.stat().st_mode & 0o777 == 0o640


# ---- atomic writes


def test_a_full_disk_leaves_the_file_before(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fnx.save(path, {"a": 1})

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        fnx.save(path, {"a": 2})
    assert int(fnx.load(path)["a"]) == 1 and os.listdir(path.parent) == [path.name]


def test_ctrl_c_leaves_the_file_before_or_the_one_after(path: Path) -> None:
    values = [jnp.full((256, 256), i) for i in range(20)]
    fnx.save(path, {"a": values[0]})
    choose = random.Random(1)
    last, is_saving = 0, False

    def interrupt(*_: object) -> None:
        if is_saving:  # a late alarm must not stop the test
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for i, x in enumerate(values):
            try:
                is_saving = True
                signal.setitimer(signal.ITIMER_REAL, choose.uniform(1e-5, 4e-3))
                fnx.save(path, {"a": x})
                is_saving = False
            except KeyboardInterrupt:
                is_saving = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            found = fnx.load(path)["a"]
            assert int(found[0, 0]) in (last, i) and bool((found == found[0, 0]).all())
            last = int(found[0, 0])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


WRITER = """
import sys, numpy as np, fnx
i = 0
while True:
    i += 1
    fnx.save(sys.argv[1], {"a": np.full((512, 512), i, "float32"), "i": i})
    if i == 1:
        print("begun", flush=True)
"""


@pytest.mark.cases(1)
def test_kill_9_leaves_a_whole_file_and_the_next_writer_tidies_up(path: Path) -> None:
    choose, seen = random.Random(2), 0
    for _ in range(2):
        child = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE)
        assert child.stdout is not None and child.stdout.readline() == b"begun\n"
        time.sleep(choose.uniform(0, 0.02))
        child.kill()
        child.wait()
        found = fnx.load(path)
        assert (np.asarray(found["a"]) == int(found["i"])).all()
    left = [p for p in path.parent.iterdir() if p != path]
    seen = len(left)
    part = path.with_name(f".{path.name}.{'0' * 16}.part")
    part.write_bytes(b"of a writer that was killed")
    fnx.save(path, {"a": 1})
    assert os.listdir(path.parent) == [path.name] and seen <= 4


@pytest.mark.parametrize("number", [1 + 2j, 1.5, 3, True])
def test_python_numbers_return_as_they_were(tmp_path: Path, number: complex) -> None:
    path = tmp_path / "state.npz"
    fnx.save(path, {"a": number})
    assert fnx.load(path)["a"] == number
    back = fnx.load(path, like={"a": number})["a"]
    assert back == number and type(back) is type(number)
    if isinstance(number, complex):
        with pytest.raises(fnx.errors.CheckpointError, match="which safetensors supports, got c"):
            fnx.save(tmp_path / "state.safetensors", {"a": number})


def test_a_traced_value_is_saved_after_the_call(path: Path) -> None:
    with pytest.raises(fnx.errors.TracedValueError, match="save the result of the call"):
        fnx.jit(lambda x: fnx.save(path, {"a": x}))(1.0)


# ---- damaged files


def safetensors_file(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8), **more: Any) -> Any:
    return {"a": {"dtype": dtype, "shape": shape, "data_offsets": offsets, **more}}


BAD = {
    "empty": b"", "seven bytes": b"1234567", "no header": struct.pack("<Q", 0),
    "huge header": struct.pack("<Q", 1 << 62) + b"{}", "longest header": safetensors_file(
        b"{}", length=(1 << 64) - 1),
    "header beyond": safetensors_file({}, length=100), "no brace": safetensors_file(b" {}"),
    "no json": safetensors_file(b"{,}"), "no utf-8": safetensors_file(b'{"\xff":1}'),
    "a list": safetensors_file(b"[]"), "deep": safetensors_file(b'{"a":' + b"[" * 100_000),
    "not a number": safetensors_file(b'{"a":NaN}'), "twice": safetensors_file(
        b'{"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},'
        b'"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}'),
    "metadata": safetensors_file({"__metadata__": {"a": 1}}), "list metadata": safetensors_file(
        {"__metadata__": []}),
    "negative offset": safetensors_file(tensor(offsets=(-8, 0)), bytes(8)),
    "huge offsets": safetensors_file(tensor(offsets=(10 ** 4300 - 1,) * 2), bytes(8)),
    "huge end": safetensors_file(tensor(offsets=(0, 1 << 63)), bytes(8)),
    "backwards": safetensors_file(tensor(offsets=(8, 0)), bytes(8)),
    "fractions": safetensors_file(tensor(offsets=(0, 8.0)), bytes(8)),
    "true": safetensors_file(tensor(shape=(True,), offsets=(0, 4)), bytes(4)),
    "one offset": safetensors_file(tensor(offsets=(0,)), bytes(8)),
    "negative shape": safetensors_file(tensor(shape=(-2, -1)), bytes(8)),
    "wrong size": safetensors_file(tensor(shape=(3,)), bytes(8)),
    "overflowing shape": safetensors_file(tensor(shape=(1 << 32, 1 << 32, 2)), bytes(8)),
    "empty but huge": safetensors_file(tensor(shape=(1 << 80, 0), offsets=(0, 0))),
    "many axes": safetensors_file(tensor(shape=[1] * 100, offsets=(0, 4)), bytes(4)),
    "unknown dtype": safetensors_file(tensor("F4", offsets=(0, 1)), bytes(1)),
    "dtype list": safetensors_file(tensor(["F32"]), bytes(8)),
    "more fields": safetensors_file(tensor(extra=1), bytes(8)),
    "no fields": safetensors_file({"a": {}}), "a number": safetensors_file({"a": 7}),
    "short": safetensors_file(tensor(), bytes(7)), "long": safetensors_file(tensor(), bytes(9)),
    "hole": safetensors_file(tensor(offsets=(4, 12)), bytes(12)),
    "overlap": safetensors_file({**tensor(), "b": tensor(offsets=(4, 12))["a"]}, bytes(12)),
    "the same": safetensors_file({**tensor(), "b": tensor()["a"]}, bytes(8)),
    "no types": safetensors_file({"__metadata__": {"format": "fnx", "types": "["}}),
    "other types": safetensors_file({"__metadata__": {"format": "fnx", "types": '{"a": "os"}'}}),
    "no bool": safetensors_file(tensor("BOOL", (2,), (0, 2)), b"\1\2"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_safetensors(name: str, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(BAD[name])
    with pytest.raises(CheckpointError, match=r"x\.safetensors, byte [\d,]+: expected .*, got "):
        fnx.load(path)


def zipped(members: Any, method: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w", method) as archive:
        warnings.simplefilter("ignore")  # about duplicate names
        for name, data in members:
            archive.writestr(name, data)
    return out.getvalue()


def npy(x: Any, **options: Any) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, np.asarray(x), **options)
    return out.getvalue()


ONE = npy(np.arange(4.0))
OBJECTS = npy(np.array([print], object), allow_pickle=True)
TWO = zipped([("a.npy", ONE), ("b.npy", ONE)])
BAD_NPZ = {
    "two names": zipped([("a.npy", ONE)]).replace(b"a.npy", b"b.npy", 1),
    "a comment over the next entry": TWO.replace(  # the first entry's, of 46 bytes and its name
        entry := TWO[TWO.index(b"PK\1\2"):][:46], entry[:32] + b"\x33" + entry[33:]),
    "empty": b"", "no zip": b"PK\3\4" + bytes(300), "no npy": zipped([("a.txt", b"text")]),
    "twice": zipped([("a.npy", ONE), ("a.npy", ONE)]), "objects": zipped([("a.npy", OBJECTS)]),
    "no magic": zipped([("a.npy", b"text")]), "nothing": zipped([("a.npy", b"")]),
    "short": zipped([("a.npy", ONE[:-1])]), "long": zipped([("a.npy", ONE + b"\0")]),
    "version": zipped([("a.npy", ONE[:6] + b"\3\0" + ONE[8:])]),
    "code": zipped([("a.npy", ONE.replace(b"'<f8'", b"exit()"))]),
    "header": zipped([("a.npy", ONE.replace(b"(4,)", b"(-4,"))]),
    "text shape": zipped([("a.npy", ONE.replace(b"(4,)", b"'4'#"))]),
    "long complex": zipped([("a.npy", npy(np.zeros(2, np.clongdouble)))]),
    "records": zipped([("a.npy", npy(np.zeros(
        2, "i4,f4")))]), "texts": zipped([("a.npy", npy(["a"]))]), "bytes of ml_dtypes": zipped(
        [("a.npy", npy(np.zeros(2, "V2")))]),
    "bzip2": zipped([("a.npy", ONE)], zipfile.ZIP_BZIP2),
    "no int4": zipped([("a.npy", npy(np.full(2, (200,), [("int4", "u1")])))]),
    "bomb": zipped([("a.npy", ONE)], zipfile.ZIP_DEFLATED).replace(
        struct.pack("<I", len(ONE)), struct.pack("<I", 0xFFFFFFF0)),
    "bytes before": b"#!" + TWO, "bytes of no member": zipped([("b.npy", ONE)])[:200] + TWO,
    "no members": TWO[:TWO.index(b"PK\1\2")] + zipped([])[:16] + struct.pack(
        "<IH", TWO.index(b"PK\1\2"), 0),
    "another disk": TWO[:-18] + b"\1" + TWO[-17:],
    "a long dtype": zipped([("a.npy", ONE.replace(b"'<f8'", b"'<f8,' 'f8'" + b"'f8,'" * 3))]),
    **{f"eight zeros, {22 - at} bytes from the end": TWO[:len(TWO) - 22 + at] + bytes(8)
       + TWO[len(TWO) - 14 + at:] for at in range(15)},
}


@pytest.mark.parametrize("name", BAD_NPZ)
def test_bad_npz(name: str, tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    path.write_bytes(BAD_NPZ[name])
    with pytest.raises(CheckpointError, match=r"x\.npz, byte [\d,]+: expected .*, got "):
        fnx.load(path)


def test_sums_behind_members_are_read_over(tmp_path: Path) -> None:
    """Writers to streams that cannot seek put the checksums there."""
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def tell(self) -> int:
            raise OSError

    out = Pipe()
    np.savez(out, a=np.arange(4.0), b=np.arange(9))
    (tmp_path / "x.npz").write_bytes(out.getvalue())
    assert {k: x.tolist() for k, x in fnx.load(tmp_path / "x.npz").items()} == {
        "a": [0, 1, 2, 3], "b": list(range(9))}


@pytest.mark.cases(1)
def test_any_damage_is_refused_or_harmless(path: Path) -> None:
    """Bytes that are flipped, cut off, inserted or doubled: an fnx error, or the same values."""
    tree = {"w": jnp.arange(40.0).reshape(5, 8), "flag": jnp.asarray([True, False]),
            "h": jnp.ones(3, "bfloat16"), "n": 5, "k": fnx.random.key(1)}
    fnx.save(path, tree)
    whole, expected = path.read_bytes(), fnx.load(path)
    choose = random.Random(5)
    damaged = path.with_name("damaged" + path.suffix)
    kinds = dict.fromkeys(("refused", "harmless"), 0)
    for _ in range(400):
        data = bytearray(whole)
        for _ in range(choose.choice((1, 1, 1, 2, 8))):
            at = choose.randrange(len(data))
            what = choose.randrange(6)
            if what == 0:
                del data[at:]
            elif what == 1:
                data[at:at] = choose.randbytes(choose.choice((1, 8, 64)))
            elif what == 2:
                del data[at:at + choose.choice((1, 8, 64))]
            elif what == 3:
                data[at:at + 8] = struct.pack("<Q", choose.choice((0, 1 << 63, (1 << 64) - 1)))
            else:
                data[at] ^= 1 << choose.randrange(8)
            if not data:
                break
        damaged.write_bytes(data)
        try:
            found = fnx.load(damaged)
        except CheckpointError as error:
            assert "byte" in str(error)
            kinds["refused"] += 1
        else:
            assert all(equal(found[k], expected[k]) for k in found if k in expected), bytes(data)
            kinds["harmless"] += 1
        if found_like(damaged, tree) is not None:
            assert equal(found_like(damaged, tree), tree)
    assert kinds["refused"] > 250, kinds


def found_like(path: Path, tree: Any) -> Any:
    try:
        return fnx.load(path, like=tree)
    except CheckpointError:
        return None


def test_the_longest_header_is_read_in_time(tmp_path: Path) -> None:
    """A megabyte of header takes linear, not quadratic, time."""
    header = {f"a{i}": {"dtype": "U8", "shape": [1], "data_offsets": [i, i + 1]}
              for i in range(20_000)}
    (tmp_path / "x.safetensors").write_bytes(safetensors_file(header, bytes(20_000)))
    start = time.perf_counter()
    found = safetensors.read(fnx.saving.files.MappedFile(str(tmp_path / "x.safetensors")), True)
    assert len(found) == 20_000 and time.perf_counter() - start < 30


def test_numbers_that_became_arrays_in_a_step_are_restored_as_these(tmp_path: Path) -> None:
    start = {"n": 0, "ema": 0.0, "done": False, "epoch": 3}

    @fnx.jit
    def step(state: Any) -> Any:
        return {"n": state["n"] + 1, "ema": 0.9 * state["ema"] + 0.5, "done": state["n"] > 5}

    path = tmp_path / "state.safetensors"
    fnx.save(path, {**step(start), "epoch": 4})
    again = fnx.load(path, like=start)
    assert again["epoch"] == 4 and type(again["epoch"]) is int
    assert [(k, str(again[k].dtype), again[k].item()) for k in ("n", "ema")] == [
        ("n", "int32", 1), ("ema", "float32", 0.5)]
    assert again["done"] is False
    with pytest.raises(CheckpointError, match="expected int64.. at n, got float32"):
        fnx.save(path, {"n": jnp.float32(1)})
        fnx.load(path, like={"n": 0})
