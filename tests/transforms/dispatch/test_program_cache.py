"""Programs in the disk cache: the next process runs no pass, compiles nothing, and computes the
same bits."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.numpy as jnp
from fnx.backends.device.base import get_device
from fnx.backends.disk import background_writer
from fnx.backends.disk.cache import DiskCache
from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.dtypes import NDArray
from fnx.core.ir.op import Op
from fnx.core.ir.uop import UOp, rebuild
from fnx.core.support import source_digests
from fnx.core.support.config import config, override
from fnx.transforms.dispatch import trace_cache
from fnx.transforms.dispatch.executable import Executable
from fnx.transforms.link import link
from tests.graphs import Graph, graphs
from tests.helpers import assert_same
from tests.scans import loop_of

CPU = get_device("cpu")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with override(cache_dir=str(tmp_path / "cache"), check_spec=False):
        yield tmp_path / "cache"


def made(fn: UOp, donated: tuple[int, ...] = ()) -> tuple[Executable, bool]:
    """Link a function; return the program and whether it came from disk."""
    program = link(fn, CPU, donated=donated, use_stored=True)
    background_writer.wait()
    return program, program._lowered is None and not _was_lowered(program)


def _was_lowered(program: Executable) -> bool:
    return type(program.block).__name__ != "CachedBlock"


def results(program: Executable, args: list[NDArray]) -> list[NDArray]:
    outs = program.run([CPU.upload(a) for a in args])
    return [s.view(o.dtype.np, o.shape) for s, o in zip(outs, program.function.src)]


def check(fn: UOp, args: list[NDArray]) -> None:
    """Check that the restored program gives the same bits as the original."""
    first, restored = made(fn)
    assert not restored
    again, restored = made(fn)
    assert restored
    # Line numbers may differ, as equal nodes of other tests contribute theirs.
    assert [name.partition(" (")[0] for name in again.buffer.names] == \
        [name.partition(" (")[0] for name in first.buffer.names]
    assert_same(results(again, args), results(first, args))


@pytest.mark.cases(3, of="processes")
@given(graphs())
@settings(max_examples=25)
def test_restored_programs_give_the_same_bits(tmp_path_factory: Any, graph: Graph) -> None:
    folder = str(tmp_path_factory.mktemp("cache"))
    with override(cache_dir=folder, check_spec=False):
        check(graph.fn, graph.args)


@given(st.integers(0, 10 ** 6))
@settings(max_examples=10)
def test_restored_loops_give_the_same_bits(tmp_path_factory: Any, seed: int) -> None:
    loop = loop_of(seed, 6)
    with override(cache_dir=str(tmp_path_factory.mktemp("cache")), check_spec=False):
        check(loop.fn, loop.args)


PROGRAM = """
import sys
import numpy as np
import fnx, fnx.numpy as jnp
{lines}
def loss(w, xs):
    def step(h, x):
        return jnp.tanh(h @ w + x), jnp.sort(h[0])
    h, rows = fnx.lax.scan(step, jnp.asarray(np.ones((3, 4), np.float32)), xs)
    return (h ** 2).sum() + rows.sum()
