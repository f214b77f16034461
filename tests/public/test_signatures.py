"""The signatures that type checkers see for Array's methods are the actual ones.

The methods come from functions of fnx.numpy, which core cannot import, so the class declares them.
"""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import fnx
from fnx.core.array import array, array_base, device_mixin
from fnx.core.array.updates import At
from tests.public.test_names import ROOT, load

NOT_COUNTED = ("", "core", "dtypes", "errors", "image", "profiler", "sharding")

CLASSES = {n.name: n for module in (array, array_base, device_mixin)
           for n in ast.parse(Path(str(module.__file__)).read_text()).body
           if isinstance(n, ast.ClassDef)}


def declared() -> dict[str, ast.FunctionDef]:
    """Return the methods under ``if TYPE_CHECKING:`` in class Array."""
    block = next(n for n in CLASSES["Array"].body if isinstance(n, ast.If))
    return {n.name: n for n in block.body if isinstance(n, ast.FunctionDef)}


def spelled(f: ast.FunctionDef) -> list[tuple[str, str]]:
    """Return (name, default) of each parameter but the first."""
    a = f.args
    plain = [*a.posonlyargs, *a.args]
    defaults = [""] * (len(plain) - len(a.defaults)) + [ast.unparse(d) for d in a.defaults]
    found = [*zip([p.arg for p in plain], defaults)][1:]
    found += [(a.vararg.arg, "")] if a.vararg else []
    return found + [(p.arg, ast.unparse(d) if d else "")
                    for p, d in zip(a.kwonlyargs, a.kw_defaults)]


@pytest.mark.parametrize("name", declared())
def test_declared_methods_are_the_functions(name: str) -> None:
    real = list(inspect.signature(getattr(fnx.Array, name)).parameters.values())[1:]
    assert spelled(declared()[name]) == [
        (p.name, "" if p.default is p.empty else repr(p.default)) for p in real]


def test_functions_take_the_calls_that_jax_takes() -> None:
    found = {name for name in load(ROOT / "scripts" / "names.py").differences()
             if name.rpartition(".")[0] not in NOT_COUNTED}
    assert found <= {
        "numpy.clip",                         # an array that nothing gives
        "numpy.ufunc",                        # functions that take the place of its methods
        "lax.all_gather",                     # several devices
        "experimental.sparse.random_bcoo"}    # float, which is float64 in JAX's text


def test_every_method_is_declared() -> None:
    own = {n.name for c in ("Array", "ArrayBase", "ArrayDeviceMixin") for n in CLASSES[c].body
           if isinstance(n, ast.FunctionDef)}
    public = {n for n in dir(fnx.Array) if not n.startswith("_")
              and callable(getattr(fnx.Array, n))}
    assert public <= own | set(declared())


def test_at_is_declared() -> None:
    names = {n.target.id for n in CLASSES["AtLike"].body if isinstance(n, ast.AnnAssign)
             and isinstance(n.target, ast.Name)} | {"get", "apply"}
    assert names == {n for n in dir(At) if not n.startswith("_")}
    call = next(n for n in CLASSES["AtWrite"].body if isinstance(n, ast.FunctionDef))
    for name in names - {"get", "apply"}:
        real = list(inspect.signature(getattr(At, name)).parameters)[1:]
        assert [n for n, _ in spelled(call)] == real
