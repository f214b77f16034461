"""Properties of the package as a whole: import, documentation, house rules."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fnx.core.support import requirements

ROOT = Path(__file__).resolve().parent.parent
PUBLIC = ("fnx", "fnx.numpy", "fnx.lax", "fnx.nn", "fnx.random", "fnx.tree")
IMPORT_ALL = "import fnx, fnx.numpy, fnx.lax, fnx.nn, fnx.random"


def python(code: str, cwd: Path = ROOT, **environment: str) -> str:
    """Return the standard output of a fresh interpreter that runs ``code``."""
    done = subprocess.run([sys.executable, "-c", code], cwd=cwd, text=True, capture_output=True,
                          env=os.environ | environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def tracked(*suffixes: str) -> list[Path]:
    """Return files of the repository with one of the suffixes, without generated ones."""
    hidden = {".venv", ".git", "build", "dist", "__pycache__"}
    return [path for path in sorted(ROOT.rglob("*")) if path.suffix in suffixes
            and not hidden & set(path.relative_to(ROOT).parts)
            and not any(part.endswith(".egg-info") or part.startswith(".")
                        for part in path.relative_to(ROOT).parts)]


# ---- import ---------------------------------------------------------------------------------


def test_import_loads_few_modules() -> None:
    """Counted rather than timed, as machines may be busy: rarely used modules are loaded lazily,
    and hardly any of the standard library is loaded beyond NumPy's imports."""
    code = """
import sys, numpy
before = set(sys.modules)
import fnx
print(*sys.modules.keys() - before)
import fnx.numpy, fnx.lax, fnx.nn, fnx.random
print(*sys.modules.keys() - before)
"""
    first, all_public = (line.split() for line in python(code).splitlines())
    own = [name for name in first if name.startswith("fnx")]
    assert len(own) <= 89, sorted(own)
    assert {*first} - {*own} <= {"__future__", "gc", "signal", "threading", "zlib"}
    assert len([name for name in all_public if name.startswith("fnx")]) <= 120, sorted(all_public)


def test_each_public_name_is_there_before_another_is_asked_for() -> None:
    """Each in a child of a process that has only imported fnx, as a module that one name loads is
    there for all others."""
    code = """
import os, types, fnx
for name in fnx.__all__:
    child = os.fork()
    if child == 0:
        try:
            found = getattr(fnx, name)
            if type(found) is types.ModuleType:
                [getattr(found, inner) for inner in dir(found)]
            os._exit(0)
        except BaseException as error:
            print(name, error, flush=True)
            os._exit(1)
    if status := os.waitpid(child, 0)[1]:
        print(name, "ended the child with status", status, flush=True)
"""
    assert python(code) == ""


def test_import_touches_no_device() -> None:
    code = f"""
import sys, threading
{IMPORT_ALL}
print(sorted({{"llvmlite", "jax", "scipy", "sklearn", "ml_dtypes"}} & set(sys.modules)))
print(threading.active_count())
"""
    assert python(code).splitlines() == ["[]", "1"]


def test_no_compiler_is_needed(tmp_path: Path) -> None:
    """With an empty PATH and no cache, a function is compiled and returns its value."""
    code = """
import shutil, fnx, fnx.numpy as jnp
assert not any(map(shutil.which, ("cc", "gcc", "clang", "ld", "nvcc")))
print(fnx.jit(lambda x: x * 2 + 1)(jnp.arange(3.0)).tolist())
"""
    assert python(code, PATH=str(tmp_path), FNX_CACHE_DIR="") == "[1.0, 3.0, 5.0]"


def test_it_runs_from_a_zip(tmp_path: Path) -> None:
    """With an archive on ``sys.path``, sources and tables are found in it."""
    archive = tmp_path / "fnx.zip"
    with zipfile.ZipFile(archive, "w") as zipped:
        for path in (ROOT / "fnx").rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                zipped.write(path, path.relative_to(ROOT))
    code = """
import os
os.chdir("/")
import fnx, fnx.as_jax.finder, fnx.numpy as jnp
from fnx.core.support import source_digests
assert fnx.__file__.startswith(os.environ["PYTHONPATH"]), fnx.__file__
print(fnx.jit(fnx.grad(lambda x: x * x))(3.0), source_digests.package_digests()[1])
"""
    where = {"PYTHONPATH": str(archive), "FNX_CACHE_DIR": str(tmp_path / "cache")}
    assert [python(code, cwd=tmp_path, **where) for _ in range(2)] == ["6.0 False", "6.0 True"]


def test_a_source_distribution_is_the_repository(tmp_path: Path) -> None:
    copy = tmp_path / "fnx"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(
        ".*", "build", "dist", "__pycache__", "*.egg-info", "*.png"))
    name = python("from setuptools.build_meta import build_sdist\n"
                  f"print(build_sdist({str(tmp_path)!r}))", cwd=copy).splitlines()[-1]
    with tarfile.open(tmp_path / name) as archive:
        held = {member.partition("/")[2] for member in archive.getnames()}
    missing = {str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file()
               and ".egg-info" not in str(path)} - held
    assert not missing


