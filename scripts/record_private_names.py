"""Write fnx/as_jax/private_names.json: names of JAX that libraries use and JAX does not document.

    python scripts/record_private_names.py                    wheels fetched by pip
    python scripts/record_private_names.py --wheels FOLDER    wheels and sdists of a folder
    python scripts/record_private_names.py --source           source_names.json instead: the names
                                                              that jax._src defines, which tests use

The wheels are those of the libraries in scripts/libraries.toml. Their sources are parsed, not run:
every ``import`` and every attribute of an imported module gives a dotted name. A name that is not
in fnx/as_jax/names.json is looked up in the installed JAX, which says what kind of thing it is and
under which public name it is known, too. A name that JAX lacks is left out.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import io
import json
import pkgutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import jax

ROOT = Path(__file__).resolve().parent.parent
PUBLIC: dict[str, dict[str, list[str]]] = json.loads(
   (ROOT / "fnx" / "as_jax" / "names.json").read_text())["modules"]
OUT = ROOT / "fnx" / "as_jax" / "private_names.json"
LIBRARIES = tomllib.loads((ROOT / "scripts" / "libraries.toml").read_text())
PACKAGES = ("jax", "jaxlib")
PLAIN = (int, float, str, bytes, tuple, list, dict, type(None))  # equal objects may be unrelated


def fetch(folder: str) -> None:
    """Fetch the wheels, or else the sdists, of all libraries into a folder."""
    versions: dict[str, str] = {**LIBRARIES["programs"], **LIBRARIES["names"]}
    for name, version in versions.items():
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
                        "--no-build-isolation", "--dest", folder, f"{name}=={version}"],
                       check=True)


def sources(archive: Path) -> Iterator[tuple[str, str]]:
    """Return (path, text) of the Python files of a wheel or an sdist."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for name in wheel.namelist():
                if name.endswith(".py"):
                    yield name, wheel.read(name).decode("utf-8", "replace")
        return
    with tarfile.open(archive) as sdist:
        for member in sdist:
            data = sdist.extractfile(member) if member.name.endswith(".py") else None
            if data is not None:
                yield member.name, io.TextIOWrapper(data, "utf-8", "replace").read()


