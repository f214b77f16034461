"""Exports of factorizations: files compute them by loops, and say what they lack."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.support.errors import ArgumentError
from tests.exporting.test_c_file import COMPILER, called, compiled

STRUCT = fnx.ShapeDtypeStruct((16, 16), np.float32)


def test_checked_ir_has_factorizations(tmp_path: Path) -> None:
    fnx.export(lambda a: jnp.linalg.cholesky(a) + 1, STRUCT, to="fnx").save(tmp_path)
    path, = tmp_path.glob("*.fnx")
    a = 4 * np.eye(16, dtype=np.float32)
    np.testing.assert_allclose(fnx.load_exported(path)(a), np.tril(2 * np.eye(16) + 0) + 1)


@pytest.mark.skipif(COMPILER is None, reason="no C compiler is here")
def test_c_files_compute_factorizations(tmp_path: Path) -> None:
    files = fnx.export(lambda a, b: (jnp.linalg.solve(a, b), jnp.linalg.eigvalsh(a)), STRUCT,
                       fnx.ShapeDtypeStruct((16,), np.float32), to="c", name="f").files
    a = np.random.default_rng(0).normal(size=(16, 16)).astype(np.float32)
    a, b = a + a.T, a[0].copy()
    outs = [np.zeros(16, np.float32) for _ in range(2)]
    called(*compiled(files, tmp_path, "f"), [a, b], outs)
    np.testing.assert_allclose(a @ outs[0], b, atol=1e-4)
    np.testing.assert_allclose(outs[1], np.linalg.eigvalsh(a), atol=1e-4)


def test_web_pages_have_factorizations() -> None:
    files = fnx.export(lambda a: jnp.linalg.cholesky(a), STRUCT, to="webgpu", name="f").files
    assert "f_0.wgsl" in files


@pytest.mark.parametrize(("to", "said"), [("c", "without LAPACK"), ("webgpu", "a factorization")])
def test_files_say_what_they_lack(to: str, said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        fnx.export(lambda a: jnp.linalg.eigvals(a), STRUCT, to=to)
