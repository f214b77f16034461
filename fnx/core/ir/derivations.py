"""Memoized derivations of FUNCTIONs (such as their vjp), one per body and key.

A derivation is a generator that walks a graph. When it needs a derived form of a nested body it
yields (body, key), and is resumed with that form; the type of the key selects the derivation. So
nested bodies take no Python stack. A form is cached with its body, by key, for as long as the body
lives; therefore a form must not reference its body.

>>> from fnx.core.ir import build, build_calls, dtypes, ops
>>> from fnx.core.ir.uop import toposort
>>> class Depth(str): pass
>>> @register_derivation(Depth)
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

import functools
from collections.abc import Callable, Generator, Hashable
from typing import Any, TypeVar

from fnx.core.ir.cache import MEGABYTE, Cache, graph_bytes, memoized, memos_of
from fnx.core.ir.uop import UOp, current_loc, toposort
from fnx.core.support.config import config
from fnx.core.support.errors import GradError, Location
from fnx.core.support.line_visits import recording

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

DeriveRequest = tuple[UOp, Hashable]
Derivation = Generator[DeriveRequest, Any, T]

MAX_FORMS = 256  # of a body
MAX_RECENT = 256
FORM_BYTES = 64 * MEGABYTE

# Forms that may contain their body, so they cannot live as long as it; and recent FUNCTIONs.
recent_forms: Cache[Any, Any] = Cache("recent functions and forms", MAX_RECENT, FORM_BYTES,
                                      lambda key, form: graph_bytes([key, form]))
_derivations: dict[type, Callable[[UOp, Any], Derivation[Any]]] = {}


def derived_forms(body: UOp) -> Cache[Any, Any]:
    """Return the cache of what is derived from a FUNCTION or KERNEL, which lives as long as it.

    A form must not reference its body. Keys begin with the function that derives it, or its type.
    While executed lines are recorded, nothing from before is used: it has none.
    """
    recorder = recording.recorder
    forms: Cache[Any, Any] = _forms_of(body) if recorder is None else recorder.forms_of(body)
    return forms


def forms_with_body(body: UOp) -> Cache[Any, Any]:
    """Return the cache of forms of a FUNCTION that may contain it."""
    recorder = recording.recorder
    return recent_forms if recorder is None else recorder.forms_of(body)


@memoized
def _forms_of(body: UOp) -> Cache[Any, Any]:
    return new_forms()


def new_forms() -> Cache[Any, Any]:
    """Return an empty cache of what is derived from a FUNCTION."""
    return Cache("derived forms", MAX_FORMS, FORM_BYTES, lambda key, form: graph_bytes(form))


def analysis(f: Callable[[UOp], T]) -> Callable[[UOp], T]:
    """Memoize an analysis of a FUNCTION that asks for the same of the functions inside.

    They are analyzed first, so nested bodies take no Python stack. Results live as long as the
    FUNCTION, so they must not reference it.

    >>> from fnx.core.ir import build, build_calls, dtypes, ops
    >>> @analysis
    ... def depth(body):
    ...     inside = [n for n in toposort(body.src) if n.op is ops.FUNCTION]
    ...     return 1 + max(map(depth, inside), default=0)
    >>> x = build.param(0, dtypes.float32, ())
    >>> body = build.function([build.neg(x)], 1)
    >>> for _ in range(3000):
    ...     body = build.function(build_calls.call(body, [x]), 1)
    >>> depth(body)
    3001
    """
    def lookup(body: UOp) -> T:
        results = memos_of(body)
        if f not in results:
            for fn in toposort([body], into_functions=True,
                               stop=lambda n: n.op is body.op and f in memos_of(n)):
                if fn.op is body.op and f not in memos_of(fn):  # inner functions come first
                    memos_of(fn)[f] = f(fn)
        result: T = results[f]
        return result
    functools.update_wrapper(lookup, f)
    return lookup


def register_derivation(kind: type[K]) -> Callable[[Callable[[UOp, K], Derivation[T]]],
                                                   Callable[[UOp, K], Derivation[T]]]:
    """Decorate the derivation for keys of a type."""
    def register(make: Callable[[UOp, K], Derivation[T]]) -> Callable[[UOp, K], Derivation[T]]:
        _derivations[kind] = make
        return make
    return register


def retain(body: UOp) -> None:
    """Keep a FUNCTION and its forms alive in an LRU cache.

    So a FUNCTION that is rebuilt at each call of a transform is the same object, with its forms.
    """
    recent_forms.put(body, body)
    recent_forms.get(body)


def lines_of(*bodies: UOp) -> Hashable:
    """Return the user's lines of some FUNCTIONs if ``config.check`` asks for these, else None.

    What was derived from an equal FUNCTION has the lines of that one.
    """
    if not config.check:
        return None
    return frozenset([loc for n in toposort(bodies, into_functions=True) for loc in n.locs])


_find_context: Callable[[], Hashable] = tuple


def set_derivation_context(find: Callable[[], Hashable]) -> None:
    """Register the function that returns what else derivations depend on: the open axes."""
    global _find_context
    _find_context = find


def _cache_key(body: UOp, key: Hashable) -> Hashable:
    return type(key), key, lines_of(body), _find_context()


def derive(body: UOp, key: Hashable) -> Any:
    """Return a derived form of a FUNCTION, from the cache or made now."""
    cached = derived_forms(body).get(_cache_key(body, key))
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
    loc = current_loc.loc
    suspended: list[Location | None] = []  # the locations at the requests
    try:
        while True:
            current, request = waiting[-1]
            if recording.recorder is not None:
                recording.recorder.enter_derivation(request)
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
                current_loc.loc = suspended.pop()
                pending.discard(request)
                error = e
            except StopIteration as done:
                waiting.pop()
                answer = done.value
                if request is None:
                    result: T = answer
                    return result
                pending.discard(request)
                current_loc.loc = suspended.pop()
                if recording.recorder is not None:
                    recording.recorder.end_derivation(request, answer)
                body, key = request
                derived_forms(body).put(_cache_key(body, key), answer)
            else:
                answer = derived_forms(body).get(_cache_key(body, key))
                if answer is None and (body, key) in pending:
                    error = GradError(f"expected a derivative of {body.arg.name} that ends, got "
                                      "one that is defined by itself",
                                      hint="give the function a vjp (lax.custom_linear_solve: a "
                                           "transpose_solve)")
                elif answer is None:
                    pending.add((body, key))
                    suspended.append(current_loc.loc)
                    waiting.append((_derivations[type(key)](body, key), (body, key)))
    finally:
        current_loc.loc = loc
        if recording.recorder is not None:
            recording.recorder.enter_derivation(None)
