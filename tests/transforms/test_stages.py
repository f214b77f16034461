"""Stages: every step from the graph to the commands prints, for terminals and for notebooks."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.kernel as k
import fnx.numpy as jnp
from fnx.core.config import override
from fnx.core.errors import ArgumentError
from fnx.core.target import Target
from fnx.lower.pipeline import passes
from fnx.transforms.replay.stages import STAGES


def layer(params: Any, x: Any) -> Any:
    return jnp.tanh(x @ params["w"] + params["b"])


def stages_of(f: Any = layer) -> Any:
    params = {"w": np.ones((20, 30), "f4"), "b": np.ones(30, "f4")}
    return fnx.jit(f).lower(params, np.ones((5, 20), "f4"))


def test_all_stages_are_shown_in_one_call(capsys: pytest.CaptureFixture[str]) -> None:
    stages_of().show()
    text = capsys.readouterr().out
    heads = re.findall(r"^==== (\w+)  \((.*)\)$", text, re.M)
    assert [name for name, _ in heads] == list(STAGES)
    times = " ".join(times for _, times in heads)
    missing = [p.name for p in passes(Target("cpu")) if f"{p.name} " not in times]
    assert not missing, "each pass stands in the head of a stage"
    assert all(" ms" in times for _, times in heads)
    assert "function layer(params_b: float32[30], params_w: float32[20, 30], x: " in text
    assert "group 0 over (5, 30): params_b, params_w, x -> b0" in text
    assert "sum(k < 20: " in text and "define" in text and "a sum of products" in text
    assert re.search(r"contract_\w+\(params_b, x, params_w\) -> out0|\(.*\) -> out0", text)
    assert "test_stages.py:22" in text


def test_some_stages_are_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    stages_of().show("kernels", "commands")
    heads = re.findall(r"^==== (\w+)", capsys.readouterr().out, re.M)
    assert heads == ["kernels", "commands"]
    with pytest.raises(ArgumentError, match="expected a stage of graph, simplified.*'kernel'"):
        stages_of().show("kernel")


def test_a_page_for_notebooks_is_escaped() -> None:
    f = lambda params, x: layer(params, x) * 2
    f.__name__ = "<b>&f"
    page = stages_of(f)._repr_html_()
    assert page.count("<details>") == len(STAGES) and "<b>&f" not in page
    assert "&lt;b&gt;&amp;f" in page
    for head in ("kernel", "line", "loops", "FLOP", "bytes", "schedule"):
        assert f"<th>{head}</th>" in page
    assert "vectorize(&#x27;" in page and "vec(16)" in page or "vec(" in page


def test_stages_of_a_hand_written_kernel_under_its_schedule() -> None:
    @fnx.call(out=lambda x: x, schedule=[k.split("i", 8), k.vectorize("ii")])
    def double(x: Any, o: Any) -> None:
        i = k.range(x.shape[0], "i")
        o[i] = x[i] * 2.0
    shown = fnx.jit(lambda x: double(x)).lower(jnp.zeros(16))
    assert shown.text("schedules").startswith("double: as the user wrote it")
    assert "for io in seq(2), ii in vec(8):" in shown.text("tiled")


def test_stages_of_a_device_without_code() -> None:
    with override(device="interp"):
        shown = stages_of()
        assert shown.text("llvm") == "" and "kernel" in shown.text("tiled")
