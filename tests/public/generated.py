"""The generated calls of tests/golden and their recorded results."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
RECORDED: dict[str, Any] = json.loads((GOLDEN / "ops.json").read_text())
FAMILIES = [family for family in RECORDED if family != "jax"]


def modules() -> tuple[ModuleType, ModuleType]:
    """tests/golden/op_cases.py and op_check.py."""
    return (importlib.import_module("tests.golden.op_cases"),
            importlib.import_module("tests.golden.op_check"))
