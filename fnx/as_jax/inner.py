"""Names of JAX's inner modules that libraries import, and what they are here.

Of optax 0.2.8, jaxopt 0.8.5, equinox 0.13.8 and flax 0.12.8. What is asked of many programs is
real; the rest is inert: it is taken where libraries set themselves up and raises when a program
uses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

INNER: dict[str, Mapping[str, Any]] = {}
PACKAGES = ("jax._src",)
