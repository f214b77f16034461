"""The server of the page: bound to this machine, and requests need a token.

    http://127.0.0.1:<port>/<token>/            the page
    http://127.0.0.1:<port>/<token>/app.js      and its parts
    http://127.0.0.1:<port>/<token>/data/<function>/<part>/<number or name>

Any program of any user of the machine can connect, and any page in the browser can send requests.
So a request needs the token, which is random, and a Host header of this server (an attacker's name
that resolves to 127.0.0.1 is a different Host). Connections without the token are limited in number
and time (pending_connections.py). The browser's command line, which every user can read, contains
only the path of a file that its owner alone can read and that redirects to the page. Response
headers forbid all content from elsewhere. User text travels as JSON and is shown as text, never as
HTML.
"""

from __future__ import annotations

import atexit
import contextlib
import hmac
import json
import os
import secrets
import shutil
import sys
import tempfile
import threading
import time
import weakref
import webbrowser
from collections.abc import Callable, Sequence
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any

from fnx.core.support.errors import ArgumentError
from fnx.core.support.process import at_fork
from fnx.transforms.inspect.lowering import Lowering
from fnx.transforms.page.page_data import Json, PageData, page_parts
from fnx.transforms.page.pending_connections import PendingConnections

FILES = {"": ("page.html", "text/html; charset=utf-8"),
         "app.js": ("app.js", "text/javascript; charset=utf-8"),
         "graph.js": ("graph.js", "text/javascript; charset=utf-8"),
         "style.css": ("style.css", "text/css; charset=utf-8")}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
                               "connect-src 'self'; img-src 'self' data:; base-uri 'none'; "
                               "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store"}

PageEntry = tuple[str, Callable[[], Lowering]]  # a function: its name, and how to make its Lowering


UNUSED_SECONDS = 60.0  # at the end of a process without a terminal

_open_pages: weakref.WeakSet[Page] = weakref.WeakSet()
_pages_at_exit: list[Page] = []  # those that are served at the end of the process


def _close_in_child() -> None:
    """Close the server in a forked child: the parent answers."""
    for page in list(_open_pages):
        page.close_in_child()


at_fork(in_child=_close_in_child)


