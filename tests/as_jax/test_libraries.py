"""optax, jaxopt, equinox and flax run unchanged on fnx and compute what they compute on JAX.

tests/golden/libraries.json is recorded from JAX by scripts/libraries.py --record. The programs of
other libraries run by `make libraries`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
GOLDEN = json.loads((ROOT / "tests" / "golden" / "libraries.json").read_text())
DIGITS = 5e-4  # relative: four digits


def run(program: str) -> dict[str, Any]:
    """Return what a program prints on fnx; the installed JAX is not loaded."""
    done = subprocess.run(
        [sys.executable, "-m", "fnx.as_jax", "tests/as_jax/run.py", program], cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["library"] == "fnx"
    return dict(answer["found"])


@pytest.mark.cases(1)
@pytest.mark.parametrize("program", GOLDEN)
def test_programs_compute_what_they_do_on_jax(program: str) -> None:
    found, golden = run(program), GOLDEN[program]
    assert set(found) == set(golden)
    for name, want in golden.items():
        np.testing.assert_allclose(found[name], want, rtol=DIGITS, atol=1e-5, err_msg=name)
