"""Every public callable documents its arguments, results and errors, and has an example that runs.

A docstring has a summary, ``Args:`` with each parameter, ``Returns:``, ``Raises:`` if the function
raises on purpose, and an example; if the method is from the literature, ``Source:``.
"""

from __future__ import annotations

import ast
import doctest
import enum
import inspect
import re
import textwrap
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from tests.public import surface

COMPILED = True  # some of the examples are kernels


CALLABLES: dict[str, Callable[..., Any]] = surface.callables()
SELF = ("self", "cls")
# Classes whose objects are returned by functions; users do not call them. (And Array has an alias.)
MADE_BY_OTHERS = ("Array", "ndarray", "PyTreeDef", "Value", "Reference", "Partial",
                  "Key", "KeyEntry", "Registry",
                  "Sharding", "extended", "prng_key")


def sections(doc: str) -> dict[str, str]:
    """Return the text under each heading; the text before the first one is the summary."""
    found = re.split(r"^(Args|Returns|Raises|Source):", doc, flags=re.M)
    return {"summary": found[0], **dict(zip(found[1::2], found[2::2]))}


def described(text: str) -> set[str]:
    """Return the parameters that ``Args:`` names; several may precede one colon."""
    heads = re.findall(r"^ {4}(\*{0,2}\w+(?:, \*{0,2}\w+)*):", text, flags=re.M)
    return {name.strip(" *") for head in heads for name in head.split(",")}


def parameters(name: str, f: Callable[..., Any]) -> set[str]:
    found = list(inspect.signature(f).parameters)
    return set(found[1:] if name.startswith(("Array.", "At.")) else found) - set(SELF)


def raises_itself(f: Callable[..., Any]) -> bool:
    source = inspect.unwrap(f)
    if not inspect.isfunction(source):
        return False
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(source)))
    except (OSError, SyntaxError):
        return False
    body = tree.body[0]
    return any(isinstance(n, ast.Raise) and n.exc is not None for n in ast.walk(body))


def test_there_is_a_public_surface() -> None:
    assert len(CALLABLES) > 380
    assert {"fnx.jit", "fnx.numpy.sum", "fnx.lax.neg", "Array.sum", "At.set"} <= set(CALLABLES)


ROOMS = sorted({name.rpartition(".")[0] for name in CALLABLES})


@pytest.mark.parametrize("room", ROOMS)
def test_docstrings(room: str) -> None:
    for name, f in CALLABLES.items():
        if name.rpartition(".")[0] == room:
            try:
                check(name, f)
            except AssertionError as wrong:
                wrong.add_note(f"in the docstring of {name}")
                raise


def check(name: str, f: Callable[..., Any]) -> None:
    doc = inspect.getdoc(f) or ""
    parts = sections(doc)
    first = parts["summary"].strip().splitlines()
    assert first and first[0].endswith((".", ":")), f"no summary: {doc[:80]!r}"
    if issubclass_of_exception(f):
        return
    made = name.rpartition(".")[2] in MADE_BY_OTHERS or \
        isinstance(f, type) and issubclass(f, enum.Enum)
    wanted = set() if made else parameters(name, f)
    missing = wanted - described(parts.get("Args", ""))
    assert not missing, f"Args: lacks {sorted(missing)}"
    assert isinstance(f, type) or "Returns" in parts or returns_nothing(f), "no Returns:"
    assert "Raises" in parts or not raises_itself(f), "no Raises:"
    assert ">>> " in doc, "no example"


def issubclass_of_exception(f: Any) -> bool:
    return isinstance(f, type) and issubclass(f, Exception)


def returns_nothing(f: Callable[..., Any]) -> bool:
    return inspect.signature(f).return_annotation in ("None", None)


def examples() -> dict[str, Callable[..., Any]]:
    """Return one callable for each text whose example pytest does not run with its module."""
    modules = {inspect.getmodule(inspect.unwrap(f)) for f in CALLABLES.values()}
    finder = doctest.DocTestFinder(exclude_empty=True)
    seen = {inspect.cleandoc(test.docstring or "") for module in modules
            for test in finder.find(module, module.__name__)}
    found = {}
    for name, f in CALLABLES.items():
        text = inspect.getdoc(f) or ""
        if ">>> " in text and text not in seen:
            seen.add(text)
            found[name] = f
    return found


EXAMPLES = examples()


def test_few_examples_are_not_in_their_module() -> None:
    assert "fnx.lax.neg" in EXAMPLES and len(EXAMPLES) < 100


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name: str) -> None:
    f = CALLABLES[name]
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    runner = doctest.DocTestRunner(optionflags=flags)
    out: list[str] = []
    home = inspect.getmodule(inspect.unwrap(f))
    text = inspect.getdoc(f) or ""
    test = doctest.DocTestParser().get_doctest(text, dict(vars(home)), name, None, 0)
    runner.run(test, out=out.append)
    assert not runner.failures, "".join(out)


@pytest.mark.parametrize("name", dict(surface.properties()))
def test_properties_say_what_they_are(name: str) -> None:
    text = inspect.getdoc(dict(surface.properties())[name]) or ""
    assert text.splitlines()[0].endswith(".")


@pytest.mark.parametrize("module", surface.MODULES, ids=lambda m: m.__name__)
def test_dir_and_all_are_what_is_public(module: ModuleType) -> None:
    assert module.__doc__
    assert dir(module) == sorted(set(module.__all__))
    assert len(set(module.__all__)) == len(module.__all__)
    assert [n for n in module.__all__ if not hasattr(module, n)] == []


def test_help_shows_the_full_text() -> None:
    import fnx.numpy as jnp
    assert str(inspect.signature(jnp.sin)) == "(x: 'ArrayLike', /) -> 'Array'"
    text = jnp.sin.__doc__ or ""
    assert all(part in text for part in ("Args:", "Returns:", "Raises:", "jnp.sin(0.0)"))
