"""Build the documentation site in build/docs/html: ``make docs``.

The pages are docs/index.md, the guide, the changelog, the notebooks with their stored results,
docs/*.md, and a page for each public module generated from docstrings. Sphinx's warnings are
errors; then every link within the site is followed. The site must not load anything from another
host, so that it can be read offline.

    python scripts/build_docs.py
"""

from __future__ import annotations

import importlib
import inspect
import posixpath
import re
import shutil
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urldefrag, urlsplit

import sphinx.cmd.build

import fnx.scipy.stats

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "docs"
SOURCE, SITE = BUILD / "source", BUILD / "html"

MODULES = ["fnx", "fnx.numpy", "fnx.numpy.fft", "fnx.numpy.linalg", "fnx.lax", "fnx.nn",
           "fnx.nn.initializers", "fnx.random", "fnx.kernel", "fnx.tree", "fnx.tree_util",
           "fnx.flatten_util", "fnx.scipy.special", "fnx.scipy.stats", "fnx.scipy.linalg",
           "fnx.scipy.sparse.linalg", "fnx.scipy.optimize", "fnx.scipy.signal", "fnx.scipy.fft",
           "fnx.scipy.integrate", "fnx.scipy.interpolate", "fnx.scipy.ndimage",
           "fnx.scipy.spatial.transform", "fnx.scipy.cluster.vq", "fnx.image", "fnx.ops",
           "fnx.debug", "fnx.profiler", "fnx.experimental", "fnx.experimental.checkify",
           "fnx.experimental.jet", "fnx.experimental.ode", "fnx.experimental.sparse",
           "fnx.custom_batching", "fnx.custom_derivatives", "fnx.checkpoint_policies",
           "fnx.ad_checkpoint", "fnx.sharding", "fnx.dlpack", "fnx.dtypes", "fnx.errors",
           "fnx.stages", "fnx.typing", "fnx.test_util"]
MODULES += [f"fnx.scipy.stats.{name}" for name in sorted(fnx.scipy.stats.__all__)
            if inspect.ismodule(getattr(fnx.scipy.stats, name))]
SECTIONS = {"class": "Classes", "exception": "Errors", "function": "Functions", "data": "Values"}


# ---- sources

