"""The functions of ``jax.scipy.cluster``: vector quantization."""

from typing import TYPE_CHECKING

from fnx.core.support.errors import lazy_module

if TYPE_CHECKING:  # loaded on first use
    from fnx.scipy.cluster import vq

__all__ = ["vq"]

if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__, modules={"vq": "fnx.scipy.cluster.vq"})
