"""Every public name has a docstring, and its examples hold.

``--doctest-modules`` does not see functions that ``public`` wraps or that rows make. (It does see
those of fnx.transforms, which compile, so they are left to it.)
"""

from __future__ import annotations

import doctest
import inspect
from types import ModuleType
from typing import Any

import pytest

import fnx
import fnx.lax
import fnx.nn
import fnx.nn.initializers
import fnx.numpy
import fnx.numpy.linalg
import fnx.random
import fnx.tree
import fnx.tree_util

MODULES: list[ModuleType] = [
    fnx, fnx.numpy, fnx.numpy.linalg, fnx.lax, fnx.nn, fnx.nn.initializers, fnx.random, fnx.tree,
    fnx.tree_util]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
NAMES = [(m, n) for m in MODULES for n in m.__all__ if callable(getattr(m, n))]


@pytest.mark.parametrize(("module", "name"), NAMES,
                         ids=lambda x: getattr(x, "__name__", x))
def test_docstring_and_example(module: ModuleType, name: str) -> None:
    thing: Any = getattr(module, name)
    assert thing.__doc__, f"{module.__name__}.{name} has no docstring"
    if thing.__module__.startswith(("numpy", "fnx.transforms")):
        return
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    out: list[str] = []
    scope = dict(vars(inspect.getmodule(inspect.unwrap(thing)) or module))
    for test in doctest.DocTestFinder(recurse=False).find(thing, name, module, globs=scope):
        runner.run(test, out=out.append)
    assert not runner.failures, "".join(out)


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__)
def test_all_lists_what_there_is(module: ModuleType) -> None:
    assert module.__doc__
    assert [n for n in module.__all__ if not hasattr(module, n)] == []
    assert len(set(module.__all__)) == len(module.__all__)
