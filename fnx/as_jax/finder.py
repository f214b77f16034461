"""Import hook for ``jax``: proxy modules with the names of JAX and the values of fnx.

A proxy has exactly the names of the recorded JAX, so that ``hasattr`` answers as in JAX: the public
ones (names.json), those of its inside that libraries use (private_names.json), and those that the
modules of its inside define (source_names.json), which its tests use. A name is resolved when it is
first read: in fnx's module of that path, then in the table of internal names (internal_names.py),
then under the public name that JAX has for the same thing, then by the same name in one of JAX's
modules for libraries; else it is a placeholder (placeholders.py).
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import json
import sys
from collections.abc import Mapping, Sequence
from importlib.resources import files
from types import ModuleType
from typing import Any

from fnx.as_jax.internal_names import INTERNAL
from fnx.as_jax.placeholders import make_placeholder
from fnx.as_jax.source_helpers import SHARED
from fnx.core.support.errors import UnknownNameError
from fnx.core.support.name_hints import suggestion

_RECORDED = json.loads(files(__package__).joinpath("names.json").read_text())
# module -> name -> [kind, its public name or None, the libraries that use it]
_PRIVATE: dict[str, dict[str, tuple[str, str | None, list[str]]]] = json.loads(
    files(__package__).joinpath("private_names.json").read_text())["modules"]
# module of jax._src -> kind -> its names, each as ``name`` or ``name=public name``
_SOURCE: dict[str, dict[str, str]] = json.loads(
    files(__package__).joinpath("source_names.json").read_text())["modules"]
VERSION: str = _RECORDED["version"]
_VERSION = {"__version__": VERSION, "__version_info__": tuple(map(int, VERSION.split(".")))}
_LIB_VERSION = {"version": _VERSION["__version_info__"], "version_str": VERSION,
                "jaxlib_extension_version": 467}
_VERSION_NAMES: dict[str, dict[str, Any]] = {
    "jax": _VERSION, "jax.version": _VERSION, "jaxlib": _VERSION, "jax._src.lib": _LIB_VERSION}


_MISSING = object()


def _kinds_of_names(module: str) -> dict[str, str]:
    """Return name -> kind of the recorded names of a module."""
    private = {name: kind for name, (kind, *_) in _PRIVATE.get(module, {}).items()}
    source = {entry.partition("=")[0]: kind for kind, names in _SOURCE.get(module, {}).items()
              for entry in names.split()}
    public = {name: kind for kind, names in _RECORDED["modules"].get(module, {}).items()
              for name in names}
    return source | private | public


def _public_name(module: str, name: str) -> str | None:
    """Return the public name that JAX has for a name of its inside, or None."""
    if name in _PRIVATE.get(module, {}):
        return _PRIVATE[module][name][1]
    entries = [entry for names in _SOURCE.get(module, {}).values() for entry in names.split()]
    return next((public for entry in entries
                 if (parts := entry.partition("="))[0] == name and (public := parts[2])), None)


# Modules in which a name of JAX's inside is looked up by itself.
_FOR_LIBRARIES = ("jax.extend.core", "jax.core", "jax.interpreters.ad", "jax.interpreters.batching",
                  "jax.interpreters.partial_eval", "jax.interpreters.mlir", "jax.api_util",
                  "jax.extend.linear_util", "jax.custom_derivatives", "jax.experimental.pallas")


def _find_for_libraries(path: str, name: str) -> Any:
    """Return what one of the modules for libraries has by a name of JAX's inside."""
    for module in _FOR_LIBRARIES if path.startswith("jax._src.") else ():
        for value in (getattr(_find_fnx_module(module), name, _MISSING),
                      INTERNAL.get(module, {}).get(name, _MISSING)):
            if value is not _MISSING and not isinstance(value, ModuleType):
                return value
    return _MISSING


def _submodules() -> dict[str, list[str]]:
    """Return module -> its submodules, including the internal ones that libraries import."""
    submodules: dict[str, list[str]] = {}
    inner = (public or f"{path}.{name}" for path, names in _PRIVATE.items()
             for name, (kind, public, _) in names.items() if kind == "modules")
    for path in (*_RECORDED["modules"], *INTERNAL, *_PRIVATE, *_SOURCE, *inner):
        parts = path.split(".")
        for i in range(len(parts)):
            children = submodules.setdefault(".".join(parts[:i + 1]), [])
            if i + 1 < len(parts) and parts[i + 1] not in children:
                children.append(parts[i + 1])
    return submodules