class Page:
    """A page that is served until ``close()``, or the end of the process (``_serve_at_exit``).

    Attributes:
        url: of the page, with its token.
        is_opened: whether a browser was told to open it.
    """

    def __init__(self, entries: Sequence[PageEntry], port: int) -> None:
        self._data: list[tuple[str, Callable[[], PageData]]] = []
        self._token = secrets.token_urlsafe(18)
        self._remove_redirect: Callable[[], Any] | None = None  # removes the redirect file
        self.is_opened, self._last_request = False, time.monotonic()
        try:
            self._server = _Server(("127.0.0.1", port), _Handler)
        except (OSError, OverflowError) as e:
            raise ArgumentError(f"view: expected a port that is free, got {port} ({e})",
                                hint="view() takes one that is free" if port else "allow this "
                                "process to listen on 127.0.0.1, or print the stages by show('all')"
                                ) from None
        self._server.view = self
        self.url = f"http://127.0.0.1:{self._server.server_port}/{self._token}/"
        for entry in entries:
            self.add(entry)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True,
                                        name="fnx view")
        self._thread.start()
        _open_pages.add(self)

    def __repr__(self) -> str:
        return f"<view: {self.url}>"

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def add(self, entry: PageEntry) -> None:
        """Add a function to the page."""
        name, make = entry
        cached_data: list[PageData] = []
        lock = threading.Lock()

        def data() -> PageData:
            with lock:
                if not cached_data:
                    cached_data.append(PageData(name, make()))
                return cached_data[0]

        self._data.append((name, data))

    @property
    def size(self) -> int:
        """The number of functions on the page."""
        return len(self._data)

    @property
    def is_served(self) -> bool:
        return self._thread.is_alive()

    def close(self) -> None:
        """Stop the server; an open browser page stays as it is."""
        self._server.shutdown()
        self._server.server_close()
        self.remove_redirect_file()

    def redirect_file(self) -> str:
        """Return the URI of a file that redirects to the page and that only its owner can read. The
        file exists until the page is requested or closed."""
        folder = tempfile.mkdtemp(prefix="fnx-view-")  # created with mode 0700
        self._remove_redirect = weakref.finalize(self, _remove_folder, folder, os.getpid())
        redirect_path = Path(folder, "page.html")
        descriptor = os.open(redirect_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w") as file:
            file.write('<!doctype html><meta name="referrer" content="no-referrer">'
                       f'<meta http-equiv="refresh" content="0; url={escape(self.url)}">')
        return redirect_path.as_uri()

    def remove_redirect_file(self) -> None:
        """Remove the redirect file, if there is one."""
        if self._remove_redirect is not None:
            self._remove_redirect()

    def close_in_child(self) -> None:
        """Close the server's socket in a forked child."""
        self._server.socket.close()

    def wait(self, unused_seconds: float | None = None) -> None:
        """Serve until Ctrl-C or, if a number is given, until nothing was asked for that long."""
        while unused_seconds is not None and self.is_served:
            unused = time.monotonic() - self._last_request
            if unused >= unused_seconds:
                return
            time.sleep(min(0.1, unused_seconds - unused))
        self._thread.join()

    def note_request(self) -> None:
        """Note that the page is in use, so that the file which leads to it is not needed."""
        self._last_request = time.monotonic()
        self.remove_redirect_file()

    # ---- responses

    def is_authorized(self, host: str | None, token: str) -> bool:
        """Return whether a request has this server's Host and token."""
        port = self._server.server_port
        return host in (f"127.0.0.1:{port}", f"localhost:{port}") \
            and hmac.compare_digest(token.encode(), self._token.encode())

    def data(self, path: Sequence[str]) -> Json:
        """Return the data that ``functions`` or ``<function>/<part>/<detail>`` names.

        Raises:
            ArgumentError: there is no such part.
        """
        if list(path) == ["functions"]:
            return [name for name, _ in self._data]
        function, part, detail = [*path, "", "", ""][:3]
        if len(path) > 3 or not function.isdecimal() or int(function) >= len(self._data):
            raise ArgumentError("expected a function of the page")
        get_part = page_parts(self._data[int(function)][1]()).get(part)
        if get_part is None:
            raise ArgumentError("expected a part of the page")
        return get_part(detail)


def _remove_folder(folder: str, process: int) -> None:
    if os.getpid() == process:  # a forked child leaves the folder to its parent
        shutil.rmtree(folder, ignore_errors=True)


class _Server(ThreadingHTTPServer):
    view: Page
    daemon_threads = True
    allow_reuse_address = False
    request_queue_size = 128

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.pending = PendingConnections()

    def process_request(self, request: Any, client_address: Any) -> None:
        self.pending.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.pending.remove(request)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Close connections that have exceeded their time; called periodically."""
        self.pending.close_expired()

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # the client closed the connection
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """Answer GETTUPLE requests for files and data."""

    server: _Server
    server_version, sys_version = "fnx", ""
    timeout = 30  # seconds, for an authenticated client

    def do_GET(self) -> None:
        _, token, *path = [*self.path.partition("?")[0].split("/"), ""]
        if not self.server.view.is_authorized(self.headers.get("Host"), token):
            self._answer(403, "text/plain", b"the address of the page ends in a token")
            return
        self.server.pending.remove(self.connection)
        self.server.view.note_request()
        path = [p for p in path if p]
        if path[:1] == ["data"]:
            self._data(path[1:])
        elif (file_entry := FILES.get("/".join(path))) is not None:
            name, content_type = file_entry
            self._answer(200, content_type, files(__package__).joinpath(name).read_bytes())
        else:
            self._answer(404, "text/plain", b"no such page")

    def _data(self, path: Sequence[str]) -> None:
        try:
            status, value = 200, self.server.view.data(path)
        except ArgumentError as e:
            status, value = 404, {"error": str(e)}
        except Exception as e:  # the client gets the error and can request other parts
            status, value = 500, {"error": f"{type(e).__name__}: {e}"}
        self._answer(status, "application/json", json.dumps(value).encode())

    def _answer(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Do not log requests on the user's terminal."""


def keep_at_exit(page: Page) -> None:
    """Serve a page at the end of the process, too, as ``view()`` may be the last line of a script:
    see ``_serve_at_exit``."""
    if not _pages_at_exit:
        atexit.register(_serve_at_exit)
    _pages_at_exit.append(page)


def _serve_at_exit() -> None:
    """Serve the pages until Ctrl-C; without a terminal, those in a browser until it is done.

    At the end of an interactive session they end with it.
    """
    pages = [page for page in _pages_at_exit if page.is_served]
    is_terminal = sys.stderr.isatty()
    if not is_terminal:
        pages = [page for page in pages if page.is_opened]
    if not pages or hasattr(sys, "ps1") or sys.flags.interactive:
        return
    end = "Ctrl-C" if is_terminal else f"it is not used for {UNUSED_SECONDS:g} s"
    print(f"fnx: {' and '.join([page.url for page in pages])} stays until {end}", file=sys.stderr,
          flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        for page in pages:
            page.wait(None if is_terminal else UNUSED_SECONDS)


def serve(entries: Sequence[PageEntry], port: int = 0, browser: bool = True) -> Page:
    """Serve functions and open the page; if no browser can be opened, print its address."""
    page = Page(entries, port)
    if browser:
        page.is_opened = webbrowser.open(page.redirect_file())
        if not page.is_opened:
            page.remove_redirect_file()
            print(f"fnx: {page.url}" + ("" if sys.stderr.isatty() else
                                        " (no browser, no terminal: it ends with the script)"))
        keep_at_exit(page)
    return page
