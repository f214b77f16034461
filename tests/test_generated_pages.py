"""Generated pages are current, and ``python -m fnx`` says where they are."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import fnx

ROOT = Path(__file__).resolve().parent.parent


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["write_settings", "write_onnx_ops", "write_aten_ops"])
def test_a_generated_page_is_current(name: str) -> None:
    if name == "write_aten_ops":
        pytest.importorskip("torch")
    writer = script(name)
    assert writer.PAGE.read_text() == writer.page(), f"run python scripts/{name}.py"


def test_the_package_says_what_it_is() -> None:
    def run(*arguments: str) -> str:
        return subprocess.run([sys.executable, "-m", "fnx", *arguments], text=True, check=True,
                              capture_output=True).stdout
    text = run()
    assert f"fnx: {fnx.__version__}\n" in text and "settings: " in text
    assert "devices: cpu:0" in text and "docs/settings.md" in text
    assert run("--version") == f"fnx {fnx.__version__}\n"
    assert "python -m fnx.as_jax" in run("--help")