MODULES: Mapping[str, Sequence[str]] = _submodules()


class ProxyModule(ModuleType):
    """A proxy module with a name of JAX and the values of fnx."""

    _kinds: Mapping[str, str] = {}
    _ours: ModuleType | None = None

    def __getattr__(self, name: str) -> Any:
        value = self._resolve(name)
        self.__dict__[name] = value
        return value

    def _resolve(self, name: str) -> Any:
        path = self.__name__
        if name.startswith("__"):
            raise AttributeError(f"module {path!r} has no attribute {name!r}")
        if name in MODULES[path]:
            return importlib.import_module(f"{path}.{name}")
        if name in self._kinds:
            ours = getattr(self._ours, name, _MISSING)
            if ours is not _MISSING and (self._kinds[name] == "values"
                                     or not isinstance(ours, ModuleType)):
                return ours
        inner = INTERNAL.get(path, {})
        if name in inner:
            return inner[name]
        if path.startswith("jax._src.") and name in self._kinds and name in SHARED:
            return SHARED[name]
        public = _public_name(path, name)
        if public is not None:
            home, _, short_name = public.rpartition(".")
            return importlib.import_module(public) if self._kinds[name] == "modules" else \
                getattr(importlib.import_module(home), short_name)
        shared = _find_for_libraries(path, name) if name in self._kinds else _MISSING
        if shared is not _MISSING:
            return shared
        if name in self._kinds:
            return make_placeholder(f"{path}.{name}", self._kinds[name], self._supported_names())
        raise UnknownNameError(f"module {path!r}", name, dir(self),
                               f"dir({path}) lists what it has")

    def _supported_names(self) -> list[str]:
        """Return the names of this module that fnx supports."""
        ours = dir(self._ours) if self._ours is not None else []
        return [f"{self.__name__}.{name}" for name in self._kinds if name in ours]

    def __dir__(self) -> list[str]:
        return sorted({*self._kinds, *INTERNAL.get(self.__name__, {}), *MODULES[self.__name__]})


class _Loader(importlib.abc.Loader):
    """Loader that creates and fills a proxy module."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ProxyModule:
        return ProxyModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        module_names = {"__name__", "__spec__", "__loader__", "__path__", "__package__"}
        for stale in [n for n in module.__dict__ if n not in module_names]:  # left by a reload
            del module.__dict__[stale]
        ours = _find_fnx_module(name)
        kinds = _kinds_of_names(name)
        module.__dict__.update(
            _VERSION_NAMES.get(name, {}), _kinds=kinds, _ours=ours,
            __doc__=getattr(ours, "__doc__", None), __file__=getattr(ours, "__file__", None),
            __all__=[n for n in kinds if hasattr(ours, n) or name == "jax" and n in MODULES[name]])


_HOMES = {"jax.export": "fnx.exporting.exported",  # fnx.export is a function
          "jax._src.test_util": "fnx.as_jax.testing"}


def _find_fnx_module(name: str) -> ModuleType | None:
    """Return fnx's module for a path of JAX, or None."""
    root, dot, rest = name.partition(".")
    if root != "jax":
        return None
    path = _HOMES.get(name, f"fnx{dot}{rest}")
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name is None or not path.startswith(error.name):
            raise  # one of its own imports is missing
        return None


class Finder(importlib.abc.MetaPathFinder):
    """Finder of jax, jaxlib and their modules, ahead of any installed ones."""

    def find_spec(self, fullname: str, path: Sequence[str] | None = None,
                  target: ModuleType | None = None) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] not in ("jax", "jaxlib"):
            return None
        if fullname not in MODULES:
            near = suggestion(fullname, MODULES)
            raise ModuleNotFoundError(f"No module named {fullname!r} in JAX {VERSION} as fnx "
                                      f"knows it{near and '; ' + near}", name=fullname)
        return importlib.machinery.ModuleSpec(fullname, _Loader(), is_package=True)


FINDER = Finder()


def install_finder() -> None:
    """Install the finder in front, if it is not installed yet."""
    if FINDER not in sys.meta_path:
        sys.meta_path.insert(0, FINDER)
