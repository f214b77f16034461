"""Custom rules against results recorded from JAX (record_jax.py)."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.lax
from fnx.core.support.errors import FnxError
from fnx.transforms.autodiff.arguments import FLOAT0
from tests.transforms.custom import programs

RECORDED = json.loads(Path(__file__).with_name("jax.json").read_text())
NAMES = ("checkpoint", "checkpoint_policies", "custom_gradient", "custom_jvp", "custom_vjp", "grad",
         "jacrev", "jit", "jvp", "lax", "numpy", "vjp", "vmap")
LIB = SimpleNamespace(float0=FLOAT0, **{name: getattr(fnx, name) for name in NAMES})


def same(got: Any, want: Any, path: str) -> None:
    if isinstance(want, dict):
        assert list(got) == list(want), path
        for key in want:
            same(got[key], want[key], f"{path}.{key}")
    elif isinstance(want, list) and want and isinstance(want[0], str) and len(want) == 2 \
            and not isinstance(want[1], str):
        assert got[0] == want[0], path
        np.testing.assert_allclose(got[1], want[1], rtol=1e-5, atol=1e-6, err_msg=path)
    elif isinstance(want, list):
        assert len(got) == len(want), path
        for i, (a, b) in enumerate(zip(got, want)):
            same(a, b, f"{path}[{i}]")
    else:
        assert got == want, path


@pytest.mark.cases(3)
@pytest.mark.parametrize("name", RECORDED["programs"])
def test_as_jax(name: str) -> None:
    same(programs.flat(programs.PROGRAMS[name](LIB)), RECORDED["programs"][name], name)


def test_all_are_recorded() -> None:
    assert list(RECORDED["programs"]) == list(programs.PROGRAMS)


@pytest.mark.parametrize("name", RECORDED["refused"])
def test_refused_as_by_jax(name: str) -> None:
    assert RECORDED["refused"][name]
    with pytest.raises(FnxError):
        programs.refused(LIB)[name]()
