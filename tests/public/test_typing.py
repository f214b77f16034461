"""A type checker reports each mistake in a user's script on its line, and nothing else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPT = Path(__file__).with_name("typing_mistakes.py")


def test_mypy_finds_each_mistake_on_its_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--show-error-codes",
         "--hide-error-context", "--follow-imports=silent", str(SCRIPT)],
        cwd=ROOT, text=True, capture_output=True, check=False,
        env=os.environ | {"MYPYPATH": str(ROOT)})
    found = {(int(line), code) for line, code in re.findall(
        r"typing_mistakes\.py:(\d+): error: .*\[([\w-]+)\]$", done.stdout, re.M)}
    expected = {(number, text.rpartition("# mistake: ")[2])
                for number, text in enumerate(SCRIPT.read_text().splitlines(), 1)
                if "  # mistake: " in text}
    assert len(expected) >= 7
    assert found == expected, done.stdout + done.stderr
