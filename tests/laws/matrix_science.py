"""Cases of the transform matrix, continued: complex numbers, linear algebra, Fourier transforms and
what follows from them.

A complex operand is made of two real ones, and a complex result is its parts, so slopes are those
of real functions. Eigenvectors and singular vectors have phases of their own: results are functions
of the matrix that do not depend on those.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import fnx
import fnx.lax.linalg as ll
import fnx.numpy as jnp
import fnx.scipy.fft as sf
import fnx.scipy.linalg as sl
import fnx.scipy.sparse.linalg as iterative
from fnx import lax
from fnx.core.support.errors import FnxError
from fnx.experimental import sparse
from fnx.experimental.sparse import linalg as direct
from fnx.scipy import signal, special
from fnx.scipy.interpolate import RegularGridInterpolator
from fnx.scipy.ndimage import map_coordinates
from fnx.scipy.spatial.transform import Rotation, Slerp
from fnx.scipy.stats import gaussian_kde
from tests.laws.matrix_cases import Case, floats, generic, values

la, ft = jnp.linalg, jnp.fft
# Operands by letter; a capital is complex.
SHAPES = {"a": (3, 3), "b": (3, 3), "t": (4, 3), "w": (2, 3), "v": (3,), "u": (8,), "x": (2, 3, 4),
          "s": (2, 2), "q": (4,)}
Table = dict[str, tuple[Callable[..., Any], str]]


def operand(letter: str, place: int) -> Any:
    """Return distinct numbers; square matrices have separate eigenvalues and are regular."""
    shape = SHAPES[letter.lower()]
    x = generic(shape, place)
    if letter.isupper() and place % 2:  # the imaginary part
        return x - 0.5
    square = len(shape) == 2 and shape[0] == shape[1]
    return x + np.diag(0.8 + 1.1 * np.arange(shape[0])) if square else x


def _case(name: str, f: Callable[..., Any], letters: str, longest: int) -> Case:
    def of_parts(xs: Any) -> Any:
        rest = iter(xs)
        given = [lax.complex(next(rest), next(rest)) if c.isupper() else next(rest)
                 for c in letters]
        return floats(f(*given))

    xs = [operand(c, 2 * k + i) for k, c in enumerate(letters) for i in range(1 + c.isupper())]
    return Case(name, of_parts, tuple(xs), longest)


def hermitian(a: Any) -> Any:
    return a + jnp.conj(a.mT)


def positive(a: Any) -> Any:
    return a @ jnp.conj(a.mT) + jnp.eye(len(a))


def _of_vectors(w: Any, v: Any, inverse: Any) -> Any:
    """Return a function of eigenvectors that does not depend on their phases."""
    return w, (v * jnp.sin(w)) @ inverse


def _of_singular(u: Any, s: Any, vh: Any) -> Any:
    return s, (u * jnp.sin(s)) @ vh


def _eigh(a: Any) -> Any:
    w, v = la.eigh(hermitian(a))
    return _of_vectors(w, v, jnp.conj(v.mT))


def _eig(a: Any) -> Any:
    w, v = la.eig(a)
    return _of_vectors(w, v, la.inv(v))


BOTH: Table = {  # of real and of complex operands
    "numpy.linalg.cholesky": (lambda a: la.cholesky(positive(a)), "a"),
    "numpy.linalg.cond": (la.cond, "a"),
    "numpy.linalg.det": (la.det, "a"),
    "numpy.linalg.eig": (_eig, "a"),
    "numpy.linalg.eigh": (_eigh, "a"),
    "numpy.linalg.eigvals": (lambda a: la.eigvals(a), "a"),
    "numpy.linalg.eigvalsh": (lambda a: la.eigvalsh(hermitian(a)), "a"),
    "numpy.linalg.inv": (la.inv, "a"),
    "numpy.linalg.lstsq": (lambda t, b: la.lstsq(t, jnp.concatenate([b, b[:1]]))[:2], "tb"),
    "numpy.linalg.matrix_power": (lambda a: la.matrix_power(a, -2), "a"),
    "numpy.linalg.nuclear": (lambda t: la.norm(t, "nuc"), "t"),
    "numpy.linalg.norm_2": (lambda t: la.norm(t, 2), "t"),
    "numpy.linalg.pinv": (la.pinv, "t"),
    "numpy.linalg.qr": (la.qr, "a"),
    "numpy.linalg.qr_tall": (la.qr, "t"),
    "numpy.linalg.slogdet": (la.slogdet, "a"),
    "numpy.linalg.solve": (la.solve, "ab"),
    "numpy.linalg.svd": (lambda t: _of_singular(*la.svd(t, full_matrices=False)), "t"),
    "numpy.linalg.svd_wide": (lambda w: _of_singular(*la.svd(w, full_matrices=False)), "w"),
    "numpy.linalg.svdvals": (la.svdvals, "w"),
    "numpy.linalg.tensorinv": (lambda a: la.tensorinv(a[:, None], 1), "a"),
    "numpy.linalg.tensorsolve": (lambda a, v: la.tensorsolve(a[:, None], v[:, None]), "av"),
    "numpy.linalg.multi_dot": (lambda t, a, v: la.multi_dot([t, a, v]), "tav"),
    "lax.linalg.cholesky": (lambda a: ll.cholesky(positive(a), symmetrize_input=False), "a"),
    "lax.linalg.lu": (lambda a: ll.lu(a)[0], "a"),
    "lax.linalg.lu_tall": (lambda t: ll.lu(t)[0], "t"),
    "lax.linalg.triangular_solve": (lambda a, b: ll.triangular_solve(
        a, b, left_side=True, lower=True), "ab"),
    "lax.linalg.triangular_solve_right": (lambda a, b: ll.triangular_solve(
        a, b, transpose_a=True, conjugate_a=True, unit_diagonal=True), "ab"),
    "lax.linalg.tridiagonal_solve": (lambda v, u: ll.tridiagonal_solve(
        v, v + 4, v * v, u[:6].reshape(3, 2)), "vu"),
    "scipy.linalg.block_diag": (lambda w, v: sl.block_diag(w, v * v), "wv"),
    "scipy.linalg.cho_solve": (lambda a, b: sl.cho_solve(sl.cho_factor(positive(a)), b), "ab"),
    "scipy.linalg.circulant": (sl.circulant, "v"),
    "scipy.linalg.companion": (sl.companion, "v"),
    "scipy.linalg.convolution_matrix": (lambda v: sl.convolution_matrix(v, 4), "v"),
    "scipy.linalg.expm": (sl.expm, "a"),
    "scipy.linalg.expm_frechet": (sl.expm_frechet, "ab"),
    "scipy.linalg.hankel": (lambda v: sl.hankel(v, v * v), "v"),
    "scipy.linalg.leslie": (lambda v, u: sl.leslie(v, u[:2]), "vu"),
    "scipy.linalg.lu": (lambda a: sl.lu(a)[1:], "a"),
    "scipy.linalg.lu_solve": (lambda a, b: sl.lu_solve(sl.lu_factor(a), b, trans=1), "ab"),
    "scipy.linalg.polar": (sl.polar, "a"),
    "scipy.linalg.solve": (lambda a, b: sl.solve(positive(a), b, assume_a="pos"), "ab"),
    "scipy.linalg.solve_sylvester": (sl.solve_sylvester, "aba"),
    "scipy.linalg.solve_triangular": (lambda a, b: sl.solve_triangular(a, b, trans=1), "ab"),
    "scipy.linalg.sqrtm": (lambda a: sl.sqrtm(positive(a)), "a"),
    "scipy.linalg.toeplitz": (lambda v: sl.toeplitz(v, v * v), "v"),
    "numpy.fft.fft": (ft.fft, "w"), "numpy.fft.ifft": (lambda u: ft.ifft(u, 5), "u"),
    "numpy.fft.fft_ortho": (lambda x: ft.fft(x, 6, axis=1, norm="ortho"), "x"),
    "numpy.fft.irfft": (ft.irfft, "u"), "numpy.fft.hfft": (lambda w: ft.hfft(w, 5), "w"),
    "numpy.fft.fft2": (ft.fft2, "x"), "numpy.fft.ifft2": (ft.ifft2, "w"),
    "numpy.fft.irfft2": (ft.irfft2, "w"), "numpy.fft.fftn": (ft.fftn, "w"),
    "numpy.fft.ifftn": (lambda x: ft.ifftn(x, axes=(0, 2), norm="forward"), "x"),
    "numpy.fft.irfftn": (lambda x: ft.irfftn(x, (3, 5), (1, 2)), "x"),
    "numpy.fft.fftshift": (lambda w: ft.fftshift(w * w), "w"),
    "numpy.fft.ifftshift": (lambda w: ft.ifftshift(w * w, 1), "w"),
    "scipy.fft.dct": (sf.dct, "u"), "scipy.fft.idct": (lambda w: sf.idct(w, norm="ortho"), "w"),
    "scipy.fft.dctn": (sf.dctn, "w"), "scipy.fft.idctn": (sf.idctn, "w"),
    "scipy.signal.convolve": (lambda u, v: signal.convolve(u, v, method="fft"), "uv"),
    "scipy.signal.convolve2d": (lambda a, s: signal.convolve2d(a, s, mode="valid"), "as"),
    "scipy.signal.correlate": (lambda u, v: signal.correlate(u, v, mode="same"), "uv"),
    "scipy.signal.fftconvolve": (lambda x, w: signal.fftconvolve(x[0], w, mode="same"), "xw"),
    "scipy.signal.stft": (lambda u: signal.stft(u, nperseg=4)[2], "u"),
    "scipy.signal.welch": (lambda u: signal.welch(u, nperseg=4)[1], "u"),
    "scipy.signal.csd": (lambda u, v: signal.csd(u, v, nperseg=3)[1], "uv"),
    "scipy.ndimage.map_coordinates": (lambda t: map_coordinates(
        t, [jnp.asarray([0.3, 1.6]), jnp.asarray([1.2, 0.4])], 1), "t"),
    "scipy.sparse.linalg.cg": (lambda a, v: iterative.cg(positive(a), v, tol=1e-14)[0], "av"),
    "scipy.sparse.linalg.bicgstab": (lambda a, v: iterative.bicgstab(a, v, tol=1e-14)[0], "av"),
    "scipy.sparse.linalg.gmres": (lambda a, v: iterative.gmres(a, v, tol=1e-14)[0], "av"),
    "lax.ragged_dot": (lambda a, x: lax.ragged_dot(
        a, x[:, :, :2], jnp.asarray([2, 1], "int32")), "ax"),
    "lax.scan": (lambda v, t: lax.scan(lambda c, r: (c * r + v, c * c), v, t), "vt"),
    "lax.scatter": (lambda u, v: (u.at[jnp.asarray([1, 3, 1])].add(v * v),
                                  u.at[jnp.asarray([1, 3, 1])].set(v)), "uv"),
}
"""Functions of either, each with the letters of its operands."""


def _bcoo(data: Any, rows: int, columns: int) -> Any:
    n = len(data)
    at = np.stack([np.arange(n) * 5 % rows, (np.arange(n) * 7 + 1) % columns], 1)
    return sparse.BCOO((data, jnp.asarray(at)), shape=(rows, columns))


SPARSE: Table = {  # of real and of complex numbers
    "experimental.sparse.matvec": (lambda u, v: _bcoo(u, 4, 3) @ v, "uv"),
    "experimental.sparse.matmat": (lambda u, t: _bcoo(u, 3, 4) @ t, "ut"),
    "experimental.sparse.spdot": (lambda u, q: (_bcoo(u, 3, 4) @ _bcoo(q, 4, 3)).todense(), "uq"),
    "experimental.sparse.todense": (lambda u: _bcoo(u * u, 4, 3).T.todense(), "u"),
    "experimental.sparse.sum": (lambda u: _bcoo(u * u, 4, 3).sum(0).todense(), "u"),
    "experimental.sparse.multiply": (lambda u, v: (_bcoo(u, 4, 3) * v).todense(), "uv"),
    "experimental.sparse.sampled": (lambda a, b: sparse.bcoo_dot_general_sampled(
        a, b, jnp.asarray([[0, 1], [2, 2]]), dimension_numbers=(((1,), (0,)), ((), ()))), "ab"),
    "experimental.sparse.sparsify": (lambda u, v: sparse.sparsify(
        lambda m, x: jnp.sin(m @ x))(_bcoo(u, 4, 3), v), "uv"),
    "experimental.sparse.bcsr": (lambda a, v: sparse.BCSR.fromdense(a, nse=9) @ v, "av"),
    "experimental.sparse.linalg.spsolve": (lambda u, v: direct.spsolve(
        jnp.concatenate([u[:2], u[2:5] + 3]), jnp.asarray([1, 2, 0, 1, 2]),
        jnp.asarray([0, 2, 4, 5]), v), "uv"),
}


def _rotation(q: Any) -> Any:
    return Rotation.from_quat(q)


def _slerp(q: Any, v: Any) -> Any:
    both = Rotation.from_rotvec(jnp.stack([v, q[:3] * 2]))
    return Slerp.init(jnp.asarray([0.0, 1.0]), both)(jnp.asarray([0.3, 0.8])).as_rotvec()


REAL: Table = {
    "numpy.fft.rfft": (ft.rfft, "w"), "numpy.fft.ihfft": (ft.ihfft, "u"),
    "numpy.fft.rfft2": (ft.rfft2, "w"), "numpy.fft.rfftn": (ft.rfftn, "x"),
    "lax.fft": (lambda x: lax.fft(x, "rfft", (4,)), "x"),
    "lax.linalg.cholesky_update": (lambda a, v: ll.cholesky_update(
        la.cholesky(positive(a)).mT, v), "av"),
    "lax.linalg.symmetric_product": (lambda t, q: ll.symmetric_product(
        t, jnp.outer(q, q), alpha=2.0, beta=0.5, symmetrize_output=True), "tq"),
    "scipy.linalg.eigh_tridiagonal": (lambda v, q: sl.eigh_tridiagonal(
        v * 9, q[:2], eigvals_only=True), "vq"),
    "scipy.linalg.fiedler": (sl.fiedler, "v"),
    "scipy.linalg.fiedler_companion": (sl.fiedler_companion, "q"),
    "scipy.interpolate.RegularGridInterpolator": (lambda t, v: RegularGridInterpolator(
        (jnp.arange(4.0), jnp.arange(3.0)), t)(jnp.stack([v[:2] * 3, v[1:]], 1)), "tv"),
    "scipy.spatial.transform.as_matrix": (lambda q: _rotation(q).as_matrix(), "q"),
    "scipy.spatial.transform.as_rotvec": (lambda q: _rotation(q).as_rotvec(), "q"),
    "scipy.spatial.transform.as_euler": (lambda q: _rotation(q).as_euler("xyz"), "q"),
    "scipy.spatial.transform.as_mrp": (lambda q: _rotation(q).as_mrp(), "q"),
    "scipy.spatial.transform.apply": (lambda q, v: _rotation(q).apply(v), "qv"),
    "scipy.spatial.transform.inv": (lambda q, v: (
        _rotation(q).inv() * Rotation.from_rotvec(v)).as_quat(), "qv"),
    "scipy.spatial.transform.magnitude": (lambda q: _rotation(q).magnitude(), "q"),
    "scipy.spatial.transform.from_matrix": (lambda v: Rotation.from_matrix(
        Rotation.from_rotvec(v).as_matrix()).as_quat(), "v"),
    "scipy.spatial.transform.Slerp": (_slerp, "qv"),
    "scipy.stats.gaussian_kde": (lambda u, v: (
        gaussian_kde(u).evaluate(v), gaussian_kde(u).logpdf(v)), "uv"),
    "scipy.special.sph_harm_y": (lambda v, q: special.sph_harm_y(
        jnp.asarray([2, 1, 3]), jnp.asarray([1, 0, -2]), v, q[:3]), "vq"),
    "random.multivariate_normal": (lambda a, v: fnx.random.multivariate_normal(
        fnx.random.key(0), v, positive(a), (2,), "float64", method="cholesky"), "av"),
    "numpy.polyfit": (lambda u: jnp.polyfit(jnp.arange(8.0), u, 2), "u"),
    "numpy.roots": (lambda v: jnp.roots(v - jnp.asarray([0.0, 2.0, 0.0]), strip_zeros=False), "v"),
}
COMPLEX: Table = {
    "scipy.special.wofz": (special.wofz, "W"),
    "numpy.roots": (lambda v: jnp.roots(v, strip_zeros=False), "Q"),
}


def science() -> list[Case]:
    """Return the cases of the tables above."""
    both = BOTH | SPARSE
    return [*[_case(f"fnx.{name}", f, letters, 2) for name, (f, letters) in (both | REAL).items()],
            *[_case(f"fnx.{name} complex", f, letters.upper(), 2)
              for name, (f, letters) in both.items()],
            *[_case(f"fnx.{name} complex", f, letters, 2) for name, (f, letters) in
              COMPLEX.items()]]


def complex_functions(cases: Sequence[Case]) -> list[Case]:
    """Return the public functions of one to three arrays that take complex numbers."""
    found = []
    for name, f, xs, _ in cases:
        def of_parts(parts: Any, f: Callable[..., Any] = f) -> Any:
            return f(tuple([lax.complex(a, b) for a, b in zip(parts[::2], parts[1::2])]))

        points = tuple([y for k, x in enumerate(xs) for y in (
            x, generic(np.shape(x), k + 7) - 0.4)])
        if len(xs) > 3 or "linalg" in name:  # linalg: operands that are regular, above
            continue
        try:
            outs = values(of_parts, points)
        except (FnxError, ValueError, TypeError):
            continue
        if outs and all(y.dtype == np.float64 and np.isfinite(y).all() for y in outs):
            found.append(Case(f"{name} complex", of_parts, points, 2))
    return found