step = fnx.jit(fnx.value_and_grad(loss))
w = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)
xs = np.linspace(0, 1, 60, dtype=np.float32).reshape(5, 3, 4)
value, slope = step(w, xs)
from fnx.backends.device.base import get_device
stats = get_device("cpu").stats()
print(np.asarray(value).tobytes().hex(), np.asarray(slope).tobytes().hex())
print(stats["compiled"], sum("fnx.lower" in name for name in sys.modules))
names = [v.value.executable.buffer.names for v in step._traces.values()]
print(sorted(names[0]))
"""


def process(folder: Path, lines: str = "", program: str = PROGRAM) -> list[str]:
    """Run a file in a process of its own and return its output."""
    source = folder / "kernel_code.py"
    source.write_text(program.format(lines=lines))
    env = {k: v for k, v in os.environ.items() if k != "FNX_CHECK_SPEC"}
    env.update(FNX_CACHE_DIR=str(folder / "cache"), PYTHONPATH=os.getcwd())
    done = subprocess.run([sys.executable, str(source)], env=env, capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.cases(3, of="processes")
def test_the_second_process_runs_no_pass_and_compiles_nothing(tmp_path: Path) -> None:
    first, second = process(tmp_path), process(tmp_path)
    compiled, loaded = map(int, first[1].split())
    assert compiled > 3 and loaded > 10
    assert second[1] == "0 0"
    assert (second[0], second[2]) == (first[0], first[2])


@pytest.mark.cases(3, of="processes")
def test_names_have_the_lines_of_the_file_that_runs(tmp_path: Path) -> None:
    first = process(tmp_path)
    later = process(tmp_path, "# a comment\n" * 7)
    assert later[1] == "0 0" and later[0] == first[0]
    moved = later[2]
    for line in range(20, 4, -1):
        moved = moved.replace(f"kernel_code.py:{line + 7 + 1}", f"kernel_code.py:{line + 1}")
    assert sorted(eval(moved)) == sorted(eval(first[2])) != sorted(eval(later[2]))


def simple(scale: float = 2.0) -> Callable[[Any], Any]:
    return fnx.jit(lambda x: jnp.exp(x) * scale)


def restored(f: Any, *args: Any) -> bool:
    """Return whether the program of a call came from disk."""
    trace_cache.clear_shared()  # it would return that of an equal function
    f(*args)
    background_writer.wait()
    variant, = f._traces.values()
    return not _was_lowered(variant.value.executable)


X = np.arange(6, dtype=np.float32)


@pytest.mark.parametrize("change", [
    lambda data: data[:-1], lambda data: b"", lambda data: data[:40],
    lambda data: data[:60] + bytes([data[60] ^ 1]) + data[61:]])
def test_damaged_programs_are_made_again(disk: Path, change: Callable[[bytes], bytes]) -> None:
    assert not restored(simple(), X)
    assert restored(simple(), X)
    for file in disk.rglob("*"):
        if file.is_file() and b"program" in file.read_bytes()[:60]:
            file.write_bytes(change(file.read_bytes()))
    assert not restored(simple(), X)
    assert restored(simple(), X)


@pytest.mark.parametrize("value", [
    b"", b"no pickle", pickle.dumps(()), pickle.dumps((1, 2, 3)), pickle.dumps(None),
    b"cfnx.core.nowhere\nnothing\n."])
def test_what_is_no_program_is_made_again(disk: Path, monkeypatch: pytest.MonkeyPatch,
                                          value: bytes) -> None:
    assert not restored(simple(), X)
    whole = DiskCache.get
    monkeypatch.setattr(DiskCache, "get", lambda self, key: value if key[:7] == b"program" else
                        whole(self, key))
    assert not restored(simple(), X)


def _with(op: Op, **fields: Any) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """Return a mutation that sets fields in all of a stored program's nodes of an op."""
    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        return node.replace(src=src, arg=node.arg.replace(**fields)) if node.op is op else None
    return lambda entry: (rebuild([entry[0]], visit)[0], *entry[1:])


def _at(place: int, value: Any) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    return lambda entry: (*entry[:place], value, *entry[place + 1:])


@pytest.mark.cases(15)
@pytest.mark.parametrize("change", [
    _at(1, 1 << 60), _at(1, 0), _at(1, "x"),
    _at(2, (build.param(0, dtypes.float32, (1 << 58,)),)), _at(2, ()),
    _at(3, (("out", 0.0),)), _at(3, (("in", 0),)), _at(3, ()), _at(4, ((0, 0),)),
    lambda entry: _at(5, dict.fromkeys(entry[5], (1 << 40, 0)))(entry),
    _with(ops.SLOT, offset=1 << 60), _with(ops.SLOT, offset=0.5), _with(ops.SLOT, nbytes=1 << 60),
    _with(ops.SLOT, index=7), _with(ops.SLOT, strides=(1 << 60,)), _with(ops.SLOT, kind="x"),
    _with(ops.CMD_LOOP, trips=1 << 60), _with(ops.CMD_LOOP, trips=-1),
    _with(ops.CMD_LOOP, trips=None), _with(ops.LINKED, parallel=1 << 60),
    _with(ops.LINKED, scratch=1 << 60), _with(ops.LINKED, scratch=-64),
    _with(ops.LINKED, writes=(9,)), _with(ops.LINKED, nanoseconds=float("nan"))])
