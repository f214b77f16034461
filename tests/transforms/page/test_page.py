"""The web page about a jitted function: access control, contents, and use in a browser."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fnx
import fnx.numpy as jnp
from fnx.core.support.errors import ArgumentError
from fnx.transforms.inspect.graph_layout import layer_layout
from fnx.transforms.page import pending_connections
from fnx.transforms.page.server import FILES, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
HOSTILE = "<img src=x onerror=alert(1)>"


def loss(w: Any, x: Any, y: Any) -> Any:
    h = jnp.tanh(x @ w)
    return jnp.mean((h / 2.0 - y) ** 2) + jnp.sum(w * 1.0)


@pytest.fixture(scope="module")
def view() -> Iterator[Page]:
    w, x, y = jnp.ones((8, 4)), jnp.ones((16, 8)), jnp.ones((16, 4))
    with fnx.jit(fnx.value_and_grad(loss)).lower(w, x, y).view(browser=False) as made:
        yield made


def answer(view: Page, path: str, host: str | None = None) -> tuple[int, dict[str, str], bytes]:
    parts = urlsplit(view.url)
    connection = http.client.HTTPConnection("127.0.0.1", parts.port or 0, timeout=120)
    connection.request("GET", path, headers={"Host": host or parts.netloc})
    got = connection.getresponse()
    return got.status, dict(got.getheaders()), got.read()


def ask(view: Page, part: str) -> Any:
    status, _, body = answer(view, urlsplit(view.url).path + "data/" + part)
    assert status == 200, body
    return json.loads(body)


# ---- access control

def test_only_who_knows_the_token_at_this_host_is_answered(view: Page) -> None:
    parts = urlsplit(view.url)
    assert parts.hostname == "127.0.0.1" and len(parts.path.strip("/")) >= 24
    for name in FILES:
        status, headers, _ = answer(view, parts.path + name)
        assert status == 200 and "default-src 'none'" in headers["Content-Security-Policy"]
        assert "unsafe" not in headers["Content-Security-Policy"]
    assert answer(view, parts.path, f"localhost:{parts.port}")[0] == 200
    for path, host in (("/", None), ("/data/functions", None), ("/wrong/", None),
                       (parts.path[:-2] + "/", None), ("//data", None), (parts.path, "evil.com"),
                       (parts.path, f"evil.com:{parts.port}"), (parts.path, "127.0.0.1:1"),
                       (parts.path, f"{parts.netloc}.evil.com")):
        status, _, body = answer(view, path, host)
        assert status == 403 and b"loss" not in body, (path, host)


def test_it_listens_on_this_machine_only(view: Page) -> None:
    assert view._server.server_address[0] == "127.0.0.1"


def test_paths_lead_to_nothing_else(view: Page) -> None:
    base = urlsplit(view.url).path
    for path in ("../server.py", "..%2fserver.py", "server.py", "data/../server.py", "app.js/x",
                 "data", "data/0", "data/1/overview", "data/-1/overview", "data/0/nothing",
                 "data/0/pass/-1", "data/0/pass/x", "data/0/pass/99999", "data/0/pass/%31",
                 "data/0/pass", "data/0/step/nothing", "data/0/kernel/1e3",
                 "data/0/pass/0/more/and/more", "data/0/llvm", "data/0/llvm/999"):
        assert answer(view, base + path)[0] == 404, path


def test_a_port_that_is_taken_and_one_that_is_none() -> None:
    made = fnx.jit(jnp.sin).lower(1.0)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for port in (taken.getsockname()[1], 70_000, -1):
            with pytest.raises(ArgumentError, match=f"a port that is free, got {port}"):
                made.view(port, browser=False)


def test_close_ends_it() -> None:
    page = fnx.jit(jnp.sin).lower(1.0).view(browser=False)
    assert page.is_served and page.url in repr(page)
    page.close()
    assert not page._thread.is_alive() or page._thread.join(60) is None
    with pytest.raises(ConnectionError):
        answer(page, "/")


def test_a_page_without_a_browser_tells_its_address(monkeypatch: pytest.MonkeyPatch,
                                                    capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("webbrowser.open", lambda url: False)
    with fnx.jit(jnp.sin).lower(1.0).view() as page:
        assert capsys.readouterr().out == f"fnx: {page.url} " \
            "(no browser, no terminal: it ends with the script)\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_the_browsers_command_line_has_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the path of a private file that redirects to the page; the file is removed after its
    first use."""
    opened: list[str] = []

    def browse(url: str) -> bool:
        opened.append(url)
        return True

    monkeypatch.setattr("webbrowser.open", browse)
    with fnx.jit(jnp.sin).lower(1.0).view() as page:
        path = Path(urllib.parse.unquote(urllib.parse.urlparse(opened[0]).path))
        token = page.url.split("/")[3]
        assert opened[0].startswith("file://") and token not in opened[0]
        assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700
        assert page.url in path.read_text()
        with urllib.request.urlopen(page.url) as answer:
            assert answer.status == 200
        assert not path.parent.exists()
    with fnx.jit(jnp.sin).lower(1.0).view():
        path = Path(urllib.parse.urlparse(opened[1]).path)
        assert path.exists()
    assert not path.parent.exists()


