"""Report which names of JAX fnx has: the share of each public module, and what libraries miss.

    python scripts/names.py              the shares, and the missing names with their reasons
    python scripts/names.py --signatures the functions whose parameters differ from JAX's: names,
                                         kinds, defaults
    python scripts/names.py --record     write scripts/jax_names.json again, from the installed JAX

``scripts/names.tsv`` ranks the names that libraries written for JAX use, ``jax_names.json`` has the
public names of JAX's modules with their signatures (parameters, kinds, defaults), and
``names_out.toml`` has the names that are excluded on purpose, with reasons.
"""

from __future__ import annotations

import argparse
import ast
import fnmatch
import importlib
import inspect
import json
import sys
import tomllib
import types
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from fnx.core.array.call_validation import NONE_KWARGS, PLACEMENT_KWARGS  # noqa: E402

DISTRIBUTIONS = ("bernoulli", "beta", "betabinom", "binom", "cauchy", "chi2", "dirichlet", "expon",
                 "gamma", "gennorm", "geom", "gumbel_l", "gumbel_r", "laplace", "logistic",
                 "multinomial", "multivariate_normal", "nbinom", "norm", "pareto", "poisson", "t",
                 "truncnorm", "uniform", "vonmises", "wrapcauchy")
COUNTED = ("numpy", "numpy.fft", "numpy.linalg", "lax", "lax.linalg", "nn", "nn.initializers",
           "random", "tree_util", "scipy.cluster.vq", "scipy.fft", "scipy.integrate",
           "scipy.interpolate", "scipy.linalg", "scipy.ndimage", "scipy.optimize", "scipy.signal",
           "scipy.sparse.linalg", "scipy.spatial.transform", "scipy.special", "scipy.stats",
           *(f"scipy.stats.{name}" for name in DISTRIBUTIONS), "experimental.ode",
           "experimental.sparse", "experimental.sparse.linalg")
MODULES = (*COUNTED, "", "tree", "dtypes", "errors", "typing", "flatten_util", "sharding", "ops",
           "image", "core", "profiler", "experimental")
ASKED = 1.0
OWN = {"experimental.ode": ("odeint",),
       "experimental.sparse.linalg": ("lobpcg_standard", "spsolve")}


def record() -> None:
    """Write the public names of the installed JAX that are not modules and begin with a letter."""
    found = {}
    for name in MODULES:
        module = importlib.import_module(f"jax.{name}".rstrip("."))
        public = [n for n in dir(module) if not n.startswith("_")
                  and not isinstance(getattr(module, n), types.ModuleType)
                  and is_own(getattr(module, n), name)]
        found[name] = {n: signature(getattr(module, n)) for n in public}
    text = json.dumps(found, indent=0)
    (HERE / "jax_names.json").write_text(text + "\n")


def is_own(value: Any, module: str) -> bool:
    """Whether a name belongs to a module: the modules of ``jax.experimental`` show their imports
    and inner functions."""
    if module in OWN:
        return getattr(value, "__name__", "") in OWN[module]
    return True


def signature(value: Any) -> str:
    """Return the parameters of a function with their kinds and defaults, or "".

    >>> signature(lambda x, /, *, axis=None: x)
    '(x, /, *, axis=None)'
    """
    if not callable(value) or isinstance(value, type) and not inspect.isclass(value):
        return ""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    if isinstance(value, type) and any(p.kind is p.VAR_POSITIONAL
                                       for p in found.parameters.values()):
        return ""
    parameters = [p.replace(annotation=p.empty, default=_Text(p.default)
                            if p.default is not p.empty else p.empty)
                  for p in found.parameters.values()]
    return str(found.replace(parameters=parameters, return_annotation=found.empty))


