"""``fnx.scipy.linalg``: the functions of ``jax.scipy.linalg``."""

from typing import TYPE_CHECKING

from fnx.core.support.errors import lazy_module

if TYPE_CHECKING:  # loaded on first use
    from fnx.scipy.linalg.decompositions import (
        cho_factor,
        cholesky,
        eigh,
        eigh_tridiagonal,
        hessenberg,
        lu,
        lu_factor,
        polar,
        qr,
        qr_multiply,
        rsf2csf,
        schur,
        svd,
    )
    from fnx.scipy.linalg.matrix_functions import expm, expm_frechet, funm, sqrtm
    from fnx.scipy.linalg.solvers import (
        cho_solve,
        det,
        inv,
        lu_solve,
        solve,
        solve_sylvester,
        solve_triangular,
    )
    from fnx.scipy.linalg.special_matrices import (
        block_diag,
        circulant,
        companion,
        convolution_matrix,
        dft,
        fiedler,
        fiedler_companion,
        hadamard,
        hankel,
        helmert,
        hilbert,
        invhilbert,
        invpascal,
        leslie,
        pascal,
        toeplitz,
    )

__all__ = [
    "block_diag", "cho_factor", "cho_solve", "cholesky", "circulant", "companion",
    "convolution_matrix", "det", "dft", "eigh", "eigh_tridiagonal", "expm", "expm_frechet",
    "fiedler", "fiedler_companion", "funm", "hadamard", "hankel", "helmert", "hessenberg",
    "hilbert", "inv", "invhilbert", "invpascal", "leslie", "lu", "lu_factor", "lu_solve",
    "pascal", "polar", "qr", "qr_multiply", "rsf2csf", "schur", "solve", "solve_sylvester",
    "solve_triangular", "sqrtm", "svd", "toeplitz",
]

_LAZY_MODULES = {
    "decompositions": (
        "cho_factor", "cholesky", "eigh", "eigh_tridiagonal", "hessenberg", "lu", "lu_factor",
        "polar", "qr", "qr_multiply", "rsf2csf", "schur", "svd"),
    "matrix_functions": ("expm", "expm_frechet", "funm", "sqrtm"),
    "solvers": (
        "cho_solve", "det", "inv", "lu_solve", "solve", "solve_sylvester", "solve_triangular"),
    "special_matrices": (
        "block_diag", "circulant", "companion", "convolution_matrix", "dft", "fiedler",
        "fiedler_companion", "hadamard", "hankel", "helmert", "hilbert", "invhilbert", "invpascal",
        "leslie", "pascal", "toeplitz"),
}

if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__, modules={
        name: f"fnx.scipy.linalg.{room}" for room, names in _LAZY_MODULES.items()
        for name in names})
