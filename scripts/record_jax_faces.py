"""Write fnx/as_jax/names.json: the public names of the installed JAX, by module and kind.

    python scripts/record_jax_faces.py

``fnx.as_jax`` gives its modules these names, so that a library that checks for a name gets the same
answer as from JAX. The kind says what stands in for a name that fnx lacks: a type, an error, a
function, a value.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

OUT = Path(__file__).resolve().parent.parent / "fnx" / "as_jax" / "names.json"
HARDWARE = (  # JAX's compiler and hardware that fnx has no modules for
    "jax.collect_profile", "jax.tools", "jax.experimental.colocated_python",
    "jax.experimental.jax2tf", "jax.experimental.mosaic", "jax.experimental.pallas",
    "jax.experimental.roofline", "jax.experimental.source_mapper",
    "jax.extend.mlir", "jax.extend.pallas",
    "jax.experimental.array_serialization.pytree_serialization",
)


def modules(name: str) -> Iterator[str]:
    """Return a module and its submodules, by name."""
    yield name
    for found in pkgutil.iter_modules(getattr(importlib.import_module(name), "__path__", [])):
        inner = f"{name}.{found.name}"
        if not found.name.startswith("_") and not inner.startswith(HARDWARE):
            yield from modules(inner)


def kind(value: Any) -> str:
    if inspect.isclass(value):
        return "errors" if issubclass(value, BaseException) else "types"
    return "functions" if callable(value) else "values"


def names(module: str) -> dict[str, list[str]]:
    """Return kind -> the names that a module itself defines."""
    found: dict[str, list[str]] = {}
    home = importlib.import_module(module)
    listed = getattr(home, "__all__", ())
    for name in dir(home):
        value = getattr(home, name)
        if name.startswith("_") or isinstance(value, types.ModuleType):
            continue
        if name not in listed and not _own(name, value):
            continue
        found.setdefault(kind(value), []).append(name)
    return found


def _own(name: str, value: Any) -> bool:
    """Whether the module defines a value, and does not merely import it, such as ``Any``."""
    home = getattr(value, "__module__", None)
    return not isinstance(home, str) or home.startswith(("jax", "numpy", "ml_dtypes")) \
        or getattr(sys.modules.get(home), name, None) is not value


def main() -> None:
    warnings.simplefilter("ignore")
    table = {module: names(module) for module in modules("jax")}
    lines = ",\n".join(f'"{m}": {json.dumps(found)}' for m, found in sorted(table.items()))
    OUT.write_text(f'{{"version": "{jax.__version__}", "modules": {{\n{lines}\n}}}}\n')
    print(f"{sum(len(n) for found in table.values() for n in found.values())} names of "
          f"{len(table)} modules in {OUT}")


if __name__ == "__main__":
    main()
