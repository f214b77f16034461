"""Memoized derivations of FUNCTIONs (such as their vjp), one per body and key.

A derivation is a generator that walks a graph. When it needs a derived form of a nested body it
yields (body, key), and is resumed with that form; the type of the key selects the derivation. So
nested bodies take no Python stack. A form is cached with its body, by key, for as long as the body
lives; therefore a form must not reference its body.

>>> from fnx.core import build, build_calls, dtypes, ops
>>> from fnx.core.uop import toposort
>>> class Depth(str): pass
>>> @derives(Depth, "depths")
... def depth(body, key):
...     deepest = 0
...     for node in toposort(body.src):
...         if node.op is ops.FUNCTION:
...             deepest = max(deepest, (yield node, key))
...     return 1 + deepest
>>> x = build.param(0, dtypes.float32, ())
>>> body = build.function([build.neg(x)], 1)
>>> for _ in range(3000):
...     body = build.function(build_calls.call(body, [x]), 1)
>>> form(body, Depth())
3001
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable
from typing import Any, TypeVar

from fnx.core.cache import MEGABYTE, Cache, CacheOf, graph_bytes
from fnx.core.errors import GradError
from fnx.core.uop import UOp, current_site

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

Request = tuple[UOp, Hashable]
Steps = Generator[Request, Any, T]

MAX_FORMS = 64  # per kind and body
FORM_BYTES = 32 * MEGABYTE
MAX_RECENT = 64

_recent: Cache[UOp, UOp] = Cache("functions with derived forms", MAX_RECENT, FORM_BYTES,
                                 lambda body, _: graph_bytes(body))

_kinds: dict[type, tuple[Callable[[UOp, Any], Steps[Any]], CacheOf[UOp, Any, Any]]] = {}


def derives(kind: type[K], name: str
            ) -> Callable[[Callable[[UOp, K], Steps[T]]], Callable[[UOp, K], Steps[T]]]:
    """Decorate the derivation for keys of a type."""
    def register(make: Callable[[UOp, K], Steps[T]]) -> Callable[[UOp, K], Steps[T]]:
        _kinds[kind] = make, CacheOf(name, MAX_FORMS, FORM_BYTES,
                                     lambda key, made: graph_bytes(made))
        return make
    return register


def keep(body: UOp) -> None:
    """Keep a FUNCTION and its forms alive in an LRU cache.

    So a FUNCTION that is rebuilt at each call of a transform is the same object, with its forms.
    """
    _recent.keep(body, body)
    _recent.get(body)


def form(body: UOp, key: Hashable) -> Any:
    """Return a derived form of a FUNCTION, from the cache or made now."""
    found = _kinds[type(key)][1].of(body).get(key)
    return run(_asked(body, key)) if found is None else found


def _asked(body: UOp, key: Hashable) -> Steps[Any]:
    return (yield body, key)


def run(steps: Steps[T]) -> T:
    """Run a derivation; forms that it requests are looked up, or made before it is resumed.

    A GradError in a requested derivation is raised at the request. So is one for a form that
    requests itself: the derivative of a rule that calls its own function on tangents.
    """
    waiting: list[tuple[Steps[Any], Request | None]] = [(steps, None)]
    pending: set[Request] = set()
    answer: Any = None
    error: GradError | None = None
    site = current_site.site
    try:
        while True:
            current, asked = waiting[-1]
            try:
                if error is None:
                    body, key = current.send(answer)
                else:
                    raised, error = error, None
                    body, key = current.throw(raised)
            except GradError as e:
                waiting.pop()
                if asked is None:
                    raise
                pending.discard(asked)
                error = e
            except StopIteration as done:
                waiting.pop()
                answer = done.value
                if asked is None:
                    found: T = answer
                    return found
                pending.discard(asked)
                _kinds[type(asked[1])][1].of(asked[0]).keep(asked[1], answer)
            else:
                make, forms = _kinds[type(key)]
                answer = forms.of(body).get(key)
                if answer is None and (body, key) in pending:
                    error = GradError(f"expected a derivative of {body.arg.name} that ends, got "
                                      "one that is defined by itself",
                                      hint="give the function a vjp (lax.custom_linear_solve: a "
                                           "transpose_solve)")
                elif answer is None:
                    pending.add((body, key))
                    waiting.append((make(body, key), (body, key)))
    finally:
        current_site.site = site
