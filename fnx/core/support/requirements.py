"""What fnx needs: a system, an interpreter, versions of packages; checked when fnx is imported.

pyproject.toml declares the same bounds, but another package that is installed later may replace
what it asks for. The version of llvmlite is read from its files, as its Python side is never
imported.

>>> in_range("0.47.1", LLVMLITE), in_range("0.44.0", LLVMLITE), in_range("0.51.0rc1", LLVMLITE)
(True, False, False)
"""

from __future__ import annotations

import os
import re
import sys

import numpy as np

from fnx.core.support.errors import RequirementError
from fnx.core.support.process import load

LLVMLITE = ((0, 45), (0, 51))  # LLVM 20 to 22: from the first version, below the second
NUMPY = ((2, 0), None)
SCIPY = ((1, 13), None)

Bounds = tuple[tuple[int, int], tuple[int, int] | None]
_BOUNDS: dict[str, Bounds] = {"llvmlite": LLVMLITE, "numpy": NUMPY, "scipy": SCIPY}
SYSTEMS = ("linux", "darwin")


def check_requirements() -> None:
    """Raise an error that names the cure, if fnx can't run here.

    Raises:
        RequirementError: the system is neither Linux nor macOS, the interpreter is not CPython or
            runs without its global lock, NumPy or llvmlite is too old or too new.
    """
    if sys.platform not in SYSTEMS:
        raise RequirementError(f"expected Linux or macOS, got {sys.platform}",
                               hint="on Windows, install Linux by `wsl --install`, and fnx in it")
    if sys.implementation.name != "cpython":
        raise RequirementError(f"expected CPython, got {sys.implementation.name}",
                               hint="install fnx in an environment of CPython, 3.11 or later")
    if not getattr(sys, "_is_gil_enabled", lambda: True)():  # new in Python 3.13
        raise RequirementError(
            "expected an interpreter with its global lock (GIL), which fnx's caches and native "
            "calls rely on; this one runs without", hint="set PYTHON_GIL=1, or start python -X "
            "gil=1")
    _check("numpy", np.__version__, NUMPY)
    _check("llvmlite", llvmlite_version(), LLVMLITE)


def _check(package: str, version: str, bounds: Bounds) -> None:
    if version and not in_range(version, bounds):
        raise RequirementError(f"expected {requirement(package, bounds)}, got {version}",
                               hint=f"pip install '{requirement(package, bounds)}'")


def check_installed(package: str) -> None:
    """Raise an error if a package that can't be imported has a version that fnx can't use."""
    metadata = load("importlib.metadata")  # takes 10 ms, only to report an error
    if package in _BOUNDS:
        _check(package, metadata.version(package), _BOUNDS[package])


def missing(package: str) -> RequirementError:
    """Return the error for a package that is not installed.

    >>> print(missing("scipy").hint)
    pip install 'scipy>=1.13'
    """
    wanted = requirement(package, _BOUNDS[package]) if package in _BOUNDS else package
    return RequirementError(f"expected the package {package}, which is not installed",
                            hint=f"pip install '{wanted}'")


def requirement(package: str, bounds: Bounds) -> str:
    """Return the requirement in pip's notation.

    >>> requirement("llvmlite", LLVMLITE)
    'llvmlite>=0.45,<0.51'
    """
    low, high = (bound and ".".join(map(str, bound)) for bound in bounds)
    return f"{package}>={low},<{high}" if high else f"{package}>={low}"


def in_range(version: str, bounds: Bounds) -> bool:
    """Return whether a version is in these bounds, by its first two numbers."""
    major, minor = re.findall(r"\d+", f"{version}.0")[:2]
    low, high = bounds
    return low <= (int(major), int(minor)) and (high is None or (int(major), int(minor)) < high)


def llvmlite_folder() -> str:
    """Return the folder of llvmlite, which is found without importing it, or "" without one."""
    specs = (finder.find_spec("llvmlite", None) for finder in sys.meta_path)
    spec = next((s for s in specs if s is not None), None)
    return os.path.dirname(spec.origin) if spec is not None and spec.origin is not None else ""


def llvmlite_version() -> str:
    """Return the version that the files of llvmlite name; "" if there is none to read."""
    folder = llvmlite_folder()
    if not folder:
        return ""
    try:
        with open(os.path.join(folder, "_version.py"), encoding="utf-8") as f:
            match = re.search(r"version['\"]?\s*[=:]\s*['\"](\d[\w.+]*)['\"]", f.read())
    except OSError:
        return ""
    return match.group(1) if match else ""
