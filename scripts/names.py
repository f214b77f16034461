"""Report which names of JAX fnx has: the share of each public module, and what libraries miss.

    python scripts/names.py            the shares, and the missing names with their reasons
    python scripts/names.py --record   write scripts/jax_names.json again, from the installed JAX

``scripts/names.tsv`` ranks the names that libraries written for JAX use, ``jax_names.json`` has the
public names of JAX's modules, and ``names_out.toml`` has the names that are excluded on purpose,
with reasons; names that will be added later are in ``fnx/core/support/unimplemented.py``.
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib
import json
import sys
import tomllib
import types
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from fnx.core.support.unimplemented import UNIMPLEMENTED  # noqa: E402

COUNTED = ("numpy", "lax", "nn", "random", "scipy.special", "tree_util")
MODULES = (*COUNTED, "", "nn.initializers", "tree", "dtypes", "errors", "typing", "flatten_util",
           "sharding", "ops", "image", "core", "profiler", "experimental")
ASKED = 0.97


def record() -> None:
    """Return the public names of the installed JAX that are not modules and begin with a letter."""
    found = {}
    for name in MODULES:
        module = importlib.import_module(f"jax.{name}".rstrip("."))
        found[name] = [n for n in dir(module) if not n.startswith("_")
                       and not isinstance(getattr(module, n), types.ModuleType)]
    text = json.dumps(found, indent=0)
    (HERE / "jax_names.json").write_text(text + "\n")


def there(path: str) -> bool:
    """Whether ``fnx.<path>`` exists.

    >>> there("numpy.sum"), there("numpy.no_such_name")
    (True, False)
    """
    parts = path.split(".")
    value: Any = importlib.import_module("fnx")
    for i, part in enumerate(parts):
        try:
            value = getattr(value, part)
        except AttributeError:
            try:
                value = importlib.import_module(".".join(["fnx", *parts[:i + 1]]))
            except ImportError:
                return False
    return True


def reasons() -> dict[str, str]:
    """Return pattern of names -> why they are excluded."""
    table = tomllib.loads((HERE / "names_out.toml").read_text())
    table |= {f"{part} come later": names for part, (names, _) in UNIMPLEMENTED.items()}
    return {pattern: reason for reason, patterns in table.items() for pattern in patterns}


def reason(path: str, out: dict[str, str]) -> str:
    """Return why a name is excluded; empty if it is not."""
    return next((why for pattern, why in out.items() if fnmatch.fnmatchcase(path, pattern)), "")


def shares() -> dict[str, tuple[int, int, list[str]]]:
    """Return module -> (number of its names in fnx, number of its names, the missing ones)."""
    out, found = reasons(), {}
    for module, names in json.loads((HERE / "jax_names.json").read_text()).items():
        paths = [f"{module}.{name}".lstrip(".") for name in names]
        missing = [p for p in paths if not there(p)]
        asked = [p for p in missing if not reason(p, out)]
        found[module] = (len(paths) - len(missing), len(paths) - len(missing) + len(asked), asked)
    return found


def share(found: dict[str, tuple[int, int, list[str]]]) -> float:
    """Return the share over all counted modules."""
    rows = [found[m] for m in COUNTED]
    return sum(r[0] for r in rows) / sum(r[1] for r in rows)


def used() -> list[tuple[str, str, str]]:
    """Return (name, uses, packages) of the missing names that libraries use, the most used
    first."""
    rows = [line.split("\t") for line in (HERE / "names.tsv").read_text().splitlines()[1:]]
    return [(r[1], r[4], r[6]) for r in rows if not there(r[1].removeprefix("jax."))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true", help="renew jax_names.json")
    if parser.parse_args().record:
        record()
        return
    out, found = reasons(), shares()
    print(f"{'module':16} there  asked  share")
    for module, (have, asked, _) in found.items():
        counted = "" if module in COUNTED else "  (not counted)"
        print(f"{module or 'jax':16} {have:5} {asked:6}  {have / max(asked, 1):6.1%}{counted}")
    print(f"{'counted':16} {'':12} {share(found):6.1%}  (asked: {ASKED:.0%})\n")
    for module, (_, _, missing) in found.items():
        if missing:
            print(f"{module or 'jax'} lacks: {' '.join(p.rpartition('.')[2] for p in missing)}\n")
    print("Names that libraries use and that are missing:")
    for name, uses, packages in used():
        why = reason(name.removeprefix("jax."), out) or "not there yet"
        print(f"  {name:50} {uses:>5} uses ({packages}): {why}")


if __name__ == "__main__":
    main()
