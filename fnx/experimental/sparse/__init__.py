"""Sparse arrays, as in ``jax.experimental.sparse``: BCOO, BCSR and others.

>>> import fnx.numpy as jnp
>>> from fnx.experimental import sparse
>>> M = sparse.BCOO.fromdense(jnp.asarray([[0.0, 2.0], [3.0, 0.0]]))
>>> print(M @ jnp.asarray([1.0, 10.0]))
[20.  3.]
"""

from typing import TYPE_CHECKING

from fnx.core.support.errors import lazy_module
from fnx.experimental.sparse.arithmetic import (
    bcoo_dot_general,
    bcoo_dot_general_sampled,
    bcoo_multiply_dense,
    bcoo_multiply_sparse,
    bcoo_reduce_sum,
)
from fnx.experimental.sparse.base import (
    CuSparseEfficiencyWarning,
    JAXSparse,
    SparseEfficiencyError,
    SparseEfficiencyWarning,
)
from fnx.experimental.sparse.bcoo import BCOO
from fnx.experimental.sparse.bcsr import (
    BCSR,
    bcsr_broadcast_in_dim,
    bcsr_concatenate,
    bcsr_dot_general,
    bcsr_extract,
    bcsr_fromdense,
    bcsr_sum_duplicates,
    bcsr_todense,
)
from fnx.experimental.sparse.conversions import bcoo_extract, bcoo_fromdense, bcoo_todense
from fnx.experimental.sparse.convolution import bcoo_conv_general_dilated
from fnx.experimental.sparse.creation import empty, eye, random_bcoo, todense
from fnx.experimental.sparse.derivatives import grad, jacfwd, jacobian, jacrev, value_and_grad
from fnx.experimental.sparse.duplicates import bcoo_sort_indices, bcoo_sum_duplicates
from fnx.experimental.sparse.gather import bcoo_gather
from fnx.experimental.sparse.layouts import bcoo_update_layout
from fnx.experimental.sparse.movement import (
    bcoo_broadcast_in_dim,
    bcoo_concatenate,
    bcoo_dynamic_slice,
    bcoo_reshape,
    bcoo_rev,
    bcoo_slice,
    bcoo_squeeze,
    bcoo_transpose,
)
from fnx.experimental.sparse.plain_formats import (
    COO,
    CSC,
    CSR,
    coo_fromdense,
    coo_matmat,
    coo_matvec,
    coo_todense,
    csr_fromdense,
    csr_matmat,
    csr_matvec,
    csr_todense,
)
from fnx.experimental.sparse.sparsify import sparsify

__all__ = [
    "BCOO", "BCSR", "COO", "CSC", "CSR", "CuSparseEfficiencyWarning", "JAXSparse",
    "SparseEfficiencyError", "SparseEfficiencyWarning", "bcoo_broadcast_in_dim",
    "bcoo_concatenate", "bcoo_conv_general_dilated", "bcoo_dot_general",
    "bcoo_dot_general_sampled", "bcoo_dynamic_slice", "bcoo_extract", "bcoo_fromdense",
    "bcoo_gather", "bcoo_multiply_dense", "bcoo_multiply_sparse",
    "bcoo_reduce_sum", "bcoo_reshape", "bcoo_rev", "bcoo_slice", "bcoo_sort_indices",
    "bcoo_squeeze", "bcoo_sum_duplicates", "bcoo_todense", "bcoo_transpose", "bcoo_update_layout",
    "bcsr_broadcast_in_dim", "bcsr_concatenate", "bcsr_dot_general", "bcsr_extract",
    "bcsr_fromdense", "bcsr_sum_duplicates", "bcsr_todense", "coo_fromdense", "coo_matmat",
    "coo_matvec", "coo_todense", "csr_fromdense", "csr_matmat", "csr_matvec", "csr_todense",
    "empty", "eye", "grad", "jacfwd", "jacobian", "jacrev", "linalg", "random_bcoo", "sparsify",
    "todense", "value_and_grad",
]

if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__, modules={
        "linalg": "fnx.experimental.sparse.linalg"})