def test_a_page_that_is_dropped_or_ends_with_its_process_leaves_no_file() -> None:
    code = """
import webbrowser
webbrowser.open = lambda url: print(url) or True
import fnx
from fnx.transforms.page import server
server.UNUSED_SECONDS = 0.1
page = fnx.jit(fnx.numpy.sin).lower(1.0).view()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    path = Path(urllib.parse.urlparse(done.stdout.strip()).path)
    assert path.name == "page.html" and not path.parent.exists()


_AT_THE_END = """
import webbrowser
webbrowser.open = lambda url: {opens}
import fnx
from fnx.transforms.page import server
server.UNUSED_SECONDS = 3
page = fnx.jit(fnx.numpy.sin).lower(1.0).view()
print(page.url, flush=True)
{then}
"""


def test_a_page_as_the_last_line_of_a_script_is_served_until_it_is_not_used() -> None:
    code = _AT_THE_END.format(opens=True, then="")
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as script:
        assert script.stdout is not None and script.stderr is not None
        url = script.stdout.readline().strip()
        assert script.stderr.readline() == f"fnx: {url} stays until it is not used for 3 s\n"
        for part in ("", "app.js", "data/functions", "data/0/overview", "data/0/kernel/0"):
            with urllib.request.urlopen(url + part, timeout=20) as answer:
                assert answer.status == 200 and answer.read()
        assert script.wait(60) == 0


def test_in_a_terminal_it_is_served_until_an_interrupt() -> None:
    terminal, other_end = os.openpty()
    code = _AT_THE_END.format(opens=False, then="")
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=other_end,
                          text=True) as script:
        os.close(other_end)
        assert script.stdout is not None
        url = script.stdout.readline().split()[1]
        with open(terminal) as shown:
            assert shown.readline() == f"fnx: {url} stays until Ctrl-C\n"
            with urllib.request.urlopen(url, timeout=20) as answer:
                assert answer.status == 200
            script.send_signal(signal.SIGINT)
            assert script.wait(60) == 0


@pytest.mark.cases(1)
@pytest.mark.parametrize("opens, then", [
    (False, ""), (True, "page.close()"), (True, "import sys; sys.ps1 = '>>> '")])
def test_a_page_that_nobody_can_look_at_keeps_no_process(opens: bool, then: str) -> None:
    """Without a browser, after close(), and at the end of an interactive session."""
    code = _AT_THE_END.format(opens=opens, then=then)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                          timeout=60)
    assert "stays until" not in done.stderr
    assert opens or "it ends with the script" in done.stdout


def test_silent_strangers_keep_nobody_out(view: Page) -> None:
    """Two hundred connections that send nothing, or a byte now and then."""
    address = "127.0.0.1", int(view.url.split(":")[2].split("/")[0])
    others = threading.active_count()  # threads that earlier tests left
    silent = [socket.create_connection(address) for _ in range(200)]
    try:
        for i in range(5):
            begun = time.monotonic()
            for s in silent[i::2]:
                with contextlib.suppress(OSError):
                    s.send(b"G")
            with urllib.request.urlopen(view.url, timeout=20) as answer:
                assert answer.status == 200
            assert time.monotonic() - begun < 10
        assert threading.active_count() - others < 2 * pending_connections.MAX_PENDING
        limit = time.monotonic() + 4 * pending_connections.TIMEOUT
        while len(view._server.pending) and time.monotonic() < limit:
            for s in silent:
                with contextlib.suppress(OSError):
                    s.send(b"E")
            time.sleep(0.2)
        assert not len(view._server.pending)
    finally:
        for s in silent:
            s.close()


def test_a_forked_child_does_not_answer(view: Page) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0 if view._server.socket.fileno() == -1 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert ask(view, "functions")


# ---- contents

def test_the_parts(view: Page) -> None:
    overview = ask(view, "0/overview")
    assert ask(view, "functions") == ["value_and_grad(loss)"]
    names = [p["name"] for p in overview["passes"]]
    assert {"simplify", "kernelize", "tile", "emit", "render"} <= set(names)
    simplify = ask(view, f"0/pass/{names.index('simplify')}")
    assert simplify["changed"] and {"MUL with its identity", "x / 2**k"} <= \
        {rule["name"] for rule in simplify["rules"] if rule["count"] > 0}
    assert simplify["before"] != simplify["after"]
    assert any(n["new"] for n in simplify["graph"]["nodes"])
    assert any("test_page.py" in n["line"] for n in simplify["graph"]["nodes"])
    for i, row in enumerate(overview["kernels"]):
        kernel = ask(view, f"0/kernel/{i}")
        texts = {name: ask(view, f"0/{name}/{i}")["text"] for name in kernel["levels"]}
        assert f"kernel {row['name']}" in texts["tiled"]
        assert "define" in texts["llvm"] and texts["assembly"]
    assert {p["of"] for p in overview["passes"] if p["name"] == "render"} <= \
        {k["name"] for k in overview["kernels"]}
    for step in overview["steps"]:
        assert ask(view, f"0/step/{step['name']}")["text"]
    source = next(f for f in ask(view, "0/source") if f["file"] == "test_page.py")
    tanh, = [line for line in source["lines"] if "jnp.tanh" in line["text"]]
    assert tanh["nodes"] > 0 and tanh["kernels"]


def test_the_timeline_is_of_one_call(view: Page) -> None:
    found, commands = ask(view, "0/timeline"), ask(view, "0/memory")["commands"]
    runs = found["runs"]
    assert [r["name"] for r in runs] == commands
    assert runs[0]["start"] == 0 and found["left_out"] == 0
    assert all(a["stop"] <= b["start"] for a, b in zip(runs, runs[1:]))
    for k, worker, start, stop in found["parts"]:
        assert runs[k]["start"] <= start <= stop <= runs[k]["stop"]
        assert 0 <= worker < found["workers"]
    assert max(r["living"] for r in runs) > 0


def test_what_must_not_run_for_a_reader_has_no_timeline() -> None:
    def ends_by_data(x: Any) -> Any:
        return fnx.lax.while_loop(lambda x: jnp.sum(x) < 9, lambda x: x @ x + 1, x)

    def tells(x: Any) -> Any:
        fnx.debug.print("called {}", x)
        return x

    for f, why in ((ends_by_data, "ends by what it computes"), (tells, "has effects")):
        with fnx.jit(f).lower(jnp.ones((3, 3))).view(browser=False) as page:
            status, _, body = answer(page, urlsplit(page.url).path + "data/0/timeline")
            assert status == 404 and why in body.decode()


def test_a_loop_is_in_the_timeline_step_by_step() -> None:
    def f(x: Any) -> Any:
        return fnx.lax.fori_loop(0, 7, lambda i, x: jnp.sort(x @ x), x)

    with fnx.jit(f).lower(jnp.ones((8, 8))).view(browser=False) as page:
        runs = ask(page, "0/timeline")["runs"]
        assert sum(r["name"].startswith("sort") for r in runs) == 7


def test_every_pass_can_be_shown(view: Page) -> None:
    for i in range(len(ask(view, "0/overview")["passes"])):
        ran = ask(view, f"0/pass/{i}")
        for source, reader in ran["graph"]["edges"]:
            assert ran["graph"]["nodes"][source]["y"] < ran["graph"]["nodes"][reader]["y"]


def test_buffers_that_share_bytes_do_not_live_together() -> None:
    def steps(x: Any) -> Any:
        def body(c: Any, _: Any) -> Any:
            return jnp.tanh(c @ x) @ x, c.sum()
        for _ in range(3):
            x = jnp.tanh(x @ x.T) @ x
        return fnx.lax.scan(body, x, None, length=3)

    with fnx.jit(steps).lower(jnp.ones((40, 40))).view(browser=False) as page:
        memory = ask(page, "0/memory")
    rows = memory["buffers"]
    assert memory["arena"] == max(b["offset"] + b["bytes"] for b in rows)
    for i, a in enumerate(rows):
        for b in rows[:i]:
            disjoint = a["first"] > b["last"] or b["first"] > a["last"] or \
                a["offset"] >= b["offset"] + b["bytes"] or b["offset"] >= a["offset"] + a["bytes"]
            nested = (a["offset"], a["bytes"]) != (b["offset"], b["bytes"]) and \
                (a["offset"] <= b["offset"] and b["offset"] + b["bytes"] <= a["offset"] + a["bytes"]
                 or b["offset"] <= a["offset"]
                 and a["offset"] + a["bytes"] <= b["offset"] + b["bytes"])
            assert disjoint or nested, (a, b)


def test_every_function_of_a_process_is_on_one_page() -> None:
    code = """
