"""Time the page of a workload: milliseconds from a reader's action to the frame that shows it.

    python benchmarks/page.py gpt_step
    python benchmarks/page.py gpt_step --pictures DIR

A headless Chromium loads the page (``f.lower(*args).view()``); each step is timed by the page's own
``performance.now()``, from the event to the frame after the one in which it is drawn. Every pass
and every kernel is selected once (``--every 3``: each third), and each view of them; then pan, zoom
and search.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright
from run import load
from workloads import WORKLOADS

from fnx.transforms.page.page_data import LEVELS

# ACT runs in the page; its effect is visible when READY holds, and painted a frame later.
TIMED = """
async () => {
  const frame = () => new Promise(requestAnimationFrame);
  const start = performance.now();
  ACT;
  while (!(READY)) await new Promise(done => setTimeout(done, 0));
  await frame(); await frame();
  return performance.now() - start;
}
"""
CANVAS = "document.getElementById('graph')"
DRAG = "; ".join(
    f"{CANVAS}.dispatchEvent(new PointerEvent('{kind}', {{pointerId: 1, clientX: {x}, "
    f"clientY: {y}, bubbles: true}}))" for kind, x, y in (
        ("pointerdown", 600, 400), ("pointermove", 700, 480), ("pointerup", 700, 480)))
WHEEL = f"{CANVAS}.dispatchEvent(new WheelEvent('wheel', {{deltaY: -200, clientX: 700, " \
        "clientY: 400, cancelable: true}))"


class Reader:
    """A page in a browser, and the milliseconds of each step on it."""

    def __init__(self, page: Page) -> None:
        self.page, self.times = page, dict[str, list[tuple[float, str]]]()

    def step(self, kind: str, what: str, act: str, ready: str = "true") -> None:
        timed = TIMED.replace("ACT", act).replace("READY", ready)
        self.times.setdefault(kind, []).append((self.page.evaluate(timed), what))

    def go(self, kind: str, tab: str, i: int, what: str) -> None:
        self.step(kind, what, f"document.querySelectorAll('#list .row')[{i}].click()",
                  f"document.body.dataset.ready === '{tab}/{i}'")

    def tab(self, name: str, act: str = "") -> None:
        ready = f"document.body.dataset.ready === '{name.lower()}/0'"
        self.step("tabs", name, act or "[...document.querySelectorAll('#tabs button')].find("
                  f"b => b.textContent === '{name}').click()", ready)

    def look(self, kind: str, what: str) -> None:
        """Open each view of the selection."""
        at = self.page.evaluate("state.at")
        for i, name in enumerate(self.page.locator("#views button").all_inner_texts()):
            ready = f"document.body.dataset.read === 'kernels/{at}/{name}'" \
                if kind == "kernels" and name in LEVELS else "true"
            self.step(f"{kind}: {name}", what, f"$('views').children[{i}].click()", ready)

    def names(self) -> list[str]:
        found: list[str] = self.page.locator("#list .row span").all_inner_texts()
        return found

    def report(self) -> None:
        print(f"{'step':24} {'times':>6} {'median':>9} {'worst':>9}  where")
        for kind, steps in self.times.items():
            worst, where = max(steps)
            print(f"{kind:24} {len(steps):6} {statistics.median([t for t, _ in steps]):6.0f} ms "
                  f"{worst:6.0f} ms  {where}")


def walk(reader: Reader, pictures: Path | None, every: int) -> None:
    """Perform each action once; select every so many-th pass and kernel."""
    page = reader.page

    def picture(name: str) -> None:
        if pictures is not None:
            page.screenshot(path=str(pictures / f"{name}.png"))

    passes = reader.names()
    for i, name in enumerate(passes):
        if i % every and name != "kernelize":
            continue
        reader.go("select a pass", "passes", i, f"{name}, {i}")
        if i % max(1, len(passes) // 40) == 0:
            reader.look("a pass", f"{name}, {i}")
        if name == "kernelize":
            page.evaluate("$('views').children[0].click()")
            reader.step("pan", name, DRAG)
            reader.step("zoom", name, WHEEL)
            for words in ("tanh", "contract", "float32"):
                search(reader, words, name)
            picture("graph")
            page.evaluate("$('views').children[1].click()")
            picture("changes")
    for tab in ("Kernels", "Steps", "Timeline", "Memory", "Source"):
        reader.tab(tab)
        picture(tab.lower())
        rows = reader.names()
        for i, name in enumerate(rows):
            if i % every and (i > 1 or tab != "Kernels"):
                continue
            reader.go(f"select in {tab.lower()}", tab.lower(), i, f"{name}, {i}")
            if i % max(1, len(rows) // 10) == 0:
                reader.look(tab.lower(), f"{name}, {i}")
            if i == 1 and tab == "Kernels":
                for view in range(page.locator("#views button").count()):
                    page.evaluate(f"$('views').children[{view}].click()")
                    picture(f"kernel{view}")
        page.evaluate("$('views').children[0].click()")
        search(reader, "contract", tab)
        picture(f"{tab.lower()}-found")
    for name in ("Timeline", "Memory"):
        reader.tab(name)
        page.evaluate("$('views').children[0].click()")
        reader.step("pan", name, DRAG)
        reader.step("zoom", name, WHEEL)


def search(reader: Reader, words: str, what: str) -> None:
    for text in (words, ""):
        reader.step("search", f"{text!r} in {what}", f"$('search').value = '{text}'; "
                    "$('search').dispatchEvent(new Event('input'))")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", nargs="?", default="gpt_step", choices=sorted(WORKLOADS))
    parser.add_argument("--pictures", type=Path, help="a directory for screenshots")
    parser.add_argument("--every", type=int, default=1, help="each so many-th pass and kernel")
    options = parser.parse_args()
    os.environ["FNX_CACHE_DIR"] = ""
    if options.pictures is not None:
        options.pictures.mkdir(parents=True, exist_ok=True)
    f, args = WORKLOADS[options.workload](load("fnx")[0])
    made: Any = f.lower(*args)
    with made.view(browser=False) as view, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("chromium-browser"),
            args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1300, "height": 800})
        page.set_default_timeout(120_000)
        page.add_init_script("window.begun = performance.now()")
        page.goto(view.url)
        page.wait_for_selector("body[data-ready='passes/0']")
        reader = Reader(page)
        reader.times["load"] = [(page.evaluate("performance.now() - begun"), options.workload)]
        walk(reader, options.pictures, options.every)
        browser.close()
    reader.report()


if __name__ == "__main__":
    main()