def test_another_version_of_a_dependency_is_refused_with_the_command(tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = requirements.requirement("llvmlite", requirements.LLVMLITE)
    assert {wanted, "numpy>=2"} < set(project["dependencies"])
    (tmp_path / "llvmlite").mkdir()
    (tmp_path / "llvmlite" / "__init__.py").touch()
    (tmp_path / "llvmlite" / "_version.py").write_text("version_version = '0.44.0'\n")
    code = """
try:
    import fnx
except ImportError as error:
    print(error)
"""
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    assert python(code, PYTHONPATH=path) == f"""\
<string>:3: expected {wanted}, got 0.44.0
  Fix: pip install '{wanted}'"""


def test_a_scipy_that_is_too_old_is_named_when_it_fails(tmp_path: Path) -> None:
    (tmp_path / "scipy-1.12.0.dist-info").mkdir()
    (tmp_path / "scipy-1.12.0.dist-info" / "METADATA").write_text("Name: scipy\nVersion: 1.12.0\n")
    (tmp_path / "scipy.py").write_text("raise ImportError('numpy.core.multiarray')")
    code = """
import fnx.numpy as jnp
try:
    jnp.linalg.svd(jnp.eye(3))
except ImportError as error:
    print(error)
"""
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    assert python(code, PYTHONPATH=path, FNX_CACHE_DIR="") == """\
<string>:4: svd: expected scipy>=1.13, got 1.12.0
  Fix: pip install 'scipy>=1.13'"""


@pytest.mark.parametrize("change, expected, fix", [
    ("sys.platform = 'win32'", "expected Linux or macOS, got win32", "wsl --install"),
    ("sys.implementation.name = 'pypy'", "expected CPython, got pypy", "CPython"),
    ("sys._is_gil_enabled = lambda: False", "global lock", "set PYTHON_GIL=1"),
])
def test_a_system_that_cannot_run_fnx_is_refused_with_the_cure(change: str, expected: str, fix: str
                                                               ) -> None:
    code = f"""
import sys, numpy
{change}
try:
    import fnx
except ImportError as error:
    print(error)
"""
    message, _, cure = python(code).partition("\n  Fix: ")
    assert expected in message and fix in cure


# ---- documentation --------------------------------------------------------------------------


def public_functions() -> Iterator[tuple[str, Any]]:
    """Yield every public function and class of fnx's own under the name that users write."""
    for module_name in PUBLIC:
        module = importlib.import_module(module_name)
        for name in getattr(module, "__all__", None) or vars(module):
            value = getattr(module, name)
            if (not name.startswith("_") and callable(value) and not inspect.ismodule(value)
                    and getattr(value, "__module__", "").startswith("fnx")):
                yield f"{module_name}.{name}", value


@pytest.mark.parametrize("module_name", PUBLIC)
def test_public_modules_say_what_they_are(module_name: str) -> None:
    module = importlib.import_module(module_name)
    assert module.__doc__, f"{module_name} has no docstring"


def test_public_functions_have_a_docstring_with_an_example() -> None:
    functions = dict(public_functions())
    assert {"fnx.jit", "fnx.grad", "fnx.numpy.sum", "fnx.nn.relu"} <= set(functions)
    undocumented = [name for name, f in functions.items()
                    if ">>> " not in (inspect.getdoc(f) or "") and not is_error(f)]
    assert not undocumented


def is_error(value: Any) -> bool:
    """Error classes need one line only; the tests of errors are their examples."""
    return isinstance(value, type) and issubclass(value, Exception) and bool(value.__doc__)


def test_links_in_the_documentation_lead_somewhere() -> None:
    pages = tracked(".md")
    assert {ROOT / "README.md", ROOT / "docs" / "glossary.md"} <= set(pages)
    for page in pages:
        text = page.read_text()
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
            assert "://" in target or (page.parent / target).exists(), f"{page.name}: {target}"
        for target in re.findall(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|md|ipynb|toml))`", text):
            homes = (ROOT, ROOT / "fnx", page.parent)
            assert any((home / target).exists() for home in homes), f"{page.name}: {target}"


# ---- house rules ----------------------------------------------------------------------------


def test_files_of_the_blind_test_exist() -> None:
    rows = (ROOT / "scripts" / "blind_test.tsv").read_text().splitlines()[1:]
    files = [file for row in rows for file in row.split("\t")[1].split()]
    assert files and not [file for file in files if not (ROOT / "fnx" / file).is_file()]


def test_an_old_name_counts_where_it_has_its_old_sense(tmp_path: Path) -> None:
    code = f"""
import sys
sys.path.insert(0, "scripts")
import old_names
from pathlib import Path
old_names.ROOT = Path({str(tmp_path)!r})
for path, line, entry in old_names.occurrences(["fnx", "tests"]):
    print(path, line, entry.name)
"""
    for folder in ("fnx/numpy", "tests"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "test_twins.py").write_text(
            "def f(turned):\n    place = turned.beside(apart=1)\n    return 'dear'  # seldom\n")
    both = [(1, "twins"), (1, "turned"), (2, "apart"), (2, "beside"), (2, "turned")]
    assert python(code).splitlines() == [
        f"{path} {line} {name}" for path, names in (
            ("fnx/numpy/test_twins.py", [*both[:4], (2, "place"), both[4]]),
            ("tests/test_twins.py", both)) for line, name in names]


def test_no_line_is_over_100_columns() -> None:
    """Rows of Markdown tables cannot be wrapped, so they may be longer."""
    files = [*tracked(".py", ".md", ".toml"), ROOT / "Makefile", ROOT / ".ci" / "run"]
    assert len(files) > 30
    long = [f"{path.relative_to(ROOT)}:{i}" for path in files
            for i, line in enumerate(path.read_text().splitlines(), 1)
            if len(line) > 100 and not line.startswith("|")]
    assert not long


def test_files_stay_small_enough_to_read() -> None:
    sizes = {path: len(path.read_text().splitlines()) for path in (ROOT / "fnx").rglob("*.py")}
    assert sizes
    assert not [f"{path.relative_to(ROOT)}: {n}" for path, n in sizes.items() if n > 700]