import sys, threading
import fnx, fnx.numpy as jnp
fnx.config.viz = True
for f in (jnp.sin, jnp.cos):
    fnx.jit(f)(jnp.ones(3)); fnx.jit(f)(jnp.ones(4))
from fnx.transforms.page import global_page
from tests.transforms.page.test_page import ask
page, = global_page._pages
print(ask(page, "functions"), len(ask(page, "3/overview")["kernels"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout == "['sin', 'sin', 'cos', 'cos'] 1\n", done.stderr
    assert done.stderr.count("http://127.0.0.1:") == 1 and done.returncode == 0


def test_readers_ask_at_once(view: Page) -> None:
    got: list[Any] = []
    threads = [threading.Thread(target=lambda: got.append(ask(view, "0/overview")))
               for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(got) == 8 and all(g == got[0] for g in got)


@st.composite
def graphs(draw: st.DrawFn) -> list[list[int]]:
    size = draw(st.integers(0, 40))
    return [draw(st.lists(st.integers(0, n - 1), max_size=3)) if n else [] for n in range(size)]


@given(graphs())
def test_nodes_stand_apart_and_below_their_operands(operands: list[list[int]]) -> None:
    places = layer_layout(operands)
    assert len(places) == len(operands)
    for node, sources in enumerate(operands):
        assert all(places[s][1] < places[node][1] for s in sources)
    rows: dict[int, list[float]] = {}
    for x, level in places:
        rows.setdefault(level, []).append(x)
    for row in rows.values():
        row.sort()
        assert all(b - a >= 0.98 for a, b in zip(row, row[1:]))


# ---- in a browser

@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium, which CI installs")
def test_the_page_in_a_browser(view: Page) -> None:
    from playwright.sync_api import sync_playwright

    def hostile(x: Any) -> Any:
        return jnp.tanh(x) * 2

    hostile.__name__ = HOSTILE
    view.add((HOSTILE, lambda: fnx.jit(hostile).lower(jnp.ones(3))))
    messages: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM,
                                             args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1300, "height": 800})
        page.set_default_timeout(120_000)
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.on("dialog", lambda dialog: messages.append("a dialog: text ran as HTML"))
        page.on("request", lambda request: request.url.startswith((view.url, "data:"))
                or messages.append(f"fetched {request.url}"))

        canvas = page.locator("#graph")

        def ready(what: str) -> None:
            page.wait_for_selector(f"body[data-ready='{what}']")

        page.goto(view.url)
        ready("timeline/0")
        assert page.inner_text("#tabs").startswith("Time and source")
        assert page.locator("#text i.time b").count() and canvas.is_visible()
        page.locator("#text .made", has_text="jnp.tanh").first.click()
        page.locator("#tabs button", has_text="Passes").click()
        ready("passes/0")
        rows = page.locator("#list .row")
        passes = [row["name"] for row in ask(view, "0/overview")["passes"]]
        assert rows.count() == len(passes)
        page.keyboard.press("ArrowDown")
        ready("passes/1")
        rows.filter(has_text="simplify").click()
        ready(f"passes/{passes.index('simplify')}")
        assert "MUL with its identity: " in page.inner_text("#head")
        first = canvas.screenshot()
        box = canvas.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 200, box["y"] + 200)
        page.mouse.down()
        page.mouse.move(box["x"] + 320, box["y"] + 260)
        page.mouse.up()
        moved = canvas.screenshot()
        page.mouse.wheel(0, -300)
        page.keyboard.press("/")
        page.keyboard.type("tanh")
        page.locator("#found", has_text="found").wait_for()
        assert first != moved != canvas.screenshot()
        page.keyboard.press("Escape")
        page.fill("#search", "")
        page.get_by_role("button", name="changes").click()
        assert page.locator("#text .new").count() and page.locator("#text .gone").count()

        page.locator("#tabs button", has_text="Kernels").click()
        ready("kernels/0")
        page.get_by_role("button", name="table").click()
        page.locator("#text tbody tr").nth(1).click()
        ready("kernels/1")
        page.wait_for_selector("body[data-read='kernels/1/tiled']")
        assert page.inner_text("#text").startswith("kernel ")
        page.locator("#tabs button", has_text="Time and").click()
        ready("timeline/0")
        assert "worker 0: busy for" in page.inner_text("#head")
        page.get_by_role("button", name="time", exact=True).click()
        drawn = canvas.screenshot()
        box = canvas.bounding_box()
        assert box is not None
        long = max(ask(view, "0/timeline")["runs"], key=lambda r: r["stop"] - r["start"])
        page.fill("#search", long["name"])
        page.locator("#found", has_text="found").wait_for()
        assert drawn != canvas.screenshot()
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        assert long["name"] in page.inner_text("#status")
        page.fill("#search", "")
        page.get_by_role("button", name="table").click()
        assert page.locator("#text tbody tr").count() == len(ask(view, "0/timeline")["runs"])
        for tab in ("Steps", "Memory"):
            page.locator("#tabs button", has_text=tab).click()
            ready(f"{tab.lower()}/0")
        page.locator("#tabs button", has_text="Time and").click()
        place = [f["file"] for f in ask(view, "0/source")].index("test_page.py")
        rows.nth(place).click()
        ready(f"timeline/{place}")
        assert "jnp.tanh" in page.inner_text("#text")
        page.select_option("#functions", label=HOSTILE)
        page.locator("#title", has_text="1 kernels").wait_for()
        assert page.locator("img").count() == 0

        page.set_viewport_size({"width": 400, "height": 850})
        page.select_option("#functions", index=0)
        for tab in ("Kernels", "Passes", "Steps", "Memory", "Time and"):
            page.locator("#tabs button", has_text=tab).click()
            ready(f"{'timeline' if tab == 'Time and' else tab.lower()}/0")
            assert page.evaluate("document.documentElement.scrollWidth") <= 400, tab
        # All of the time is in the drawing, and each name of a lane has the room that it takes.
        assert page.evaluate("""drawing.boxes.every(b => {
            const from = drawing.x + drawing.scale * drawing.stretch * b.x;
            const to = from + drawing.scale * drawing.stretch * b.w;
            return from >= 0 && to <= drawing.canvas.clientWidth && (b.x >= 0 || to - from > 80);
        })""")
        browser.close()
    assert messages == []
