"""Why jitted functions are traced, as log messages in JAX's words: ``explain_cache_misses``.

    TRACING CACHE MISS at train.py:12:
      for step defined at train.py:3
      all previously seen cache keys differ. For the closest previous key:
      different input types:
      * at x, now f32[4] and before f32[3]
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Sequence
from typing import Any

from fnx.core.array import tree
from fnx.core.array.abstract_values import ShapedArray
from fnx.core.support.errors import format_location, user_location
from fnx.core.tracing.trace import argument_name, function_name

_LOGGER = logging.getLogger("jax._src.interpreters.partial_eval")
_lines: set[Any] = set()  # at which functions were traced for the first time


def log_miss(f: Any, key: Any, previous: Sequence[Any], captured: tuple[str, Any, Any] | None
             ) -> None:
    """Log that a function is traced.

    Args:
        f: the function.
        key: the signature of the call.
        previous: those that it was traced for.
        captured: a name that it reads from outside, with the values before and now.
    """
    code = getattr(inspect.unwrap(f), "__code__", None)
    name = function_name(f)
    where = f" defined at {code.co_filename}:{code.co_firstlineno}" if code else ""
    loc = user_location()
    lines = [f"TRACING CACHE MISS at {format_location(loc) if loc else 'an unknown line'}:"]
    if not previous:
        lines += ["  never seen function:", f"    {name} id={id(f)}{where}"]
        if loc in _lines:
            lines += ["  but seen another function defined on the same line; maybe the function is",
                      "  being re-defined repeatedly, preventing caching?"]
        _lines.add(loc)
    else:
        closest = min(previous, key=lambda k: len(_differences(f, key, k)))
        lines += [f"  for {name}{where}",
                  "  all previously seen cache keys differ. For the closest previous key:",
                  *[f"  {line}" for line in _differences(f, key, closest, captured)]]
    _LOGGER.warning("\n".join(lines))


def _differences(f: Any, now: Any, before: Any, captured: tuple[str, Any, Any] | None = None
                 ) -> list[str]:
    if captured is not None:
        name, old, new = captured
        return ["different values read from outside:", f"* {name}, now {new!r} and before {old!r}"]
    if now.config != before.config:
        return ["Tracing context doesn't match, e.g. due to config or context manager."]
    if now.in_tree != before.in_tree:
        return ["different input pytree:",
                f"* at input path {tree.first_difference(before.in_tree, now.in_tree)}"]
    if now.statics != before.statics:
        return ["different input pytree:", "* the pytree node metadata does not match: static "
                f"arguments, now {_values(now.statics)} and before {_values(before.statics)}"]
    types = [f"* at {argument_name(f, path)}, now {_text(new, old)} and before {_text(old, new)}"
             for path, new, old in zip(tree.paths(now.in_tree), now.avals, before.avals)
             if new != old]
    return ["different input types:", *types] if types else ["cache miss explanation unavailable"]


def _values(statics: Sequence[tuple[Any, Any]]) -> dict[Any, Any]:
    return {name: value.value for name, value in statics}


def _text(aval: Any, other: Any) -> str:
    weak = f"{{weak_type={aval.weak}}}" * (aval.weak != other.weak)
    return f"{ShapedArray.of(aval).str_short(short_dtypes=True)}{weak}"
