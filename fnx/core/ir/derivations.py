"""Memoized derivations of FUNCTIONs (such as their vjp), one per body and key.

A derivation is a generator that walks a graph. When it needs a derived form of a nested body it
yields (body, key), and is resumed with that form; the type of the key selects the derivation. So
nested bodies take no Python stack. A form is cached with its body, by key, for as long as the body
lives; therefore a form must not reference its body.

>>> from fnx.core.ir import build, build_calls, dtypes, ops
>>> from fnx.core.ir.uop import toposort
>>> class Depth(str): pass
>>> @register_derivation(Depth, "depths")
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
>>> derive(body, Depth())
3001
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable
from typing import Any, TypeVar

from fnx.core.ir.cache import MEGABYTE, Cache, OwnerCaches, graph_bytes
from fnx.core.ir.uop import UOp, current_loc
from fnx.core.support.errors import GradError

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

DeriveRequest = tuple[UOp, Hashable]
Derivation = Generator[DeriveRequest, Any, T]

MAX_DERIVED = 64  # per kind and body
DERIVED_BYTES = 32 * MEGABYTE
MAX_RECENT = 64

_recent: Cache[UOp, UOp] = Cache("functions with derived forms", MAX_RECENT, DERIVED_BYTES,
                                 lambda body, _: graph_bytes(body))

_derivations: dict[type,
                   tuple[Callable[[UOp, Any], Derivation[Any]], OwnerCaches[UOp, Any, Any]]] = {}


def register_derivation(kind: type[K], name: str
                        ) -> Callable[[Callable[[UOp, K], Derivation[T]]],
                                      Callable[[UOp, K], Derivation[T]]]:
    """Decorate the derivation for keys of a type."""
    def register(make: Callable[[UOp, K], Derivation[T]]) -> Callable[[UOp, K], Derivation[T]]:
        _derivations[kind] = make, OwnerCaches(name, MAX_DERIVED, DERIVED_BYTES,
                                               lambda key, made: graph_bytes(made))
        return make
    return register


def retain(body: UOp) -> None:
    """Keep a FUNCTION and its forms alive in an LRU cache.

    So a FUNCTION that is rebuilt at each call of a transform is the same object, with its forms.
    """
    _recent.put(body, body)
    _recent.get(body)


def derive(body: UOp, key: Hashable) -> Any:
    """Return a derived form of a FUNCTION, from the cache or made now."""
    cached = _derivations[type(key)][1].for_owner(body).get(key)
    return run_derivation(_request(body, key)) if cached is None else cached


def _request(body: UOp, key: Hashable) -> Derivation[Any]:
    return (yield body, key)


def run_derivation(steps: Derivation[T]) -> T:
    """Run a derivation; forms that it requests are looked up, or made before it is resumed.

    A GradError in a requested derivation is raised at the request. So is one for a form that
    requests itself: the derivative of a rule that calls its own function on tangents.
    """
    waiting: list[tuple[Derivation[Any], DeriveRequest | None]] = [(steps, None)]
    pending: set[DeriveRequest] = set()
    answer: Any = None
    error: GradError | None = None
    site = current_loc.loc
    try:
        while True:
            current, request = waiting[-1]
            try:
                if error is None:
                    body, key = current.send(answer)
                else:
                    raised, error = error, None
                    body, key = current.throw(raised)
            except GradError as e:
                waiting.pop()
                if request is None:
                    raise
                pending.discard(request)
                error = e
            except StopIteration as done:
                waiting.pop()
                answer = done.value
                if request is None:
                    result: T = answer
                    return result
                pending.discard(request)
                _derivations[type(request[1])][1].for_owner(request[0]).put(request[1], answer)
            else:
                make, forms = _derivations[type(key)]
                answer = forms.for_owner(body).get(key)
                if answer is None and (body, key) in pending:
                    error = GradError(f"expected a derivative of {body.arg.name} that ends, got "
                                      "one that is defined by itself",
                                      hint="give the function a vjp (lax.custom_linear_solve: a "
                                           "transpose_solve)")
                elif answer is None:
                    pending.add((body, key))
                    waiting.append((make(body, key), (body, key)))
    finally:
        current_loc.loc = site
