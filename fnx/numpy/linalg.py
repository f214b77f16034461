"""``fnx.numpy.linalg``: norms, products and diagonals. Factorizations are not implemented."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fnx.core.support.errors import lazy_module
from fnx.numpy.norms import norm

if TYPE_CHECKING:  # loaded on first use
    pass

_HOMES = {
    **dict.fromkeys(("cross", "diagonal", "matrix_norm", "matrix_power", "multi_dot", "outer",
                     "trace", "vector_norm"), "fnx.numpy.linalg_functions"),
    **dict.fromkeys(("matmul", "tensordot"), "fnx.numpy.contraction"),
    "matrix_transpose": "fnx.numpy.manipulation", "vecdot": "fnx.numpy.vector_math"}

__all__ = ["norm", *_HOMES]

if not TYPE_CHECKING:  # __getattr__ would make every name exist for type checkers
    __getattr__, __dir__ = lazy_module(__name__, __all__, modules=_HOMES)
