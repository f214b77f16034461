"""Programs that use JAX's machinery print what they print on JAX (scripts/compare_machinery.py)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.machinery.runner import CASES, DIFFERENCES, equal

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = json.loads((ROOT / "tests" / "golden" / "machinery.json").read_text())
STEP = 16  # of the cases that are run; the script runs all of them
COMMAND = "import fnx.as_jax; fnx.as_jax.install(); from tests.machinery import runner; " \
          "runner.main()"


def test_some_programs_print_what_they_print_on_jax() -> None:
    names = [name for name in list(CASES)[::STEP] if name not in DIFFERENCES]
    done = subprocess.run([sys.executable, "-c", COMMAND, *names], cwd=ROOT, text=True,
                          capture_output=True, check=True)
    got = json.loads(done.stdout.splitlines()[-1])
    assert [name for name in names if not equal(got[name], GOLDEN[name])] == []


def test_every_program_is_recorded_and_every_difference_has_a_program() -> None:
    assert list(GOLDEN) == list(CASES)
    assert set(DIFFERENCES) <= set(CASES)