class _Text:
    """A default, written alike for JAX and fnx."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        value = getattr(self.value, "value", self.value)
        if value is None or isinstance(value, (bool, int, float, str)):
            return repr(value)
        if isinstance(value, (tuple, list, dict)) and not value:
            return repr(value)
        return getattr(value, "__name__", "...")


def there(path: str) -> bool:
    """Whether ``fnx.<path>`` exists.

    >>> there("numpy.sum"), there("numpy.no_such_name")
    (True, False)
    """
    try:
        find(path)
    except ImportError:
        return False
    return True


def find(path: str) -> Any:
    """Return ``fnx.<path>``, or raise an ImportError."""
    parts = path.split(".")
    value: Any = importlib.import_module("fnx")
    for i, part in enumerate(parts):
        try:
            value = getattr(value, part)
        except AttributeError:
            value = importlib.import_module(".".join(["fnx", *parts[:i + 1]]))
    return value


def excluded() -> dict[str, str]:
    """Return pattern of names -> why they are excluded on purpose."""
    table = tomllib.loads((HERE / "names_out.toml").read_text())
    return {pattern: reason for reason, patterns in table.items() for pattern in patterns}


def reason(path: str, out: dict[str, str]) -> str:
    """Return why a name is excluded; empty if it is not."""
    return next((why for pattern, why in out.items() if fnmatch.fnmatchcase(path, pattern)), "")


def shares() -> dict[str, tuple[int, int, list[str]]]:
    """Return module -> (number of its names in fnx, number of its names, the missing ones)."""
    out, found = excluded(), {}
    for module, names in json.loads((HERE / "jax_names.json").read_text()).items():
        paths = [f"{module}.{name}".lstrip(".") for name in names]
        missing = [p for p in paths if not there(p)]
        asked = [p for p in missing if not reason(p, out)]
        found[module] = (len(paths) - len(missing), len(paths) - len(missing) + len(asked), asked)
    return found


def differences() -> dict[str, tuple[str, str]]:
    """Return name -> (its signature in fnx, its signature in JAX), where they differ."""
    found = {}
    for module, names in json.loads((HERE / "jax_names.json").read_text()).items():
        for name, theirs in names.items():
            path = f"{module}.{name}".lstrip(".")
            if theirs and there(path):
                ours = signature(find(path))
                if ours != theirs and not same_calls(ours, theirs):
                    found[path] = (ours, theirs)
    return found


def same_calls(ours: str, theirs: str) -> bool:
    """Whether fnx takes the calls that the signature in JAX describes, and gives them the same
    meaning. All public functions of fnx take the keywords of ``call_validation``, and parameters
    that are positional only by their names. JAX's private parameters and types are not compared.

    >>> same_calls("(a, b, /)", "(a, b)"), same_calls("(x, y, /)", "(x1, x2, /)")
    (True, True)
    >>> same_calls("(a, axis=0)", "(a, axis=None)"), same_calls("(a, b)", "(b, a)")
    (False, False)
    """
    if theirs == "(*args, **kwargs)":
        return True
    here, there = _parameters(ours), _parameters(theirs)
    by_name = {p[0]: p for p in here}
    everywhere = PLACEMENT_KWARGS | NONE_KWARGS
    there = [p for p in there if p[0][0] != "_" and (p[0] in by_name or p[0] not in everywhere)]
    named = [p for p in there if p[1] == "keyword"]
    ahead = [p for p in there if p[1] in ("position", "either")]
    positions = [p for p in here if p[1] in ("position", "either")]
    return all(p[0] in by_name and _same(by_name[p[0]][2], p[2]) for p in named) and \
        ("*" in [p[1] for p in there] or len(ahead) <= len(positions)) and \
        all(_same(x[2], y[2]) and (y[1] == "position" or x[0] == y[0])
            for x, y in zip(positions, ahead))


def _same(ours: str, theirs: str) -> bool:
    return ours in (theirs, repr(theirs)) or theirs == "..."  # dtypes are names or text


def _parameters(text: str) -> list[tuple[str, str, str]]:
    """Return (name, kind, default) of each parameter of a signature as text."""
    function, = ast.parse(f"def f{text}: ...").body
    assert isinstance(function, ast.FunctionDef)
    given = function.args
    ahead = [*given.posonlyargs, *given.args]
    defaults = [*[""] * (len(ahead) - len(given.defaults)), *map(ast.unparse, given.defaults)]
    found = [(a.arg, "position" if a in given.posonlyargs else "either", default)
             for a, default in zip(ahead, defaults)]
    found += [(a.arg, "keyword", "" if d is None else ast.unparse(d))
              for a, d in zip(given.kwonlyargs, given.kw_defaults)]
    return found + [(a.arg, "*", "") for a in (given.vararg, given.kwarg) if a is not None]


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
    parser.add_argument("--signatures", action="store_true",
                        help="show the functions whose parameters differ")
    given = parser.parse_args()
    if given.record:
        record()
        return
    if given.signatures:
        for path, (ours, theirs) in differences().items():
            print(f"{path}\n    fnx {ours}\n    JAX {theirs}")
        return
    out, found = excluded(), shares()
    print(f"{'module':28} there  asked  share")
    for module, (have, asked, _) in found.items():
        counted = "" if module in COUNTED else "  (not counted)"
        print(f"{module or 'jax':28} {have:5} {asked:6}  {have / max(asked, 1):6.1%}{counted}")
    print(f"{'counted':28} {'':12} {share(found):6.1%}  (asked: {ASKED:.0%})\n")
    for module, (_, _, missing) in found.items():
        if missing:
            print(f"{module or 'jax'} lacks: {' '.join(p.rpartition('.')[2] for p in missing)}\n")
    print("Names that libraries use and that are missing:")
    for name, uses, packages in used():
        why = reason(name.removeprefix("jax."), out) or "not there yet"
        print(f"  {name:50} {uses:>5} uses ({packages}): {why}")


if __name__ == "__main__":
    main()
