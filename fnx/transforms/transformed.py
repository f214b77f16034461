"""The base class of transformed functions: calls, repr, docstring, pickling.

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
import inspect
import operator
import sys
from collections.abc import Callable
from inspect import CO_GENERATOR
from types import MethodType
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Generic, ParamSpec, TypeVar, overload

from fnx.core.array.api_boundary import public_api
from fnx.core.support.errors import ArgumentError, FnxError, set_missing_names
from fnx.core.support.name_hints import CURES_OF_FUNCTIONS
from fnx.core.support.traceback_filter import filter_traceback
from fnx.core.tracing.state import Lift, StateUsedError, lift
from fnx.core.tracing.trace import function_name
from fnx.transforms.dispatch.captures import reached_codes

if TYPE_CHECKING:
    from fnx.transforms.inspect.lowering import Lowering

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S")

_lower_hooks: list[Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]] = []


def register_lower(lower: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]) -> None:
    """Register the function that lowers, (function, args, kwargs) -> Lowering. Called by jit."""
    _lower_hooks.append(lower)


class _SignatureOfFunction:
    """The signature of the function that an object wraps, for ``inspect.signature``: its call may
    be native code, which has none."""

    def __get__(self, wrapper: Transformed[Any, Any] | None, owner: type) -> inspect.Signature:
        if wrapper is None:
            raise AttributeError("__signature__")
        try:
            return inspect.signature(wrapper._f)
        except (TypeError, ValueError) as e:  # a function of C without one
            raise AttributeError("__signature__") from e


def check_function(f: Any, kind: str, hint: str = "") -> None:
    """Raise unless a transform can take a function."""
    if not callable(f):
        raise ArgumentError(f"{kind}: expected a function, got {type(f).__name__}",
                            hint=hint or f"write {kind}(f)(x), not {kind}(f(x))")
    if getattr(getattr(f, "__code__", None), "co_flags", 0) & CO_GENERATOR:
        raise ArgumentError(f"{kind}: expected a function, got a generator function, "
                            f"{function_name(f)}", hint="return a list of what it yields")


class Transformed(Generic[P, R_co]):
    """A function made from ``f``, with named options.

    ``kind`` is the name of the transform; ``summary`` says what the result computes, for its
    docstring.
    """

    kind: ClassVar[str]
    summary: ClassVar[str] = ""
    __signature__ = _SignatureOfFunction()

    def __init__(self, f: Callable[..., Any], **options: Any) -> None:
        check_function(f, self.kind)
        functools.update_wrapper(self, f, updated=())
        self.__dict__.update({name: value for name, value in getattr(f, "__dict__", {}).items()
                              if not name.startswith("_")})  # the user's, not a transform's
        self._f, self._name, self._options = f, function_name(f), options
        if self.kind not in ("jit", "checkpoint"):  # which compute the same: same name and docs
            self.__name__ = self.__qualname__ = f"{self.kind}({self._name})"
            self.__doc__ = "\n\n".join(filter(None, (self.summary, getattr(f, "__doc__", ""))))
        elif isinstance(f, functools.partial):
            self.__name__ = self.__qualname__ = self._name

    def __repr__(self) -> str:
        return f"<{self.kind} of {self._name}>"

    def __dir__(self) -> list[str]:
        return [name for name in object.__dir__(self)
                if name not in CURES_OF_FUNCTIONS or name in self.__dict__]

    def lower(self, *args: P.args, **kwargs: P.kwargs) -> Lowering:
        """Return all lowering steps of this signature: graph, kernels, commands, LLVM IR."""
        lowering: Lowering = _lower_hooks[-1](self, args, kwargs)
        return lowering

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        try:
            try:
                out: R_co = run_call(self, args, kwargs)
            except StateUsedError as used:
                out = self._run_with_states(used, args, kwargs)
        except Exception as error:
            annotate_error(error, self._f)
            raise
        return out

    def _run_with_states(self, used: StateUsedError, args: tuple[Any, ...],
                         kwargs: dict[str, Any]) -> Any:
        """Do a call again whose function uses references from outside."""
        return lift(used, lambda lifted: self.with_aux(lifted)(*args, **kwargs))

    def with_aux(self, lifted: Lift) -> Callable[..., tuple[Any, Any]]:
        """Return a function that returns what this one does, and the next values of states."""
        raise StateUsedError(lifted.states[-1])

    def apply(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Do the call; errors know the user's line by now."""
        raise NotImplementedError

    @overload
    def __get__(self, instance: None, owner: Any = None) -> Transformed[P, R_co]: ...

    @overload
    def __get__(self: Transformed[Concatenate[S, Q], R], instance: S, owner: Any = None
                ) -> Callable[Q, R]: ...

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    # ---- copies: a copy of a function is the function itself

    def __copy__(self) -> Transformed[P, R_co]:
        return self

    def __deepcopy__(self, memo: Any) -> Transformed[P, R_co]:
        return self

    def __reduce__(self) -> Any:
        """Pickle by qualified name, as functions do; if that names another object, by ``f`` and
        options."""
        name = getattr(self._f, "__qualname__", self._name)
        try:
            if operator.attrgetter(name)(sys.modules[self.__module__]) is self:
                return name
        except (AttributeError, KeyError):  # a local function
            pass
        return functools.partial(type(self), self._f, **self._options), ()


set_missing_names(Transformed, "a transformed function", CURES_OF_FUNCTIONS)


def annotate_error(error: Exception, f: Callable[..., Any]) -> None:
    """Prepare an error that leaves a call of f: choose the source location within f among
    several, and drop internal frames from the traceback."""
    if isinstance(error, FnxError) and len(error.locs) > 1:
        error.narrow_location(reached_codes(f))
    filter_traceback(error)


@functools.partial(public_api, name="_run_call")  # errors do not name it
def run_call(g: Transformed[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Do a call of a transformed function as a public call, without its references."""
    return g.apply(args, kwargs)
