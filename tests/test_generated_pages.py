"""Generated pages are current, and ``python -m fnx`` says where they are."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import fnx

ROOT = Path(__file__).resolve().parent.parent


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_of_settings_is_current() -> None:
    write_settings = script("write_settings")
    assert write_settings.PAGE.read_text() == write_settings.page(), \
        "run python scripts/write_settings.py"


def test_the_package_says_what_it_is() -> None:
    def run(*arguments: str) -> str:
        return subprocess.run([sys.executable, "-m", "fnx", *arguments], text=True, check=True,
                              capture_output=True).stdout
    text = run()
    assert f"fnx: {fnx.__version__}\n" in text and "settings: " in text
    assert "devices: cpu:0" in text and "docs/settings.md" in text
    assert run("--version") == f"fnx {fnx.__version__}\n"
    assert "python -m fnx.as_jax" in run("--help")
