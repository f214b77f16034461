"""Run the code of the pages in docs/guide, each in a process of its own.

    python scripts/run_guide.py plotting       print what each of its blocks prints

``plotting`` makes pictures (make_pictures.py); tests run all pages, and compare what a
block prints with the text that follows it (tests/test_guide.py).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GUIDE = ROOT / "docs" / "guide"
MARK = "==== block {}"


def blocks_of(page: Path) -> list[tuple[str, str | None]]:
    """Return the Python blocks of a page, each with the text that it prints, if that is told.

    Lines before a block are kept as empty ones, so that errors name the lines of the page.
    """
    text = page.read_text()
    found = re.finditer(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", text, re.M | re.S)
    return [("\n" * (text[:m.start(1)].count("\n")) + m[1], m[2]) for m in found]


def run_page(page: Path, folder: Path) -> list[str]:
    """Return what each block of a page prints."""
    blocks = blocks_of(page)
    code = "import sys\nscope = {'__name__': '__main__'}\n" + "".join(
        f"print({MARK.format(i)!r}, flush=True)\n"
        f"exec(compile({block!r}, {page.name!r}, 'exec'), scope)\nsys.stdout.flush()\n"
        for i, (block, _) in enumerate(blocks))
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, text=True, capture_output=True,
                          env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False)
    if done.returncode:
        raise RuntimeError(f"{page.name} fails:\n{done.stderr}")
    return re.split(MARK.format(r"\d+") + "\n", done.stdout)[1:]


if __name__ == "__main__":
    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as folder:
            print(*run_page(GUIDE / f"{name}.md", Path(folder)), sep="\n")
