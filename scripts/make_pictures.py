"""Renew the pictures of the documentation in docs/pictures.

    python scripts/make_pictures.py                 the page of view(), plots, the gallery
    python scripts/make_pictures.py page plotting   these

An example writes its picture itself (``--out``), and so does the code of docs/guide/plotting.md.
The page is that of the training step at the beginning of the README, in a headless Chromium.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright
from run_guide import GUIDE, run_page

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
EXAMPLES = {"quantum": [], "gp": [], "ode": [], "vae": [], "digits": ["--seeds", "1"]}


def draw_example(name: str) -> None:
    subprocess.run([sys.executable, ROOT / "examples" / f"{name}.py", *EXAMPLES[name],
                    "--out", PICTURES / f"{name}.png"], check=True)


def draw_page() -> None:
    """Photograph ``view()`` of the first program in the README."""
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert code is not None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.py"
        path.write_text(code[1])
        scope: dict[str, object] = {}
        exec(compile(code[1], str(path), "exec"), scope)
        step, args = scope["step"], [scope[name] for name in "wxy"]
        chromium = shutil.which("chromium")
        with step.lower(*args).view(browser=False) as view, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1200, "height": 680})
            page.goto(view.url)
            page.wait_for_selector("body[data-ready='timeline/0']")
            page.wait_for_timeout(500)  # until it is drawn
            page.screenshot(path=PICTURES / "page.png")


def main(names: list[str]) -> None:
    PICTURES.mkdir(exist_ok=True)
    for name in names or ["page", "plotting", *EXAMPLES]:
        if name == "page":
            draw_page()
        elif name == "plotting":
            run_page(GUIDE / "plotting.md", PICTURES)
        else:
            draw_example(name)


if __name__ == "__main__":
    main(sys.argv[1:])
