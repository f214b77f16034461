"""The functions of ``jax.scipy.sparse``: matrix-free linear solvers."""

from typing import TYPE_CHECKING

from fnx.core.support.errors import lazy_module

if TYPE_CHECKING:  # loaded on first use
    from fnx.scipy.sparse import linalg

__all__ = ["linalg"]

if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__,
                                       modules={"linalg": "fnx.scipy.sparse.linalg"})
