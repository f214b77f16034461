"""The array API standard, 2024.12, on a sample of the calls of tests/golden/api_cases.py.

``python scripts/compare_array_api.py`` runs all of them.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

import fnx.numpy as jnp
from fnx.core.support.config import override
from fnx.errors import ArgumentError

ROOT = Path(__file__).resolve().parent.parent.parent


def script() -> Any:
    spec = importlib.util.spec_from_file_location("compare_array_api",
                                                  ROOT / "scripts" / "compare_array_api.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


BOTH = script().Both()
CALLS = [c for c in BOTH.cases.cases() if not BOTH.cases.on_purpose(*c)]


@pytest.mark.parametrize("part", range(8))
def test_a_sample_of_the_standard(part: int) -> None:
    wrong = {}
    for dtype, expression in CALLS[part::56]:
        found = BOTH.differ(dtype, expression)
        if found:
            wrong[f"{dtype}: {expression}"] = found
    assert not wrong


def test_there_are_calls_of_every_function() -> None:
    called = {text.partition("(")[0].removeprefix("xp.") for _, text in CALLS}
    out = {"asarray", "from_dlpack", "empty", "empty_like", "searchsorted"}
    functions = {n for n, f in vars(BOTH.strict).items() if callable(f) and not n.startswith("_")
                 and not isinstance(f, type) and "flags" not in n and n.islower()}
    assert functions - called - out == {n for n in ("fft", "linalg") if n in functions}


def test_what_can_be_asked() -> None:
    info = jnp.__array_namespace_info__()
    assert set(info.dtypes(kind=("bool", "complex floating"))) == {"bool", "complex64"}
    assert "float64" not in info.dtypes() and info.default_device() in info.devices()
    with override(x64=True):
        assert info.default_dtypes()["complex floating"] == "complex128"
        assert set(info.dtypes(kind="real floating")) == {"float32", "float64"}
    with pytest.raises(ArgumentError, match="expected a kind"):
        info.dtypes(kind="float")


def test_arrays_name_their_namespace() -> None:
    assert jnp.ones(1).__array_namespace__(api_version="2024.12") is jnp