def gather() -> None:
    """Copy the pages, laid out as in the repository so that links between them work."""
    shutil.rmtree(BUILD, ignore_errors=True)
    (SOURCE / "docs").mkdir(parents=True)
    for name in ("README.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, SOURCE)
    for page in (ROOT / "docs").glob("*.md"):
        shutil.copy(page, SOURCE / "docs")
    (SOURCE / "index.md").write_text(move_links((SOURCE / "docs" / "index.md").read_text(), "docs"))
    (SOURCE / "docs" / "index.md").unlink()
    for folder in ("guide", "pictures"):
        shutil.copytree(ROOT / "docs" / folder, SOURCE / "docs" / folder)
    shutil.copy(ROOT / "docs" / "conf.py", SOURCE)
    shutil.copytree(ROOT / "notebooks", SOURCE / "notebooks",
                    ignore=shutil.ignore_patterns(".ipynb_checkpoints", "*.png"))


def move_links(text: str, folder: str) -> str:
    """Return a page of a folder with links that hold one folder above.

    >>> move_links("[a](guide/a.md) [b](../b.md) [c](https://c.org) [d](#d)", "docs")
    '[a](docs/guide/a.md) [b](b.md) [c](https://c.org) [d](#d)'
    """
    return re.sub(r"\]\((?!\w+:|#)([^)]+)\)",
                  lambda link: f"]({posixpath.normpath(posixpath.join(folder, link[1]))})", text)


def write_reference() -> None:
    """Write a page for each public module."""
    folder = SOURCE / "reference"
    folder.mkdir()
    entries = "\n".join(f"   {name}" for name in MODULES)
    (folder / "index.rst").write_text(
        f"{heading('Reference', '=')}.. toctree::\n   :maxdepth: 1\n\n{entries}\n")
    for name in MODULES:
        (folder / f"{name}.rst").write_text(reference_page(importlib.import_module(name)))


def reference_page(module: ModuleType) -> str:
    """Return a module's docstring, a table of its names, and the entry of each."""
    name = module.__name__
    parts = [heading(name, "="), f".. automodule:: {name}\n   :no-members:\n\n",
             f".. currentmodule:: {name}\n\n"]
    kinds: dict[str, list[str]] = {kind: [] for kind in SECTIONS}
    for public in sorted(module.__all__):
        value = getattr(module, public)
        if not inspect.ismodule(value):
            kinds[kind_of(value)].append(public)
    modules = [other for other in MODULES if other.rpartition(".")[0] == name != "fnx"]
    if modules:
        parts += [heading("Modules", "-"), *[f"- :doc:`{other}`\n" for other in modules], "\n"]
    for kind, names in kinds.items():
        if names:
            parts.append(heading(SECTIONS[kind], "-"))
            if kind == "data":
                parts += [value_entry(n, getattr(module, n)) for n in names]
            else:
                parts.append(".. autosummary::\n\n" + "".join(f"   {n}\n" for n in names) + "\n")
                parts += [entry(module, kind, n) for n in names]
    return "".join(parts)


def kind_of(value: object) -> str:
    """Return the section among SECTIONS that lists a public value."""
    if not getattr(value, "__module__", "").startswith("fnx"):
        return "data"  # NumPy's
    if isinstance(value, type):
        return "exception" if issubclass(value, BaseException) else "class"
    return "function" if hasattr(value, "__name__") else "data"


def entry(module: ModuleType, kind: str, name: str) -> str:
    """Return the full docstring; a class is described only in the first module that has it."""
    if kind == "function":
        return f".. autofunction:: {name}\n\n"
    value = getattr(module, name)
    home = next(other for other in MODULES
                if getattr(importlib.import_module(other), name, None) is value)
    if home != module.__name__:
        return f"``{name}`` is :class:`{home}.{name}`.\n\n"
    return f".. auto{kind}:: {name}\n   :members:\n\n"


def value_entry(name: str, value: object) -> str:
    """Return the docstring of a value's class; empty for NumPy's values."""
    if type(value).__module__.startswith("fnx"):
        return f".. autodata:: {name}\n   :no-value:\n\n"
    return f".. py:data:: {name}\n\n   ``{value!r}``\n\n"


def heading(text: str, line: str) -> str:
    return f"{text}\n{line * len(text)}\n\n"


# ---- links

class Page(HTMLParser):
    """The links and anchors of a page, and the resources that a browser loads with it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.fetched: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value for name, value in attrs if value}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.add(found["href"])
        elif "src" in found or (tag == "link" and "href" in found):
            self.fetched.add(found.get("src") or found["href"])


def dead_links(site: Path) -> Iterator[str]:
    """Return ``page: link`` for each broken link within a site, and for each resource that a page
    would load from another host.

    >>> import tempfile
    >>> site = Path(tempfile.mkdtemp())
    >>> _ = (site / "a.html").write_text('<a href="b.html">b</a> <a href="#here">here</a>')
    >>> sorted(dead_links(site))
    ['a.html: #here', 'a.html: b.html']
    """
    pages = {path.resolve(): Page(path.read_text()) for path in site.rglob("*.html")}
    for path, page in pages.items():
        for link in page.links | page.fetched:
            parts = urlsplit(link)
            if parts.scheme == "data":
                continue
            if parts.scheme or parts.netloc:
                dead = link in page.fetched
            else:
                file, anchor = urldefrag(link)
                target = (path.parent / unquote(urlsplit(file).path)).resolve() if file else path
                there = pages.get(target)
                dead = not target.is_file() or bool(
                    anchor and there is not None and unquote(anchor) not in there.anchors)
            if dead:
                yield f"{path.relative_to(site.resolve())}: {link}"


def main() -> int:
    gather()
    write_reference()
    failed = sphinx.cmd.build.main(["-b", "html", "-W", "--keep-going", "-q", "-j", "auto",
                                    "-d", str(BUILD / "doctrees"), str(SOURCE), str(SITE)])
    dead = sorted(dead_links(SITE))
    for line in dead:
        print("dead:", line, file=sys.stderr)
    print(f"{len(list(SITE.rglob('*.html')))} pages, {len(dead)} dead links: {SITE}/index.html")
    return int(bool(failed or dead))


if __name__ == "__main__":
    sys.exit(main())
