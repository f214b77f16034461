"""What all transformed functions share: how they call, what they say of themselves, pickling.

>>> class Doubled(Transformed):
...     kind = "double"
...     def apply(self, args, kwargs):
...         return 2 * self._f(*args, **kwargs)
>>> def f(x, y): return x + y
>>> g = Doubled(f)
>>> g, g.__name__, g(1, y=2)
(<double of f>, 'double(f)', 6)
>>> import inspect
>>> print(inspect.signature(g))
(x, y)
"""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable
from types import MethodType
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Generic, ParamSpec, TypeVar, overload

from fnx.core.array.public import public
from fnx.core.array.trace import name_of
from fnx.core.errors import ArgumentError, FnxError
from fnx.core.tracebacks import shorten
from fnx.transforms.replay.captures import codes_of

if TYPE_CHECKING:
    from fnx.transforms.replay.lowering import Lowering

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S")

_show: list[Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]] = []


def set_lower(lower: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]) -> None:
    """Say how functions are lowered, (function, args, kwargs) -> Lowering: jit does."""
    _show.append(lower)


class Transformed(Generic[P, R_co]):
    """A function made from ``f``, with options by name.

    ``kind`` is the transform, ``does`` what the result computes, for its docstring.
    """

    kind: ClassVar[str]
    does: ClassVar[str] = ""

    def __init__(self, f: Callable[..., Any], **options: Any) -> None:
        if not callable(f):
            raise ArgumentError(f"{self.kind}: expected a function, got {type(f).__name__}",
                                hint=f"write {self.kind}(f)(x), not {self.kind}(f(x))")
        functools.update_wrapper(self, f, updated=())
        self.__dict__.update({name: value for name, value in getattr(f, "__dict__", {}).items()
                              if not name.startswith("_")})  # the user's, not a transform's own
        self._f, self._name, self._options = f, name_of(f), options
        if self.kind != "jit":  # which computes the same, so it is the same to its readers
            self.__name__ = self.__qualname__ = f"{self.kind}({self._name})"
            self.__doc__ = "\n\n".join(filter(None, (self.does, getattr(f, "__doc__", ""))))

    def __repr__(self) -> str:
        return f"<{self.kind} of {self._name}>"

    def lower(self, *args: P.args, **kwargs: P.kwargs) -> Lowering:
        """All steps of this signature, for reading: graph, kernels, commands, LLVM IR."""
        made: Lowering = _show[-1](self, args, kwargs)
        return made

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        try:
            out: R_co = _run(self, args, kwargs)
        except Exception as error:
            leave(error, self._f)
            raise
        return out

    def apply(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call, on a line of the user's that is known."""
        raise NotImplementedError

    @overload
    def __get__(self, instance: None, owner: Any = None) -> Transformed[P, R_co]: ...

    @overload
    def __get__(self: Transformed[Concatenate[S, Q], R], instance: S, owner: Any = None
                ) -> Callable[Q, R]: ...

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    # ---- copies: a function is its own

    def __copy__(self) -> Transformed[P, R_co]:
        return self

    def __deepcopy__(self, memo: Any) -> Transformed[P, R_co]:
        return self

    def __reduce__(self) -> Any:
        """By its qualified name, as functions; where that is another's, by what it is made of."""
        name = getattr(self._f, "__qualname__", self._name)
        try:
            if operator.attrgetter(name)(sys.modules[self.__module__]) is self:
                return name
        except (AttributeError, KeyError):  # it is local
            pass
        return functools.partial(type(self), self._f, **self._options), ()


def leave(error: Exception, f: Callable[..., Any]) -> None:
    """What an error is told that leaves a call of f: which of several lines is meant, and what
    frames to show."""
    if isinstance(error, FnxError) and len(error.sites) > 1:
        error.within(codes_of(f))
    shorten(error)


@public
def _run(g: Transformed[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return g.apply(args, kwargs)
