"""Exports of factorizations: checked IR has them; C files and web pages say what they lack."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.support.errors import ArgumentError

STRUCT = fnx.ShapeDtypeStruct((16, 16), np.float32)


def test_checked_ir_has_factorizations(tmp_path: Path) -> None:
    fnx.export(lambda a: jnp.linalg.cholesky(a) + 1, STRUCT, to="fnx").save(tmp_path)
    path, = tmp_path.glob("*.fnx")
    a = 4 * np.eye(16, dtype=np.float32)
    np.testing.assert_allclose(fnx.load_exported(path)(a), np.tril(2 * np.eye(16) + 0) + 1)


@pytest.mark.parametrize(("to", "said"), [("c", "without LAPACK"), ("webgpu", "a factorization")])
def test_other_files_say_what_they_lack(to: str, said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        fnx.export(lambda a: jnp.linalg.cholesky(a), STRUCT, to=to)
