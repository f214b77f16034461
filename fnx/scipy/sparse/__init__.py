"""Functions under the names of ``jax.scipy.sparse``: linear equations without a matrix."""

from typing import TYPE_CHECKING

from fnx.core.errors import module_face

if TYPE_CHECKING:  # at their first use
    from fnx.scipy.sparse import linalg

__all__ = ["linalg"]

if not TYPE_CHECKING:  # else every name would be there for type checkers
    __getattr__, __dir__ = module_face(__name__, __all__,
                                       homes={"linalg": "fnx.scipy.sparse.linalg"})
