"""Drawings of programs are SVG that a parser reads, and show what ran."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.support.errors import ArgumentError

BOX = "{http://www.w3.org/2000/svg}g"


def two_layers(w: Any, x: Any) -> Any:
    return fnx.nn.softmax(jnp.tanh(x @ w) @ w.T).sum(0)


def boxes(picture: Any, path: Path) -> list[str]:
    """The tooltips of the boxes of a drawing; each box is inside it."""
    picture.save(path)
    root = ElementTree.parse(path).getroot()
    width, height = (float(root.attrib[side]) for side in ("width", "height"))
    for rect in root.iterfind(f"{BOX}/{{*}}rect"):
        x, y, w, h = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
        assert 0 <= x and x + w <= width + 0.1 and 0 <= y and y + h <= height
    return [str(title.text) for title in root.iterfind(f"{BOX}/{{*}}title")]


@pytest.mark.parametrize("what", ["graph", "time", "memory"])
def test_a_program_can_be_drawn(what: str, tmp_path: Path) -> None:
    stages = fnx.jit(two_layers).lower(jnp.ones((32, 32)), jnp.ones((64, 32)))
    titles = boxes(stages.draw(what), tmp_path / "x.svg")
    expected = {"graph": "TANH", "time": "test_drawings.py:19", "memory": "bytes, commands 0 to 1"}
    assert any(expected[what] in title for title in titles)
    if what == "time":
        assert len(titles) == len(stages.kernels)


def test_a_program_without_kernels_can_be_drawn(tmp_path: Path) -> None:
    stages = fnx.jit(lambda x: x).lower(1.0)
    for what in ("graph", "time", "memory"):
        boxes(stages.draw(what), tmp_path / "x.svg")


def test_another_drawing_is_refused() -> None:
    with pytest.raises(ArgumentError, match="draw: expected 'graph', 'time' or 'memory', got 'x'"):
        fnx.jit(jnp.exp).lower(1.0).draw("x")


def test_a_notebook_shows_drawings() -> None:
    f = fnx.jit(two_layers)
    w, x = jnp.ones((32, 32)), jnp.ones((64, 32))
    assert f.lower(w, x)._repr_html_().count("<svg") == 2
    assert fnx.profile(f)(w, x)._repr_html_().count("<svg") == 1
