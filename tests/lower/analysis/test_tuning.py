"""Tuned numbers have one place."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from fnx.lower.analysis.tuning import NUMBERS

SCRIPT = Path(__file__).parents[3] / "scripts" / "count_numbers.py"


def test_each_number_says_what_it_is() -> None:
    assert len({n.name for n in NUMBERS}) == len(NUMBERS)
    assert all(n.unit and n.meaning and n.source for n in NUMBERS)


def test_no_more_numbers_are_elsewhere() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), "--at-most", "251"], text=True,
                          capture_output=True)
    assert not done.returncode, done.stdout
