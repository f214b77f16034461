"""The functions of ``jax.scipy.sparse``: matrix-free linear solvers."""

from typing import TYPE_CHECKING

from fnx.core.errors import module_face

if TYPE_CHECKING:  # loaded on first use
    from fnx.scipy.sparse import linalg

__all__ = ["linalg"]

if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = module_face(__name__, __all__,
                                       homes={"linalg": "fnx.scipy.sparse.linalg"})
