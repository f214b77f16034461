"""Imports follow the layers: core <- {transforms, lower, backends} <-
transforms/{link, jit, jit_stages}.py, jaxprs <- public.

There are no import cycles, not even of imports for types only.
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "fnx"
FILES = sorted(PACKAGE.rglob("*.py"))

LOADERS = "load", "lazy_import"  # functions that take names of modules

JOINT = "transforms/{link, jit, jit_stages}.py, jaxprs"  # imports transforms, lower and backends

# layer -> the layers it may import from
ALLOWED = {
    "core": {"core"},
    "transforms": {"core", "transforms"},
    "lower": {"core", "lower"},
    "backends": {"core", "backends"},
    JOINT: {"core", "transforms", JOINT, "lower", "backends"},
    "public": {"core", "transforms", JOINT, "public"},
}


def room(module: str) -> str:
    """Return the layer of a dotted name inside fnx."""
    if module.split(".")[1:3] in (["transforms", "link"], ["transforms", "jit"],
                                  ["transforms", "jit_stages"]) or \
            module.split(".")[1:2] == ["jaxprs"]:
        return JOINT
    first = (module.split(".") + [""])[1]
    return first if first in ALLOWED else "public"


class Source(NamedTuple):
    """The modules, or names in them, that a file imports, and modules of fnx that it loads by name
    (``load("fnx.lower.pipeline")``), each with its line."""

    imports: list[tuple[str, int]]
    late: set[int]  # lines of imports inside functions
    loads: list[tuple[str, int]]

    def of_fnx(self) -> Iterator[tuple[str, int]]:
        return ((name, line) for name, line in self.imports if name.split(".")[0] == "fnx")


@cache  # for several laws: parsing the package takes seconds
def read(source: str) -> Source:
    out = Source([], set(), [])
    functions: list[tuple[int, int]] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            out.imports.extend((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute"
            out.imports.extend((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions.append((node.lineno, node.end_lineno or node.lineno))
        elif isinstance(node, ast.Call) and \
                getattr(node.func, "attr", getattr(node.func, "id", "")) in LOADERS:
            out.loads.extend((arg.value, node.lineno) for arg in node.args
                             if isinstance(arg, ast.Constant) and str(arg.value).startswith("fnx."))
    out.late.update(line for _, line in out.imports
                    if any(first <= line <= last for first, last in functions))
    return out


def lazy_names(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield (module, name) of each name that is read from a module imported lazily."""
    stubs: dict[str, str] = {}
    attributes: list[ast.Attribute] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            attributes.append(node)
            continue
        call = node.value if isinstance(node, ast.Assign) else node
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "lazy_import":
            texts = [arg.value for arg in call.args if isinstance(arg, ast.Constant)]
            if len(call.args) == len(texts) == 2:
                yield texts[0], texts[1]
            elif isinstance(node, ast.Assign) and len(texts) == 1:
                stubs[ast.unparse(node.targets[0])] = texts[0]
    for node in attributes:
        if isinstance(node.value, ast.Name) and node.value.id in stubs:
            yield stubs[node.value.id], node.attr


def test_names_of_lazy_imports_exist() -> None:
    sources = [source for path in FILES if "lazy_import" in (source := path.read_text())]
    names = {name for source in sources for name in lazy_names(ast.parse(source))}
    assert len(names) > 100
    assert [(module, name) for module, name in sorted(names)
            if not hasattr(importlib.import_module(module), name)] == []


def broken(source: str, home: str) -> list[str]:
    """Return the imports of a file in layer ``home`` that the layers do not allow."""
    file = read(source)
    late = [f"line {line}: {name}" for name, line in file.loads
            if room(name) not in ALLOWED[home]]
    late += [f"line {line}: {name}" for name, line in file.imports if line in file.late]
    return late + [f"line {line}: {name}" for name, line in file.of_fnx()
                   if room(name) not in ALLOWED[home] and line not in file.late]


@pytest.mark.parametrize("home", ALLOWED)
def test_imports_go_along_the_layers(home: str) -> None:
    names = {path: f"fnx.{'.'.join(path.relative_to(PACKAGE).with_suffix('').parts)}"
             for path in FILES}
    files = [path for path in FILES if room(names[path]) == home]
    assert files
    assert [f"{names[path]}: {fault}" for path in files
            for fault in broken(path.read_text(), home)] == []


def test_third_parties_are_the_declared_dependencies() -> None:
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["project"]
    declared = {re.split(r"[^\w-]", d)[0].replace("-", "_") for d in project["dependencies"]}
    assert declared == {"numpy", "typing_extensions", "llvmlite", "scipy"}
    # used if the user has it; absl by jax._src.test_util only, onnx by fnx.onnx, torch by fnx.torch
    optional = {"ml_dtypes", "absl", "onnx", "torch"}
    for path in FILES:
        packages = {name.partition(".")[0] for name, _ in read(path.read_text()).imports}
        assert packages - sys.stdlib_module_names - {"fnx"} <= declared | optional, path


