"""Compare linear algebra with JAX, live: values, dtypes and derivatives, real and complex.

    python scripts/compare_linalg.py [--x64]

Each expression is evaluated with the names of both libraries. What differs is printed; the exit
status says whether anything does. Signs and phases of vectors agree, as both call LAPACK.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import jax
import jax.lax.linalg
import jax.numpy
import jax.scipy.linalg
import numpy as np

import fnx
import fnx.lax.linalg
import fnx.numpy
import fnx.scipy.linalg
from fnx.core.support.config import override

EXPRESSIONS = """
la.cholesky(p) | la.eigh(p) | la.eigvalsh(p) | la.inv(a) | la.det(a) | la.slogdet(a) | la.qr(t)
la.qr(t, 'complete') | la.svd(t) | la.svd(t, False) | la.svdvals(t) | la.pinv(t) | la.cond(a)
la.matrix_rank(a) | la.solve(a, b) | la.lstsq(t, c) | la.norm(a, 'nuc') | la.norm(a, 2)
la.norm(a, 1) | la.eig(a) | la.eigvals(a) | la.matrix_power(a, -2) | la.tensorinv(a[:, None], 1)
ll.lu(a) | ll.schur(a) | ll.hessenberg(a) | ll.tridiagonal(p) | ll.eig(a) | ll.qr(t, pivoting=True)
ll.triangular_solve(a, b, left_side=True, lower=True, transpose_a=True, conjugate_a=True)
ll.tridiagonal_solve(b[:, 0], b[:, 0] + 5, b[:, 1], b) | ll.qdwh(t)[:2] | ll.ormqr(t, b[:, 0], t)
ls.cho_solve(ls.cho_factor(p), b) | ls.lu_solve(ls.lu_factor(a), b, trans=2) | ls.lu(t)
ls.solve(p, b, assume_a='pos') | ls.solve_triangular(a, b, trans=2) | ls.expm(a) | ls.sqrtm(a)
ls.hessenberg(a, calc_q=True) | ls.polar(t) | ls.schur(a, output='complex') | ls.toeplitz(b[:, 0])
ls.solve_sylvester(a, p, a) | ls.expm_frechet(a, p) | ls.funm(a, np.exp) | ls.block_diag(a, b)
"""
DERIVATIVES = """
la.cholesky(x @ x.conj().T + p) | la.eigh(x + x.conj().T)[0] | la.inv(x) | la.det(x) | la.qr(x)
la.slogdet(x) | la.svd(x, False)[1] | la.pinv(x) | la.solve(x, b) | la.eigvals(x) | ll.lu(x)[0]
ls.expm(x) | la.lstsq(x, b)[0] | la.norm(x, 'nuc')
"""


def names(module: Any, lax: Any, scipy: Any, complex_numbers: bool, bits: int) -> dict[str, Any]:
    """Return the names of a library, and operands."""
    rng = np.random.default_rng(0)
    kind = np.dtype(f"c{bits // 4}" if complex_numbers else f"f{bits // 8}")

    def draw(*shape: int) -> np.ndarray:
        x = rng.normal(size=shape)
        return (x + 1j * rng.normal(size=shape) if complex_numbers else x).astype(kind)
    a, t, b, c = draw(4, 4), draw(6, 4), draw(4, 4), draw(6, 2)
    p = (a @ a.conj().T + np.eye(4)).astype(kind)
    arrays = {k: module.asarray(v) for k, v in {"a": a, "b": b, "c": c, "t": t, "p": p}.items()}
    return {"la": module.linalg, "ll": lax, "ls": scipy, "np": module, **arrays}


def differs(ours: Any, theirs: Any, tolerance: float) -> str:
    """Describe how two results differ."""
    pairs = list(zip(fnx.tree.leaves(ours), jax.tree.leaves(theirs)))
    if len(fnx.tree.leaves(ours)) != len(jax.tree.leaves(theirs)):
        return "another number of results"
    for x, y in ((np.asarray(x), np.asarray(y)) for x, y in pairs):
        if x.shape != y.shape or x.dtype != y.dtype:
            return f"{x.dtype}{x.shape}, JAX {y.dtype}{y.shape}"
        scale = float(abs(y).max()) + 1 if y.size else 1.0
        if not np.allclose(x / scale, y / scale, atol=tolerance, rtol=tolerance, equal_nan=True):
            return f"by {abs(x - y).max():.2e} of {scale:.2e}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--x64", action="store_true", help="with 64-bit types")
    bits = 64 if parser.parse_args().x64 else 32
    jax.config.update("jax_enable_x64", bits == 64)
    tolerance, found, count = (1e-9 if bits == 64 else 3e-4), 0, 0
    with override(x64=bits == 64):
        for complex_numbers in (False, True):
            ours = names(fnx.numpy, fnx.lax.linalg, fnx.scipy.linalg, complex_numbers, bits)
            theirs = names(jax.numpy, jax.lax.linalg, jax.scipy.linalg, complex_numbers, bits)
            for text in EXPRESSIONS.replace("\n", "|").split("|"):
                if text.strip():
                    said = differs(eval(text.strip(), ours), eval(text.strip(), theirs), tolerance)
                    count, found = count + 1, found + bool(said)
                    print(f"{text.strip()}: {said}\n" * bool(said), end="")
            for text in DERIVATIVES.replace("\n", "|").split("|"):
                if text.strip():
                    f, g = (eval(f"lambda x: {text}", scope) for scope in (ours, theirs))
                    said = differs(fnx.jvp(f, (ours["a"],), (ours["b"],)),
                                   jax.jvp(g, (theirs["a"],), (theirs["b"],)), tolerance)
                    count, found = count + 1, found + bool(said)
                    print(f"jvp of {text.strip()}: {said}\n" * bool(said), end="")
    print(f"{found} of {count} differ")
    return found > 0


if __name__ == "__main__":
    sys.exit(main())
