"""Layer 0: what a graph is. Imports nothing else of fnx.

Names that ``jax.core`` has are found here at their first use.
"""

from importlib import import_module
from typing import Any

_FACES = ("AbstractValue", "ShapedArray", "Tracer", "get_aval")


def __getattr__(name: str) -> Any:
    if name in _FACES:
        return getattr(import_module("fnx.core.array.abstract_values"), name)
    if name == "ensure_compile_time_eval":
        return getattr(import_module("fnx.config_context"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