def test_numbers_that_the_program_cannot_have_are_a_miss(
        disk: Path, monkeypatch: pytest.MonkeyPatch,
        change: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> None:
    """Even if the entry's checksum is valid."""
    def f() -> Any:
        return fnx.jit(lambda x: fnx.lax.scan(lambda c, r: (c @ x + r, None), x[0], x)[0])

    x = np.eye(40, dtype=np.float32)
    assert not restored(f(), x)
    assert restored(f(), x)
    whole, changed = DiskCache.get, []

    def get(self: DiskCache, key: bytes) -> bytes | None:
        value = whole(self, key)
        if key[:7] == b"program" and value is not None:
            changed.append(pickle.dumps(change(pickle.loads(value))))
            assert changed[-1] != value
            return changed[-1]
        return value
    monkeypatch.setattr(DiskCache, "get", get)
    g = f()
    assert not restored(g, x)
    assert changed
    np.testing.assert_array_equal(g(x), f().__wrapped__(x))


@pytest.mark.cases(3, of="processes")
def test_a_program_whose_kernels_are_gone_is_made_again(disk: Path) -> None:
    assert not restored(simple(3.25), X)
    background_writer.wait()  # a kernel is written after it was returned
    for file in disk.rglob("*"):
        if file.is_file() and b"kernel fnx_" in file.read_bytes()[:60]:
            file.unlink()
    fnx.clear_caches()  # and drop it from memory
    gc.collect()
    assert not restored(simple(3.25), X)
    assert restored(simple(3.25), X)


def test_another_version_and_configuration_are_other_programs(
        disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not restored(simple(), X)
    with override(x64=True):
        assert not restored(simple(), X)
    with override(hoist_bytes=config.hoist_bytes + 1):
        assert not restored(simple(), X)
    with override(check_index=True):
        assert not restored(simple(), X)
    assert restored(simple(), X)
    digests = {room: b"another version" + room.encode() for room in source_digests.PACKAGES}
    monkeypatch.setattr(source_digests, "package_digests", lambda: (digests, False))
    assert not restored(simple(), X)


def test_what_is_donated_is_in_the_key(disk: Path) -> None:
    plain = fnx.jit(lambda x: x + 1)
    given = fnx.jit(lambda x: x + 1, donate_argnums=0)
    big = np.zeros(100_000, np.float32)
    for _ in range(2):
        x = jnp.asarray(big)
        np.testing.assert_array_equal(plain(x), big + 1)
        assert not x.is_deleted()
        np.testing.assert_array_equal(given(x), big + 1)
        assert x.is_deleted()
        plain.clear_cache()
        given.clear_cache()


@pytest.mark.parametrize("home", ["nowhere", "no folder"])
def test_without_a_place_programs_are_made(tmp_path: Path, home: str) -> None:
    path = ""
    if home == "no folder":
        (tmp_path / "file").write_text("")
        path = str(tmp_path / "file" / "cache")
    with override(cache_dir=path, check_spec=False):
        assert not restored(simple(), X)
        assert not restored(simple(), X)


def test_programs_of_others_are_not_read(disk: Path) -> None:
    assert not restored(simple(), X)
    for folder in disk.iterdir():
        folder.chmod(0o777)
    with pytest.warns(UserWarning, match="not cached"):
        assert not restored(simple(), X)


def test_callbacks_and_effects_are_restored(disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def f(x: Any) -> Any:
        fnx.debug.print("got {}", x)
        return fnx.pure_callback(lambda a: np.asarray(a) * 3, x, x) + 1

    for expected in (False, True):
        g = fnx.jit(f)
        assert restored(g, np.float32(4)) == expected
        assert float(g(np.float32(4))) == 13
        fnx.effects_barrier()
        assert "got 4.0" in capsys.readouterr().out


def test_what_it_was_lowered_to_can_be_read(disk: Path) -> None:
    assert not restored(simple(), X)
    f = simple()
    assert restored(f, X)
    assert f.lower(X).text("commands") == simple().lower(X).text("commands")
    assert f.lower(X).kernels[0].flops > 0


def test_a_nan_is_named_by_its_line(disk: Path) -> None:
    for _ in range(2):
        f = fnx.jit(lambda x: jnp.log(x) * 2)
        with override(check="nan"), pytest.raises(fnx.FnxError, match="test_program_cache.py"):
            f(np.float32(-1))
