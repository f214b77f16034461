"""The cells of JAX's pages on jaxprs, interpreters and primitives print what they print on JAX.

``scripts/compare_machinery.py`` runs them on both, and records tests/golden/machinery.json.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.machinery.runner import CASES, equal

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = json.loads((ROOT / "tests" / "golden" / "machinery.json").read_text())
NAMES = [name for name in CASES if name.startswith(("jaxpr_pages", "primitive_pages"))]
COMMAND = "import fnx.as_jax; fnx.as_jax.install(); from tests.machinery import runner; " \
    "runner.main()"


@pytest.fixture(scope="module")
def printed() -> dict[str, str]:
    """What each case prints, in one process."""
    done = subprocess.run([sys.executable, "-c", COMMAND, *NAMES], cwd=ROOT, text=True,
                          capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.cases(1)
@pytest.mark.parametrize("name", NAMES)
def test_a_page_prints_what_it_prints_on_jax(printed: dict[str, str], name: str) -> None:
    assert equal(printed[name], GOLDEN[name]), f"{printed[name]}\n---- JAX:\n{GOLDEN[name]}"