@pytest.mark.parametrize(("source", "home"), [
    ("import fnx.lower.schedule.tile", "transforms"),
    ("from fnx.backends import cpu", "lower"),
    ("from fnx import numpy", "core"),
    ("from fnx.transforms.jit import jit", "transforms"),
    ("import fnx.lower.pipeline", "public"),
    ("def f():\n    from fnx.core.ir import ops", "core"),
    ("def f():\n    import difflib", "core"),
    ("def f():\n    from fnx.numpy import add", JOINT),
    ("def f():\n    return process.load('fnx.lower.pipeline')", "transforms"),
])
def test_a_wrong_import_is_found(source: str, home: str) -> None:
    assert len(broken(source, home)) == 1


def test_the_map_has_a_line_for_each_room() -> None:
    table = (PACKAGE.parent / "docs" / "architecture.md").read_text()
    rooms = {p.parent.relative_to(PACKAGE).as_posix() for p in FILES} - {"."}
    assert {room for room in rooms if f"`{room}`" not in table} == set()


def imported(files: dict[str, str]) -> dict[str, set[str]]:
    """Return for each module (name -> source) the modules among them that it imports anywhere."""
    out: dict[str, set[str]] = {}
    for name, source in files.items():
        found = {module for module, _ in read(source).of_fnx()}
        parents = {module.rpartition(".")[0] for module in found - files.keys()}
        out[name] = (found | parents) & files.keys() - {name}
    return out


def circles(imports: dict[str, set[str]]) -> set[str]:
    """Return the modules on import cycles, or between two cycles."""
    left = dict(imports)
    while True:
        read = {m for found in left.values() for m in found}
        ends = {m for m, found in left.items() if not found & left.keys() or m not in read}
        if not ends:
            return set(left)
        left = {m: found for m, found in left.items() if m not in ends}


def folders(imports: dict[str, set[str]], packages: set[str]) -> dict[str, set[str]]:
    """Return for each folder the others from which one of its own files imports."""
    home = {name: name if name in packages else name.rpartition(".")[0] for name in imports}
    out: dict[str, set[str]] = {folder: set() for folder in home.values()}
    for name, found in imports.items():
        out[home[name]] |= {home[module] for module in found} - {home[name]}
    return out


@cache
def package_imports() -> dict[str, set[str]]:
    """Return for each module of fnx those that it imports."""
    return imported({".".join(p.relative_to(PACKAGE.parent).with_suffix("").parts)
                     .removesuffix(".__init__"): p.read_text() for p in FILES})


def test_imports_between_files_have_no_circle() -> None:
    assert circles(package_imports()) == set()


def test_imports_between_folders_have_no_circle() -> None:
    packages = {".".join(p.parent.relative_to(PACKAGE.parent).parts) for p in FILES}
    found = folders(package_imports(), packages)
    assert len(found) > 30
    assert circles(found) == set()


def test_a_circle_of_folders_is_found() -> None:
    files = {"fnx": "", "fnx.a": "", "fnx.a.x": "import fnx.b.y", "fnx.b": "", "fnx.b.y": "",
             "fnx.b.z": "from fnx.a import w", "fnx.a.w": ""}
    assert circles(imported(files)) == set()
    assert circles(folders(imported(files), {"fnx", "fnx.a", "fnx.b"})) == {"fnx.a", "fnx.b"}


def test_a_circle_of_types_is_found() -> None:
    files = {"fnx.a": "from fnx import b", "fnx.d": "import fnx.a", "fnx": "import fnx.d",
             "fnx.b": "if TYPE_CHECKING:\n    from fnx.c import C", "fnx.c": "import fnx.a as x"}
    assert circles(imported(files)) == {"fnx.a", "fnx.b", "fnx.c"}


VENDORS = re.compile(r"opencl|cuda|nvptx|nvidia|pocl|webgpu|wgsl|vulkan|\bptx", re.IGNORECASE)
NAMING = ("backends/", "lower/render/", "lower/target_lowerings.py", "core/support/config.py",
          "exporting/",   # file formats name their vendor
          "core/support/jax_flags.py",  # names of JAX's settings
          "core/support/name_hints.py",  # names of PyTorch's methods
          "lax/bit_ops.py")  # an argument of JAX's platform_dependent


def test_backends_and_renderers_are_small_files() -> None:
    """A backend file has at most 500 lines, a renderer file at most 400; the LLVM IR renderer,
    which CPUs and GPUs share, 500."""
    rooms = {"backends": 500, "lower/render": 400}
    lines = {path.relative_to(PACKAGE).as_posix(): (len(path.read_text().splitlines()), most)
             for room, most in rooms.items() for path in (PACKAGE / room).rglob("*.py")}
    assert len(lines) > 30
    assert [name for name, (count, most) in lines.items()
            if count > (500 if name == "lower/render/llvm.py" else most)] == []


def test_only_backends_renderers_and_rows_name_a_vendor() -> None:
    naming = [path for path in PACKAGE.rglob("*.py") if VENDORS.search(path.read_text())]
    names = [path.relative_to(PACKAGE).as_posix() for path in naming]
    assert [name for name in names if not name.startswith(NAMING)] == []