def _dotted(node: ast.expr, aliases: Mapping[str, str]) -> str | None:
    """Return the dotted name of an attribute of an imported module, or None."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in aliases:
        return None
    return ".".join([aliases[node.id], *reversed(parts)])


def used_names(text: str) -> set[str]:
    """Return the dotted names of JAX that a module uses.

    >>> sorted(used_names("from jax._src import core as c\\nc.Jaxpr\\nimport jax.numpy as jnp"))
    ['jax._src.core', 'jax._src.core.Jaxpr', 'jax.numpy']
    """
    try:
        module = ast.parse(text)
    except SyntaxError:  # templates, Python 2
        return set()
    aliases: dict[str, str] = {}
    found: set[str] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            for name in node.names:
                if name.name.partition(".")[0] in PACKAGES:
                    found.add(name.name)
                    aliases[name.asname or name.name.partition(".")[0]] = \
                        name.name if name.asname else name.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom) and not node.level \
                and (node.module or "").partition(".")[0] in PACKAGES:
            for name in node.names:
                if name.name != "*":
                    found.add(f"{node.module}.{name.name}")
                    aliases[name.asname or name.name] = f"{node.module}.{name.name}"
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute):
            dotted = _dotted(node, aliases)
            if dotted is not None:
                found.add(dotted)
    return found


def resolve(dotted: str) -> Iterator[tuple[str, str, Any]]:
    """Return (module, name, value) of each step of a dotted name in the installed JAX, down to the
    first thing that is no module."""
    path, *rest = dotted.split(".")
    module = importlib.import_module(path)
    for name in rest:
        try:
            value = getattr(module, name) if hasattr(module, name) else \
                importlib.import_module(f"{path}.{name}")
        except Exception:  # JAX does not have it, or not on this machine
            return
        yield path, name, value
        if not isinstance(value, ModuleType) or not value.__name__.startswith(PACKAGES):
            return
        path, module = f"{path}.{name}", value
        if module.__name__ != path:  # the same module by another name
            path = module.__name__


def kind(value: Any) -> str:
    if isinstance(value, ModuleType):
        return "modules"
    if inspect.isclass(value):
        return "errors" if issubclass(value, BaseException) else "types"
    return "functions" if callable(value) else "values"


def public_names() -> dict[int, list[str]]:
    """Return the identity of each public value of JAX -> its dotted names."""
    names_of: dict[int, list[str]] = {}
    for path, kinds in PUBLIC.items():
        home = importlib.import_module(path)
        for names in kinds.values():
            for name in names:
                value = getattr(home, name, None)
                if not isinstance(value, PLAIN):
                    names_of.setdefault(id(value), []).append(f"{path}.{name}")
    return names_of


def public_name(path: str, name: str, value: Any, names_of: Mapping[int, list[str]]) -> str | None:
    """Return the public name of a value, by preference one with the same last part."""
    if isinstance(value, ModuleType):
        return value.__name__ if value.__name__ != f"{path}.{name}" else None
    found = [t for t in names_of.get(id(value), ()) if t != f"{path}.{name}"]
    return min(found, key=lambda t: (t.rpartition(".")[2] != name, t.count("."), t), default=None)


def harvest(folder: Path) -> dict[str, dict[str, Any]]:
    """Return module -> name -> [kind, public, libraries] over the archives of a folder."""
    users: dict[str, set[str]] = {}
    for archive in sorted([*folder.glob("*.whl"), *folder.glob("*.tar.gz")]):
        library = archive.name.partition("-")[0].replace("_", "-")
        for _, text in sources(archive):
            for dotted in used_names(text):
                users.setdefault(dotted, set()).add(library)
    names_of = public_names()
    table: dict[str, dict[str, Any]] = {}
    for dotted, libraries in sorted(users.items()):
        for path, name, value in resolve(dotted):
            known = PUBLIC.get(path, {})
            public = f"{path}.{name}" in PUBLIC or any(name in names for names in known.values())
            dunder = name.startswith("__") and name.endswith("__")
            foreign = isinstance(value, ModuleType) and not value.__name__.startswith(PACKAGES)
            if public or dunder or foreign:
                continue
            entry = table.setdefault(path, {}).setdefault(
                name, [kind(value), public_name(path, name, value, names_of), []])
            entry[2] = sorted({*entry[2], *libraries})
    return table


# modules of jax._src for other hardware, or of files that no program imports
_ELSEWHERE = ("back_compat", "mosaic", "triton", "tpu", "clusters", "cudnn", "third_party", "gpu",
              "serialization", "fuser", "pallas", "test_harnesses", "lax_reference")


def same_table(path: str, name: str, value: Any) -> str | None:
    """Return the name of the same table in the public module of the same path, or None."""
    public = path.replace("jax._src.", "jax.")
    same = any(name in names for names in PUBLIC.get(public, {}).values()) and \
        getattr(importlib.import_module(public), name, None) is value
    return f"{public}.{name}" if same and isinstance(value, PLAIN) else None


def source_names() -> dict[str, dict[str, str]]:
    """Return module of jax._src -> kind -> the names it defines, those of its primitives and
    settings, and what it has of public names, as ``name`` or ``name=public name``."""
    names_of = public_names()
    table: dict[str, dict[str, str]] = {}
    home = importlib.import_module("jax._src")
    for found in pkgutil.walk_packages(home.__path__, "jax._src."):
        if any(part in found.name for part in _ELSEWHERE):
            continue
        kinds: dict[str, list[str]] = {}
        for name, value in vars(importlib.import_module(found.name)).items():
            owner = type(value) if kind(value) == "values" and not isinstance(value, PLAIN) else \
                value
            public = public_name(found.name, name, value, names_of) or \
                same_table(found.name, name, value)
            registry = isinstance(value, dict | set) and ".interpreters." in found.name
            own = public or registry or name.endswith("_p") or (
                getattr(value, "__module__", None) == found.name
                or found.name.endswith(".test_util") and callable(value))
            state = isinstance(owner, type) and owner is not value \
                and owner.__module__ == "jax._src.config"
            if name.startswith("_") or not (own or state) or isinstance(value, ModuleType):
                continue
            kinds.setdefault(kind(value), []).append(name + (f"={public}" if public else ""))
        table[found.name] = {k: " ".join(sorted(names)) for k, names in sorted(kinds.items())}
    return table


def write(path: Path, lines: Mapping[str, str]) -> None:
    """Write module -> text as JSON, with JAX's version."""
    modules = ",\n".join(f'"{module}": {text}' for module, text in sorted(lines.items()))
    path.write_text(f'{{"version": "{jax.__version__}", "modules": {{\n{modules}\n}}}}\n')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheels", type=Path, help="a folder of wheels and sdists")
    parser.add_argument("--source", action="store_true", help="write source_names.json instead")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.source:
        write(OUT.with_name("source_names.json"),
              {path: json.dumps(kinds) for path, kinds in source_names().items()})
        return
    with tempfile.TemporaryDirectory() as fetched:
        if options.wheels is None:
            fetch(fetched)
        table = harvest(options.wheels or Path(fetched))
    write(OUT, {path: "{\n" + ",\n".join(f' "{n}": {json.dumps(e)}'
                                        for n, e in sorted(names.items())) + "}"
                for path, names in table.items()})
    print(f"{sum(map(len, table.values()))} names of {len(table)} modules in {OUT}")


if __name__ == "__main__":
    main()
