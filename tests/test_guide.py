"""The code of the README and of each page of the documentation runs, and prints the text that
follows it.
"""

from __future__ import annotations

import doctest
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
spec = importlib.util.spec_from_file_location("run_guide", ROOT / "scripts" / "run_guide.py")
assert spec is not None and spec.loader is not None
run_guide = importlib.util.module_from_spec(spec)
spec.loader.exec_module(run_guide)
PAGES = [page for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
         if run_guide.blocks_of(page)]
if importlib.util.find_spec("torch") is None:  # make test-torch installs it
    PAGES.remove(run_guide.GUIDE / "torch.md")


@pytest.mark.cases(4)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    checker, flags = doctest.OutputChecker(), doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    blocks, printed = run_guide.blocks_of(page), run_guide.run_page(page, tmp_path)
    for (_, expected), got in zip(blocks, printed, strict=True):
        assert expected is None or checker.check_output(expected, got, flags), \
            f"printed:\n{got}\nexpected:\n{expected}"
