"""A page to draw a digit on and read the network's answer, computed by the browser's GPU.

    python examples/digits_web.py                      writes build/web
    python examples/digits_web.py --serve              and serves it at 127.0.0.1:8000
    python examples/digits_web.py --check              and has a headless Chromium read 100 digits

The network is that of digits.py. ``fnx.export(..., to="webgpu")`` makes its kernels, its weights
and the module that the page imports.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import json
import shutil
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import digits

import fnx

FLAGS = ("--no-sandbox", "--disable-dev-shm-usage", "--enable-unsafe-webgpu",
         "--use-webgpu-adapter=swiftshader")
TESTED = 100
SECONDS = 120  # time limit of the browser


def trained(epochs: int) -> Any:
    """Train a network and return its parameters."""
    data, step = digits.load(), fnx.jit(digits.adam_step, donate_argnums=0)
    return digits.train(step, data, 0, epochs, 64).state[0]


def build(folder: Path, epochs: int) -> tuple[np.ndarray, np.ndarray]:
    """Write the page; return test images, and the CPU's results for them."""
    params = trained(epochs)

    def read(x: Any) -> Any:
        return fnx.nn.softmax(digits.predict(params, x[None])[0])

    fnx.export(read, fnx.ShapeDtypeStruct((64,), "float32"), to="webgpu",
               name="digits").save(folder)
    images = digits.load().x_test[:TESTED]
    (folder / "images.json").write_text(json.dumps((images + np.float32(0.3)).tolist()))
    shutil.copy(Path(__file__).with_suffix(".html"), folder / "index.html")
    return images, np.asarray(fnx.jit(fnx.vmap(read))(images))


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serve the files of the folder; receive the answers of a page that tests itself."""

    answers: Any = None
    came = threading.Event()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        Handler.answers = json.loads(body)
        self.send_response(204)
        self.end_headers()
        Handler.came.set()

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


def server(folder: Path, port: int) -> http.server.ThreadingHTTPServer:
    """A server on the loopback interface."""
    return http.server.ThreadingHTTPServer(
        ("127.0.0.1", port), functools.partial(Handler, directory=str(folder)))


def answers_of_chromium(folder: Path) -> Any:
    """Open the page in a headless Chromium; return what it posts back, and save a screenshot."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        sys.exit("expected chromium (Debian: apt-get install chromium)")
    with server(folder, 0) as served, sync_playwright() as playwright:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        page = browser.new_page(viewport={"width": 760, "height": 520})
        page.goto(f"http://127.0.0.1:{served.server_address[1]}/?test")
        for _ in range(SECONDS * 10):
            if Handler.came.is_set():
                break
            page.wait_for_timeout(100)
        page.screenshot(path=str(folder / "page.png"))
        browser.close()
        served.shutdown()
    return Handler.answers


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("build/web"), help="the folder")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--serve", action="store_true", help="at 127.0.0.1:8000")
    parser.add_argument("--check", action="store_true", help="open it in a headless Chromium")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)

    images, want = build(options.out, options.epochs)
    print(f"{options.out}: {sum(p.stat().st_size for p in options.out.iterdir()):,} bytes")
    if options.check:
        found = answers_of_chromium(options.out)
        if not isinstance(found, list):
            sys.exit(f"the page says: {found}")
        got = np.array(found, np.float32)
        same = int((got.argmax(1) == want.argmax(1)).sum())
        print(f"{same} of {len(images)} answers are the CPU's; probabilities differ by at most "
              f"{abs(got - want).max():.1e}")
        if same != len(images):
            sys.exit(1)
    if options.serve:
        print("http://127.0.0.1:8000/")
        server(options.out, 8000).serve_forever()


if __name__ == "__main__":
    main()
