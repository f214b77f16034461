"""Functions of JAX's inside that its tests and libraries call: of jaxprs, values and lines.

>>> from fnx.as_jax.linear_util import wrap_init
>>> f = wrap_init(lambda x: [x + 1])
>>> print(trace_to_jaxpr_dynamic(f, [ShapedArray((), "float32")])[0])
{ lambda ; a:f32[]. let b:f32[] = add a 1.0:f32[] in (b,) }
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fnx.as_jax.linear_util import WrappedFun
from fnx.core.array.abstract_values import ShapedArray, Tracer, get_aval
from fnx.core.array.api_boundary import asarray
from fnx.core.array.aval import ShapeDtypeStruct
from fnx.core.scope import scope
from fnx.core.support.errors import TracedValueError, format_location
from fnx.jaxprs.make import make_jaxpr
from fnx.jaxprs.syntax import Jaxpr, SourceInfo
from fnx.transforms.jit import Jitted


def shaped_abstractify(x: Any) -> ShapedArray:
    """Return the type of an array, a number or a ShapeDtypeStruct.

    >>> shaped_abstractify(1.0)
    ShapedArray(float32[], weak_type=True)
    """
    return get_aval(x if isinstance(x, ShapeDtypeStruct) else asarray(x))


def concrete_or_error(force: Callable[[Any], Any] | None, val: Any, context: str = "") -> Any:
    """Return ``force(val)``; the error of a traced value says for what it is needed.

    >>> concrete_or_error(int, 3.0, "the size")
    3
    """
    try:
        if force is None and isinstance(val, Tracer):
            bool(val)
        return val if force is None else force(val)
    except TracedValueError as error:
        error.message = f"{error.message}; {context}" if context else error.message
        error.args = (error.message,)
        raise


def trace_to_jaxpr_dynamic(fun: WrappedFun, in_avals: Sequence[Any], **_: Any
                           ) -> tuple[Jaxpr, list[Any], list[Any]]:
    """Trace a function of leaves, which returns a list.

    Returns:
        A jaxpr, the types of its results, and its constants.
    """
    structs = [ShapeDtypeStruct(a.shape, a.dtype, weak_type=getattr(a, "weak_type", False))
               for a in in_avals]
    closed = make_jaxpr(lambda *leaves: list(fun.call_wrapped(*leaves)))(*structs)
    return closed.jaxpr, list(closed.out_avals), list(closed.consts)


@contextlib.contextmanager
def extend_axis_env_nd(axes: Sequence[tuple[Any, int]]) -> Iterator[None]:
    """Open axes by name and size.

    >>> with extend_axis_env_nd([("rows", 4)]):
    ...     scope.innermost().name
    'axis rows'
    """
    with contextlib.ExitStack() as stack:
        for name, size in axes:
            stack.enter_context(scope.Scope(f"axis {name}", scope.new_axis(name, size)))
        yield


def summarize(source_info: SourceInfo, num_frames: int = 1) -> str:
    """Return the user's line of an equation as text.

    >>> summarize(SourceInfo(("model.py", 3)))
    'model.py:3'
    """
    return "unknown" if source_info.loc is None else format_location(source_info.loc)


def name_jitted_functions() -> None:
    """Give jitted functions the class name of JAX, by which libraries find them, and its text."""
    def text(self: Jitted[..., Any]) -> str:
        return f"<PjitFunction of {self._f!r}>"
    Jitted.__name__ = Jitted.__qualname__ = "PjitFunction"
    type.__setattr__(Jitted, "__repr__", text)


def composite(decomposition: Callable[..., Any], name: str, version: int = 0
              ) -> Callable[..., Any]:
    """Return the function: no compiler of fnx knows a faster one by this name.

    >>> composite(lambda x: x + 1, "my.increment")(1)
    2
    """
    @functools.wraps(decomposition)
    def call(*args: Any, **attributes: Any) -> Any:
        return decomposition(*args, **attributes)
    return call
