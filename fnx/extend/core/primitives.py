"""The primitives of fnx, under the names of ``jax.extend.core.primitives``.

>>> from fnx.extend.core.primitives import add_p
>>> add_p.bind(1.0, 2.0)
Array(3., dtype=float32, weak_type=True)
"""

from __future__ import annotations

from typing import Any

from fnx.interpreters.ad import add_jaxvals_p
from fnx.lax.primitives import primitive

__all__ = ["add_jaxvals_p"]


def __getattr__(name: str) -> Any:
    if name.endswith("_p"):
        return primitive(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
