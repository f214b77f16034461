"""Docstring templates: functions that share parameters share the text about them.

A template maps each parameter to its text. The docstring in the source then has only a summary
and an example; ``help`` shows Args, Returns and Raises as for other functions:

>>> windows = DocTemplate(M="how many points.", returns="An Array of M floats.")
>>> @windows()
... def flat(M: int) -> list[float]:
...     "All ones: "
...     return [1.0] * M
>>> print(*[line.strip() for line in flat.__doc__.splitlines()][:4])
All ones: Args: M: how many points.  Returns:

Functions that differ in one value are a family: one definition, and a line for each of them.

>>> @windows.family()
... def constant(value: float, M: int) -> list[float]:
...     return [value] * M
>>> halves = constant(0.5, "halves", "All halves.", "halves(2)", "[0.5, 0.5]")
>>> halves(2), inspect.signature(halves)
([0.5, 0.5], <Signature (M: 'int') -> 'list[float]'>)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from fnx.core.array.api_boundary import public_api

P = ParamSpec("P")
R = TypeVar("R")
V = TypeVar("V")

_COMMON_TEXTS = {
    "out": "None.",
    "out_sharding": "accepted as JAX's: there is one device.",
    "keepdims": "the axes that go stay with length 1.",
    "dtype": "of the result; by default as JAX has it.",
    "precision": "as for ``matmul``; all names mean full precision.",
    "preferred_element_type": "the dtype of the sums and of the result.",
}


class DocTemplate:
    """Decorator factory for public functions with common parameters.

    Args:
        returns, raises: sections of the docstring; ``raises`` has one text per error.
        imports: the import of the examples.
        wrap: the decorator of public functions.
        texts: parameter -> its description.
    """

    def __init__(self, *, returns: str, raises: Sequence[str] = (),
                 imports: str = "fnx.numpy as jnp", wrap: Callable[[Any], Any] = public_api,
                 **texts: str) -> None:
        self._returns, self._raises, self._imports, self._wrap = returns, raises, imports, wrap
        self._texts = {**_COMMON_TEXTS, **texts}

    def replace(self, *, returns: str = "", **texts: str) -> DocTemplate:
        """Return a template with other texts for some parameters."""
        return DocTemplate(returns=returns or self._returns, raises=self._raises,
                           imports=self._imports, wrap=self._wrap, **{**self._texts, **texts})

    def __call__(self, returns: str = "", raises: Sequence[str] | None = None, **overrides: str
                 ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Decorate a public function and complete its docstring; arguments override the template.
        """
        def decorate(f: Callable[P, R]) -> Callable[P, R]:
            code = f.__code__
            count = code.co_argcount + code.co_kwonlyargcount
            flags = bool(code.co_flags & inspect.CO_VARARGS) + \
                bool(code.co_flags & inspect.CO_VARKEYWORDS)
            names = code.co_varnames[:count + flags]
            f.__doc__ = self.docstring(f.__doc__ or "", names, returns, raises, **overrides)
            wrapped: Callable[P, R] = self._wrap(f)
            return wrapped
        return decorate

    def family(self, returns: str = "", raises: Sequence[str] | None = None, **overrides: str
               ) -> Callable[[Callable[Concatenate[V, P], R]],
                             Callable[[V, str, str, str, str], Callable[P, R]]]:
        """Decorate the definition of public functions that differ in one value, its first argument.

        Each of them has a line: the value, its name, summary, example and what the example prints.
        """
        return family(lambda text, names, _: self.docstring(text, names, returns, raises,
                                                            **overrides), self._wrap)

    def docstring(self, text: str, names: Sequence[str], returns: str = "",
                  raises: Sequence[str] | None = None, **overrides: str) -> str:
        """Complete a docstring: sections for the parameters ``names``, before its example."""
        texts = {**self._texts, **overrides}
        errors = self._raises if raises is None else raises
        lines = ["Args:", *[f"    {n}: {_indent(texts[n])}" for n in names], "", "Returns:",
                 f"    {_indent(returns or self._returns)}", ""]
        if errors:
            lines += ["Raises:", *[f"    {_indent(e)}" for e in errors], ""]
        text, prompt, example = text.partition(">>> ")
        lines += [f">>> import {self._imports}", prompt]
        return text + "\n    ".join(lines) + example


def family(document: Callable[[str, Sequence[str], V], str],
           wrap: Callable[[Callable[P, R]], Callable[P, R]]
           ) -> Callable[[Callable[Concatenate[V, P], R]],
                         Callable[[V, str, str, str, str], Callable[P, R]]]:
    """Decorate the definition of public functions that differ in one value, its first argument.

    Args:
        document: completes the docstring of one, given its text, parameters and value.
        wrap: the decorator of public functions.
    """
    def decorate(f: Callable[Concatenate[V, P], R]
                 ) -> Callable[[V, str, str, str, str], Callable[P, R]]:
        names = [*inspect.signature(f).parameters][1:]

        def make(value: V, name: str, summary: str, example: str, answer: str) -> Callable[P, R]:
            member = bind_first(f, value, name)
            text = f"{summary}\n\n    >>> {example}\n    {answer}\n    "
            member.__doc__ = document(text, names, value)
            return wrap(member)
        return make
    return decorate


def bind_first(f: Callable[Concatenate[V, P], R], value: V, name: str) -> Callable[P, R]:
    """Return a function ``name`` that calls f with a first argument, and has its other ones."""
    def member(*args: P.args, **kwargs: P.kwargs) -> R:
        return f(value, *args, **kwargs)

    signature = inspect.signature(f)
    first, *others = signature.parameters.values()
    member.__name__ = member.__qualname__ = name
    member.__module__ = f.__module__
    member.__annotations__ = {n: a for n, a in f.__annotations__.items() if n != first.name}
    vars(member)["__signature__"] = signature.replace(parameters=others)
    return member


def _indent(text: str) -> str:
    return text.replace("\n", "\n            ")
