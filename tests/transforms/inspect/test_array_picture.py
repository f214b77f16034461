"""Pictures of arrays: any type and shape has one, and it says what is not finite."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import debug
from fnx.core.support.errors import TracedValueError


@pytest.mark.parametrize("x", [
    3.0, np.zeros(0), np.zeros((0, 3)), np.full(5, np.nan), np.ones((4, 3)), np.arange(3000),
    np.arange(60).reshape(3, 4, 5) % 2 == 0, np.exp(1j * np.arange(9)),
    jnp.ones((2, 300), jnp.bfloat16), np.eye(200, dtype=np.float32), np.array([-1e308, 1e308])],
    ids=str)
def test_every_array_has_a_picture(x: Any, tmp_path: Path) -> None:
    picture = debug.visualize(x)
    lines = repr(picture).splitlines()
    assert len(lines) <= 25 and max(map(len, lines[1:]), default=0) <= 54
    picture.save(tmp_path / "x.svg")
    ElementTree.parse(tmp_path / "x.svg")
    assert "nan" not in picture.svg() and "<svg" in picture._repr_html_()


def test_what_is_not_finite_is_red_and_blank() -> None:
    x = np.ones((3, 4), np.float32)
    x[1, 2] = np.inf
    picture = debug.visualize(x)
    assert picture.svg().count("#d33") == 1 and "1 of 12 infinite" in repr(picture)
    assert repr(picture).splitlines()[2] == ".. ."


def test_a_traced_array_has_none() -> None:
    with pytest.raises(TracedValueError):
        fnx.jit(lambda x: debug.visualize(x) and x)(1.0)
