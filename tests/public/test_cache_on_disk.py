"""fnx.cache: list, copy and empty the disk cache."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.backends.disk import background_writer
from fnx.core.support.config import override
from fnx.transforms.dispatch import trace_cache

COMPILED = True


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A cache that holds a program and its kernel."""
    with fnx.cache.at(str(tmp_path / "cache")), override(check_spec=False):
        call(1.0)
        background_writer.wait()
        yield tmp_path / "cache"


def call(x: float) -> None:
    trace_cache.clear_shared()  # what is in memory is not read from disk

    def half_of_it(x: fnx.Array) -> fnx.Array:
        return jnp.cos(x) / 2.5

    assert float(fnx.jit(half_of_it)(x)) == pytest.approx(np.cos(x) / 2.5)


def test_entries_say_what_they_are(folder: Path) -> None:
    about = {entry.about for entry in fnx.cache.entries()}
    assert "program half_of_it: 1 kernels" in about
    assert any(text.startswith("kernel fnx_") for text in about)
    assert fnx.cache.nbytes() == sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
    assert all(0 <= entry.age < 1000 for entry in fnx.cache.entries())
    assert fnx.cache.directory() == str(folder)


def test_what_is_no_entry_is_not_listed(folder: Path) -> None:
    before = fnx.cache.entries()
    some = next(f for f in folder.rglob("*") if f.is_file())
    (some.parent / "strange").write_bytes(b"strange")
    (some.parent / "link").symlink_to("/etc/passwd")
    os.mkfifo(some.parent / "pipe")
    assert len(fnx.cache.entries()) == len(before)
    fnx.cache.export(str(folder.parent / "there"))
    names = {f.name for f in (folder.parent / "there").rglob("*")}
    assert not {"strange", "link", "pipe"} & names


def test_an_export_is_a_cache(folder: Path) -> None:
    there = folder.parent / "there"
    count = fnx.cache.export(str(there))
    assert count == len(fnx.cache.entries())
    with fnx.cache.at(str(there)):
        before = fnx.cache.entries()
        assert {e.about for e in before} == {e.about for e in fnx.cache.entries()}
        call(2.0)
        assert len(fnx.cache.entries()) == len(before)  # nothing was compiled


def test_an_export_that_cannot_be_written_says_so(folder: Path) -> None:
    (folder.parent / "file").write_text("")
    with pytest.raises(fnx.FnxError, match="can be written"):
        fnx.cache.export(str(folder.parent / "file"))
    shared = folder.parent / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(fnx.FnxError, match="others may write"):
        fnx.cache.export(str(shared))


def test_clear_empties_it(folder: Path) -> None:
    fnx.cache.clear()
    assert fnx.cache.entries() == [] and fnx.cache.nbytes() == 0
    call(3.0)
    assert "program half_of_it: 1 kernels" in {e.about for e in fnx.cache.entries()}


def test_no_cache(tmp_path: Path) -> None:
    with fnx.cache.at(""):
        assert fnx.cache.entries() == [] and fnx.cache.nbytes() == 0
        fnx.cache.clear()
        assert fnx.cache.export(str(tmp_path / "there")) == 0
