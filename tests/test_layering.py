"""Imports follow the layers: core <- {transforms, lower, backends} <- transforms/{link, jit}.py,
jaxprs <- public.

There are no import cycles, not even of imports for types only.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "fnx"
FILES = sorted(PACKAGE.rglob("*.py"))

JOINT = "transforms/{link, jit}.py, jaxprs"  # imports transforms, lower and backends

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
    if module.split(".")[1:3] in (["transforms", "link"], ["transforms", "jit"]) or \
            module.split(".")[1:2] == ["jaxprs"]:
        return JOINT
    first = (module.split(".") + [""])[1]
    return first if first in ALLOWED else "public"


def modules(tree: ast.AST) -> Iterator[tuple[str, ast.stmt]]:
    """Yield every module of fnx that is imported anywhere in a file, with the statement."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name.split(".")[0] == "fnx":
                yield name, node


def loaded(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Yield every module of fnx that is loaded lazily by its name:
    ``load("fnx.lower.pipeline")``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and \
                ast.unparse(node.func).rpartition(".")[2] in ("load", "lazy_import"):
            for name in node.args:
                if isinstance(name, ast.Constant) and str(name.value).startswith("fnx."):
                    yield name.value, node


def lazy_names(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield (module, name) of each name that is read from a module imported lazily."""
    stubs: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "lazy_import":
            texts = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
            if len(node.args) == len(texts) == 2:
                yield texts[0], texts[1]
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and \
                ast.unparse(node.value.func) == "lazy_import" and len(node.value.args) == 1:
            stubs[ast.unparse(node.targets[0])] = ast.literal_eval(node.value.args[0])
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in stubs:
            yield stubs[ast.unparse(node.value)], node.attr


def test_names_of_lazy_imports_exist() -> None:
    sources = [source for path in FILES if "lazy_import" in (source := path.read_text())]
    names = {name for source in sources for name in lazy_names(ast.parse(source))}
    assert len(names) > 100
    assert [(module, name) for module, name in sorted(names)
            if not hasattr(importlib.import_module(module), name)] == []


def broken(source: str, home: str) -> list[str]:
    """Return the imports of a file in layer ``home`` that the layers do not allow."""
    tree = ast.parse(source)
    late = [f"line {node.lineno}: {name}" for name, node in loaded(tree)
            if room(name) not in ALLOWED[home]]
    inside = {id(child) for node in ast.walk(tree)
              if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
              for child in ast.walk(node)}
    late += [f"line {node.lineno}: {ast.unparse(node)}" for node in ast.walk(tree)
             if isinstance(node, ast.Import | ast.ImportFrom) and id(node) in inside]
    return late + [f"line {node.lineno}: {name}" for name, node in modules(tree)
                   if room(name) not in ALLOWED[home] and id(node) not in inside]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_along_the_layers(path: Path) -> None:
    relative = path.relative_to(PACKAGE).as_posix()
    home = room(f"fnx.{relative.removesuffix('.py').replace('/', '.')}")
    assert broken(path.read_text(), home) == []


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
        found = {module for module, _ in modules(ast.parse(source))}
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
