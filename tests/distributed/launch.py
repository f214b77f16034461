"""Run a Python program in several processes, as a user does: ``mpiexec -n 2 python program.py``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

MPIEXEC = Path(sys.executable).parent / "mpiexec"
ROOT = Path(__file__).resolve().parents[2]
LIMIT = 300  # seconds: a program takes less than 5 on a quiet machine


def launch(count: int, program: str, *args: str, folder: Path, **variables: str
           ) -> subprocess.CompletedProcess[str]:
    """Run the text of a program in some processes; return what they printed, and their status."""
    path = folder / "program.py"
    path.write_text(program)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "FNX_WORKERS": "1", **variables}
    return subprocess.run([MPIEXEC, "-n", str(count), sys.executable, path, *args],
                          capture_output=True, text=True, timeout=LIMIT, env=environment,
                          check=False)


def run(count: int, program: str, *args: str, folder: Path, **variables: str) -> str:
    """Run a program that must succeed; return what it printed."""
    done = launch(count, program, *args, folder=folder, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
