"""Linear algebra, transforms and the rest of SciPy as users call them: families of expressions.

The operands are named by dtype and role, as ``f32_square`` or ``c64_signal`` (``operands`` makes
them). ``{t}`` stands for the real and the complex dtype of a mode, ``{r}`` for the real one.
``scripts/compare_jax.py science`` evaluates all of them with JAX and fnx, with gradients.
"""

from __future__ import annotations

import importlib
import re
from typing import Any

import numpy as np

DTYPES = {"f32": "float32", "f64": "float64", "c64": "complex64", "c128": "complex128"}
MODULES = ("linalg", "fft", "signal", "ndimage", "interpolate", "integrate", "special", "stats",
           "cluster.vq", "spatial.transform", "sparse.linalg", "optimize")
SHAPES: dict[str, tuple[int, ...]] = {
    "square": (4, 4), "other": (4, 4), "tall": (6, 4), "broad": (3, 5), "columns": (4, 2),
    "long": (6, 2), "vector": (4,), "weights": (4,), "signal": (24,), "window": (5,),
    "image": (5, 6), "kernel": (3, 3), "stack": (3, 4, 4), "cube": (2, 3, 4)}


def _drawn(role: str, dtype: str) -> Any:
    shape, rng = SHAPES[role], np.random.default_rng(list(SHAPES).index(role))
    x = rng.uniform(-1, 1, shape).round(3) + 0.0
    if "complex" in dtype:
        x = x + 1j * rng.uniform(-1, 1, shape).round(3)
    square = len(shape) > 1 and shape[-1] == shape[-2] and role != "kernel"
    return x + np.diag(1.5 + 1.2 * np.arange(shape[-1])) if square else x


def operands(jnp: Any, x64: bool) -> dict[str, Any]:
    """Return all operands by name."""
    found = {}
    for short, dtype in DTYPES.items():
        if x64 or short in ("f32", "c64"):
            drawn = {role: _drawn(role, dtype) for role in SHAPES}
            drawn["positive"] = drawn["square"] @ np.conj(drawn["square"].T) + np.eye(4)
            drawn["hermitian"] = drawn["other"] + np.conj(drawn["other"].T)
            drawn["few"] = np.where(np.arange(16).reshape(4, 4) % 3 == 1, drawn["square"], 0)
            found |= {f"{short}_{role}": jnp.asarray(x, dtype) for role, x in drawn.items()}
    return found


def modules(package: str) -> dict[str, Any]:
    """Return the modules that expressions name, of JAX or fnx."""
    for name in MODULES:
        importlib.import_module(f"{package}.scipy.{name}")
    for name in ("lax.linalg", "experimental.sparse.linalg"):
        importlib.import_module(f"{package}.{name}")
    return {"jsp": importlib.import_module(f"{package}.scipy"),
            "sparse": importlib.import_module(f"{package}.experimental.sparse"),
            "odeint": importlib.import_module(f"{package}.experimental.ode").odeint}


def _calls(module: str, text: str) -> list[str]:
    """Return the calls of a text, each of a name in the module."""
    calls = " ".join(text.split()).split(" | ")
    return [f"{module}.{call}" if call[0].isalpha() else call for call in calls]


_NUMPY_LINALG = _calls("jnp.linalg", """
cholesky({t}_positive) | cholesky({t}_positive, upper=True) | cholesky({t}_square) |
cholesky({t}_square, symmetrize_input=False) | cholesky(-{t}_positive) | cond({t}_square) |
cond({t}_square, p=1) | cond({t}_tall, p=-2) | cond({t}_stack, 'fro') | cond({t}_square, p=np.inf)
| det({t}_square) | det({t}_stack) | det({t}_square[:3, :3]) | det({t}_square[:2, :2]) |
eig({t}_square) | eigh({t}_hermitian) | eigh({t}_hermitian, UPLO='U') | eigh({t}_hermitian,
symmetrize_input=False) | eigh({t}_stack) | eigvals({t}_square) | eigvalsh({t}_hermitian, 'U') |
inv({t}_square) | inv({t}_stack) | inv(a={t}_square) | lstsq({t}_tall, {t}_long) | lstsq({t}_tall,
{t}_long[:, 0], rcond=None, numpy_resid=True) | lstsq({t}_broad, {t}_broad[:, 1], rcond=1e-3) |
matrix_norm({t}_stack, ord='nuc') | matrix_norm({t}_stack, ord=-1, keepdims=True) |
matrix_power({t}_square, 3) | matrix_power({t}_square, n=-2) | matrix_power({t}_stack, 0) |
matrix_rank({t}_tall) | matrix_rank({t}_tall, rtol=0.4) | matrix_transpose({t}_stack) |
multi_dot([{t}_vector, {t}_square, {t}_columns]) | norm({t}_vector) | norm({t}_vector, 1) |
norm({t}_vector, ord=-np.inf) | norm({t}_vector, 3) | norm({t}_square, 'nuc') | norm({t}_square,
-2) | norm({t}_stack, ord='fro', axis=(1, 2)) | norm({t}_cube, axis=(0, 2), keepdims=True,
ord=np.inf) | norm({t}_cube) | norm({t}_cube, axis=1) | outer({t}_vector, {t}_weights) |
pinv({t}_tall) | pinv({t}_broad, rtol=0.2) | pinv({t}_hermitian, hermitian=True) | qr({t}_tall) |
qr({t}_tall, mode='complete') | qr({t}_tall, 'r') | qr({t}_broad) | qr({t}_stack) |
slogdet({t}_square) | slogdet({t}_stack) | slogdet(-{t}_square, method='qr') | solve({t}_square,
{t}_vector) | solve({t}_square, {t}_columns) | solve({t}_stack, {t}_columns) | solve({t}_stack,
{t}_stack[:, 0]) | solve({t}_stack, {t}_stack[:, 0][..., None]) | svd({t}_tall,
full_matrices=False) | svd({t}_square) | svd({t}_broad, compute_uv=False) | svd({t}_hermitian,
hermitian=True) | svd({t}_tall, False, subset_by_index=(0, 2)) | svdvals({t}_stack) |
tensordot({t}_cube, {t}_cube, axes=((0, 1), (0, 1))) | tensorinv({t}_square.reshape(2, 2, 4), 2) |
tensorsolve({t}_square.reshape(2, 2, 4), {t}_columns[:2]) | tensorsolve({t}_square.reshape(2, 2, 2,
2), {t}_columns[:2], axes=None) | trace({t}_stack, offset=1) | vecdot({t}_tall, {t}_tall * 2) |
vector_norm({t}_cube, axis=(0, 2), ord=4) | cross({t}_broad[:, :3], {t}_broad[:, 2:]) |
diagonal({t}_stack, offset=-1) | inv(np.array([[1, 2], [3, 5]])) | det(np.array([[1, 2], [3, 4]]))
| det([[1.0, 2.0], [3.0, 4.0]]) | solve([[3, 1], [1, 2]], [9, 8]) | solve(np.eye(2), np.ones(2)) |
norm([3.0, 4.0]) | norm(np.array([3, 4])) | norm(jnp.arange(4), ord=3) | eigvalsh(np.array([[2, 1],
[1, 2]])) | inv(jnp.asarray([[True, False], [True, True]])) | inv({t}_square.astype('bfloat16')) |
norm({t}_vector.astype('float16')) | det({t}_vector) | solve({t}_square, {t}_broad) |
matrix_power({t}_tall, 2) | cholesky({t}_tall) | eigh({t}_hermitian, UPLO='X') | norm({t}_square,
'what') | qr({t}_tall, mode='full') | inv(np.zeros((0, 0))) | det(np.zeros((0, 0))) |
det(np.zeros((0, 3, 3))) | solve(np.zeros((2, 2)), np.ones(2)) | inv(np.ones((2, 2))) |
slogdet(np.zeros((2, 2))) | svd(np.zeros((0, 3))) | qr(np.zeros((3, 0))) | eigh(np.zeros((2, 0,
0))) | norm(np.zeros(0)) | pinv(np.zeros((3, 0))) | matrix_rank(np.zeros((3, 2))) | inv(np.full((2,
2), np.nan)) | eigvalsh(np.full((2, 2), np.nan)) | lstsq(np.zeros((3, 0)), np.zeros(3))
""")
_LAX_LINALG = _calls("lax.linalg", """
cholesky({t}_positive, symmetrize_input=False) |
cholesky_update(jnp.linalg.cholesky({r}_positive).T, {r}_vector) | eig({t}_square) |
eig({t}_square, compute_right_eigenvectors=False) | eigh({t}_hermitian) | eigh({t}_hermitian,
lower=False, sort_eigenvalues=True) | eigh({t}_hermitian, subset_by_index=(1, 3)) |
hessenberg({t}_square) | householder_product(*lax.linalg.hessenberg({t}_square)) | lu({t}_square) |
lu({t}_tall) | lu({t}_stack) | lu_pivots_to_permutation(np.array([1, 1, 3], np.int32), 4) |
qdwh({t}_square)[:2] | qr({t}_tall) | qr({t}_tall, full_matrices=False) | qr({t}_square,
pivoting=True) | schur({t}_square) | svd({t}_tall, full_matrices=False) | svd({t}_broad,
compute_uv=False) | symmetric_product({r}_tall, {r}_tall @ {r}_tall.T, alpha=2.0, beta=0.5) |
triangular_solve({t}_square, {t}_columns, left_side=True, lower=True) |
triangular_solve({t}_square, {t}_columns.T, unit_diagonal=True) | triangular_solve({t}_stack,
{t}_stack, left_side=True, transpose_a=True, conjugate_a=True) | tridiagonal({t}_hermitian) |
tridiagonal_solve({t}_vector, {t}_vector + 4, {t}_weights, {t}_columns) |
tridiagonal_solve({t}_vector, {t}_vector + 4, {t}_weights, {t}_columns, perturb_singular=True)
""")
_SCIPY_LINALG = _calls("jsp.linalg", """
block_diag({t}_columns, {t}_vector) | block_diag(1, [2, 3], {r}_columns) | block_diag() |
cho_factor({t}_positive, lower=True)[0] | cho_solve(jsp.linalg.cho_factor({t}_positive),
{t}_columns) | cho_solve((jsp.linalg.cholesky({t}_positive, lower=True), True), {t}_vector) |
cholesky({t}_positive) | cholesky({t}_positive, lower=True) | circulant({t}_vector) |
companion({t}_vector) | convolution_matrix({t}_vector, 6, mode='same') | det({t}_square) | dft(5) |
dft(4, scale='sqrtn') | eigh({t}_hermitian) | eigh({t}_hermitian, eigvals_only=True) |
eigh({t}_hermitian, lower=False) | eigh({t}_hermitian, {t}_positive) | eigh({t}_hermitian, b=None,
type=1) | eigh_tridiagonal({r}_vector * 5, {r}_weights[:3], eigvals_only=True) |
eigh_tridiagonal({r}_vector * 5, {r}_weights[:3], eigvals_only=True, select='i', select_range=(1,
2)) | eigh_tridiagonal({r}_vector * 5, {r}_weights[:3], eigvals_only=True, select='v',
select_range=(-2.0, 3.0)) | expm({t}_square) | expm({t}_stack * 0.2) | expm(jnp.triu({t}_square),
upper_triangular=True) | expm({t}_square * 40, max_squarings=4) | expm_frechet({t}_square,
{t}_other) | expm_frechet({t}_square, {t}_other, compute_expm=False) | fiedler({r}_vector) |
fiedler_companion({r}_vector) | funm({t}_square, jnp.exp) | funm({t}_square, jnp.sin, disp=False) |
hadamard(4) | hankel({t}_vector) | hankel([1, 2, 3], [3, 7, 7]) | helmert(4) | helmert(3,
full=True) | hessenberg({t}_square) | hessenberg({t}_square, calc_q=True) | hilbert(4) |
inv({t}_square) | invhilbert(4) | invpascal(4) | leslie({t}_vector, {t}_weights[:3]) |
lu({t}_square) | lu({t}_tall, permute_l=True) | lu_factor({t}_square) |
lu_solve(jsp.linalg.lu_factor({t}_square), {t}_columns) |
lu_solve(jsp.linalg.lu_factor({t}_square), {t}_vector, trans=2) | pascal(4) | pascal(4,
kind='lower') | polar({t}_tall) | polar({t}_square, side='left') | polar({t}_square, method='svd')
| qr({t}_tall) | qr({t}_tall, mode='economic') | qr({t}_tall, mode='r') | qr({t}_square,
pivoting=True) | qr_multiply({t}_square, {t}_columns, mode='left') |
rsf2csf(*jsp.linalg.schur({r}_square)) | schur({t}_square) | schur({t}_square, output='complex') |
solve({t}_square, {t}_columns) | solve({t}_positive, {t}_columns, assume_a='pos') |
solve({t}_positive, {t}_vector, lower=True, assume_a='pos') | solve({t}_hermitian, {t}_vector,
assume_a='her') | solve_sylvester({t}_square, {t}_positive, {t}_other) |
solve_triangular({t}_square, {t}_columns) | solve_triangular({t}_square, {t}_vector, lower=True) |
solve_triangular({t}_square, {t}_vector, trans='T', unit_diagonal=True) |
solve_triangular({t}_square, {t}_vector, trans='C') | sqrtm({t}_positive) | svd({t}_tall,
full_matrices=False) | svd({t}_tall, compute_uv=False) | toeplitz({t}_vector) |
toeplitz({t}_vector, {t}_weights) | toeplitz([1, 2, 3], [1, 4, 5]) | toeplitz(2.0)
""")
_FFT = [*[f"jnp.fft.{name}({{t}}_{rest})" for name in ("fft", "ifft", "hfft", "irfft")
          for rest in ("signal", "cube, axis=1", "image, n=4", "window, norm='ortho'", "window, 8",
                       "signal, None, 0, 'forward'", "cube, axis=-3", "cube, 0", "cube, axis=5")],
        *[f"jnp.fft.{name}({{r}}_{rest})" for name in ("rfft", "ihfft")
          for rest in ("signal", "cube, axis=1", "image, n=4", "window, 8, norm='ortho'")],
        *[f"jnp.fft.{name}({{t}}_{rest})" for name in ("fftn", "ifftn", "irfftn", "fft2", "ifft2",
                                                      "irfft2")
          for rest in ("cube", "cube, s=(4, 5)", "cube, axes=(0, 1), norm='ortho'", "image")],
        *[f"jnp.fft.{name}({{r}}_{rest})" for name in ("rfftn", "rfft2")
          for rest in ("cube", "cube, s=(4, 5)", "cube, axes=(0, 1), norm='ortho'", "image")],
        *[f"jsp.fft.{name}({{r}}_{rest})" for name in ("dct", "idct")
          for rest in ("signal", "cube, axis=1", "image, n=4", "window, norm='ortho'",
                       "window, type=2, norm='ortho'", "window, type=3")],
        *[f"jsp.fft.{name}({{r}}_{rest})" for name in ("dctn", "idctn")
          for rest in ("cube", "cube, s=(4, 5), axes=(1, 2)", "image, norm='ortho'")],
        *_calls("jnp.fft", """
fftfreq(5) | fftfreq(n=8, d=0.1) | fftfreq(6, 0.5, dtype='float16') | fftfreq(4, {r}_vector[0]) |
rfftfreq(5, d=2) | rfftfreq(8) | fftfreq(0) | fftshift({t}_image) | fftshift({t}_image, axes=1) |
fftshift({t}_cube, axes=(0, -1)) | ifftshift({t}_window) | ifftshift([1, 2, 3, 4, 5]) | fft([1, 2,
3, 4]) | fft(np.arange(5)) | fft(jnp.arange(6).astype('uint8')) | fft([True, False, True]) |
fft(2.0) | fft([]) | rfft(np.arange(6, dtype='float16')) | rfft({c}_vector) | ifft([1j, 2.0, 3.0])
| irfft([1, 2, 3], n=5) | fft({t}_window, norm='other') | fft({t}_window, n=2.5) | fftn({t}_cube,
s=(2, 2), axes=(0,))
"""),
        "lax.fft({t}_cube, 'fft', (4,))", "lax.fft({c}_cube, 'ifft', (3, 4))",
        "lax.fft({r}_cube, lax.FftType.RFFT, (3, 4))",
        "lax.fft({c}_cube, fft_type=2, fft_lengths=(6,))",
        "lax.fft({c}_image, lax.FftType.IRFFT, (10,))",
        "jax.jit(lambda x: jnp.fft.ifft(jnp.fft.fft(x) * jnp.fft.fft(x[::-1])).real)({t}_signal)",
        "vmap(jnp.fft.rfft)({r}_image)"]
_SIGNAL = [*[f"jsp.signal.{name}({{t}}_signal, {{t}}_window{rest})" for name in (
                "convolve", "correlate", "fftconvolve")
             for rest in ("", ", mode='same'", ", 'valid'")],
           *[f"jsp.signal.{name}({{t}}_image, {{t}}_kernel{rest})" for name in (
                "convolve2d", "correlate2d", "fftconvolve", "convolve")
             for rest in ("", ", mode='same'", ", mode='valid'")],
           *_calls("jsp.signal", """
convolve({t}_signal, {t}_window, method='direct') | convolve({t}_signal, {t}_window, method='fft')
| convolve([1, 2, 3], [0, 1, 0.5]) | correlate([1, 2, 3], np.array([0, 1, 2])) |
fftconvolve({t}_cube, {t}_cube, axes=1) | convolve2d({t}_image, {t}_kernel, mode='same',
boundary='fill', fillvalue=0) | detrend({t}_signal) | detrend({r}_cube, axis=1, type='constant') |
detrend({r}_signal, bp=np.array([8])) | detrend({r}_signal, axis=0, type='linear', bp=0) |
stft({t}_signal, nperseg=8) | stft({r}_signal, fs=2.0, window='hamming', nperseg=6, noverlap=4) |
stft({r}_signal, nperseg=8, boundary=None, padded=False) | stft({r}_image, nperseg=4, axis=0,
detrend='constant') | istft(jsp.signal.stft({r}_signal, nperseg=8)[2], nperseg=8) |
istft(jsp.signal.stft({c}_signal, nperseg=8)[2], nperseg=8, input_onesided=False) |
welch({t}_signal, nperseg=8) | welch({r}_signal, 10.0, 'hann', 8, noverlap=2, scaling='spectrum') |
welch({r}_image, fs=4, nperseg=4, average='median') | welch({r}_signal) | csd({t}_signal,
{t}_signal[::-1], nperseg=8) | csd({r}_signal, {r}_signal * 2, fs=3.0, nperseg=6, detrend='linear')
| welch({r}_signal, nperseg=8, window=np.ones(8)) | welch({r}_signal, nperseg=8, nfft=16,
return_onesided=False) | convolve({t}_signal, {t}_image) | convolve({t}_signal, {t}_window,
mode='none')
""")]
_SPECIAL = [*[f"jsp.special.{name}({{r}}_vector{rest})" for name, rest in (
                ("wofz", " + 1j"), ("loggamma", " + 1.5j"), ("gamma", " + 0.5j"),
                ("erfcx", " * 3"), ("expi", " * 9"), ("exp1", " ** 2"), ("dawsn", ""),
                ("fresnel", ""), ("sici", ""), ("owens_t", ", 0.5"), ("log_softmax", ""),
                ("softmax", ", axis=0"), ("multigammaln", " + 3, 2"), ("i0", ""), ("i1e", ""),
                ("rel_entr", " ** 2, 0.5"), ("hyp1f1", " ** 2, 1.5, 0.5"), ("spence", " ** 2"),
                ("hyp2f1", " ** 2, 1.5, 2.5, 0.3"), ("poch", " + 2, 3"), ("bessel_jn", ", v=2"),
                ("factorial", " + 3"), ("comb", " + 4, 2"), ("zeta", " + 3, 1.0"),
                ("logsumexp", ", b=2.0, return_sign=True"), ("beta", " ** 2 + 1, 2"))],
            *_calls("jsp.special", """
loggamma({c}_signal * 6) | gamma({c}_vector * 3) | wofz({c}_signal * 4) | expit({c}_vector) |
logsumexp({c}_image, axis=1) | log_ndtr({c}_vector) | xlogy({c}_vector, {c}_weights) |
xlog1py({c}_vector, {c}_weights) | sph_harm_y(2, 1, {r}_vector[0], 0.3) | sph_harm_y(np.array([2,
3]), np.array([1, -2]), {r}_vector[:2], {r}_weights[:2]) | sph_harm_y(np.array([1]), np.array([0]),
{r}_vector[:1], {r}_vector[1:2], n_max=3) | bernoulli(6) | expn(2, {r}_vector ** 2) |
gammainc(2, 3.0) | gamma(5) |
erf(1) | comb(5, 2) | factorial([1, 2, 3])
""")]
_REST = [*_calls("jsp", """
ndimage.map_coordinates({r}_image, [[0.5, 2.2], [1.0, 3.7]], order=1) |
ndimage.map_coordinates({r}_image, {r}_image[:2] * 3 + 1, 1, mode='nearest') |
ndimage.map_coordinates({r}_image, [np.array([-1.0, 6.5]), np.array([2.0, 3.0])], order=0) |
ndimage.map_coordinates({r}_image, [{r}_vector * 9, {r}_weights * 9], order=1, mode='wrap') |
ndimage.map_coordinates({r}_image, [{r}_vector * 9, {r}_weights * 9], order=1, mode='mirror') |
ndimage.map_coordinates({r}_image, [{r}_vector * 9, {r}_weights * 9], order=1, mode='reflect') |
ndimage.map_coordinates({c}_image, [{r}_vector * 9, {r}_weights], order=1, cval=2.0) |
ndimage.map_coordinates(jnp.arange(6).reshape(2, 3), [[0.4], [1.6]], 1) |
ndimage.map_coordinates({r}_image, [[0.5], [1.0]], order=3) |
interpolate.RegularGridInterpolator((np.arange(5.0), np.arange(6.0)), {r}_image)(np.array([[0.5,
2.25], [3.0, 4.5]])) | interpolate.RegularGridInterpolator((np.arange(4.0),), {t}_vector,
method='nearest')(jnp.asarray([0.2, 2.6])) | interpolate.RegularGridInterpolator((np.arange(4.0),),
{t}_columns, bounds_error=False, fill_value=None)([[1.5], [7.0]]) |
interpolate.RegularGridInterpolator((np.arange(4.0),), {r}_vector, bounds_error=False)([1.5, 7.0],
method='linear') | integrate.trapezoid({t}_vector) | integrate.trapezoid({r}_image, dx=0.5, axis=0)
| integrate.trapezoid([1, 2, 3], [0.0, 1.0, 3.0]) | integrate.trapezoid({r}_vector, x={r}_weights)
| cluster.vq.vq({r}_image, {r}_image[::2] + 0.1) | stats.gaussian_kde({r}_signal)({r}_vector) |
stats.gaussian_kde({r}_signal, bw_method='silverman', weights={r}_signal ** 2).logpdf({r}_vector) |
stats.gaussian_kde({r}_signal, 0.3).integrate_box_1d(-0.5, 0.7) |
stats.gaussian_kde({r}_signal.reshape(2, 12)).pdf({r}_columns.T) |
stats.gaussian_kde({r}_signal).integrate_gaussian(0.1, 0.5) | stats.mode(np.array([[1, 2, 2], [3,
3, 1]]), axis=1) | stats.mode([1, 1, 2], keepdims=True) | stats.sem({r}_image) |
stats.sem({r}_image, axis=None, ddof=0) | stats.rankdata([3, 1, 4, 1]) | stats.rankdata({r}_image,
method='dense', axis=1) | stats.multivariate_normal.logpdf({r}_vector, np.zeros(4), {r}_positive) |
stats.multivariate_normal.pdf({r}_stack[:, 0], {r}_vector, {r}_positive) |
stats.multivariate_normal.logpdf({r}_vector, mean=0.5, cov=2.0) |
spatial.transform.Rotation.from_quat({r}_vector).as_matrix() |
spatial.transform.Rotation.from_quat([0, 0, 1, 1]).as_euler('zyx', degrees=True) |
spatial.transform.Rotation.from_euler('xyz', {r}_vector[:3]).as_quat() |
spatial.transform.Rotation.from_euler('z', 90, degrees=True).apply([1.0, 0, 0]) |
spatial.transform.Rotation.from_rotvec({r}_stack[:, 0, :3]).as_mrp() |
spatial.transform.Rotation.from_matrix(np.eye(3)).as_rotvec() |
spatial.transform.Rotation.from_mrp({r}_vector[:3]).magnitude() |
spatial.transform.Rotation.from_quat({r}_cube[0]).mean().as_quat() |
spatial.transform.Rotation.identity(2).as_quat() |
spatial.transform.Rotation.from_quat({r}_vector).inv().as_rotvec(degrees=True) |
spatial.transform.Slerp.init(jnp.array([0.0, 1.0]),
spatial.transform.Rotation.from_quat({r}_cube[0, :2]))(jnp.array([0.25])).as_quat() |
sparse.linalg.cg({t}_positive, {t}_vector)[0] | sparse.linalg.cg(lambda v: {t}_positive @ v,
{t}_vector, x0={t}_weights, tol=1e-6, maxiter=40)[0] | sparse.linalg.bicgstab({t}_square,
{t}_vector, tol=1e-6)[0] | sparse.linalg.gmres({t}_square, {t}_vector, tol=1e-6, restart=4,
solve_method='incremental')[0] | sparse.linalg.gmres({t}_square, {t}_vector, M=lambda v: v / 3,
solve_method='batched')[0] | optimize.minimize(lambda x: ((x - 1) ** 2 * jnp.arange(1, 5)).sum(),
{r}_vector, method='BFGS').x.round(3)
"""),
         "odeint(lambda y, t: -y * t, {r}_vector, jnp.linspace(0.0, 1.0, 4))",
         "odeint(lambda y, t, k: {{'a': -k * y['a']}}, {{'a': {r}_vector}}, "
         "jnp.array([0.0, 0.5]), {r}_weights)",
         "odeint(lambda y, t: 1j * y, {c}_vector, jnp.linspace(0.0, 1.0, 3), rtol=1e-5)",
         *[f"random.{call}" for call in (
             "multivariate_normal(k, {r}_vector, {r}_positive)", "orthogonal(k, 3)",
             "multivariate_normal(k, np.zeros(2), np.eye(2), shape=(3,), method='svd').shape",
             "multivariate_normal(k, {r}_vector, {r}_positive, (2,), method='eigh').shape",
             "orthogonal(k, 2, shape=(2,), dtype='complex64')", "ball(k, 3, p=1, shape=(2,))",
             "normal(k, (3,), 'complex64')", "rademacher(k, (3,), 'complex64')")],
         "nn.initializers.orthogonal(2.0)(k, (3, 4))",
         "nn.initializers.delta_orthogonal()(k, (3, 2, 2))", "jnp.roots([1, -3, 2])",
         "jnp.roots({t}_vector, strip_zeros=False)", "jnp.poly({t}_square)",
         "jnp.poly([1, 2])", "jnp.polyfit(np.arange(4), {r}_vector, 2)", "jnp.cov({c}_broad)",
         "jnp.polyfit({r}_vector, {r}_columns, 1, full=True)", "jnp.corrcoef({c}_broad)"]
_SPARSE = _calls("sparse", """
BCOO.fromdense({t}_few) @ {t}_vector | BCOO.fromdense({t}_few, nse=8) @ {t}_columns | {t}_vector @
sparse.BCOO.fromdense({t}_few, nse=6) | BCOO.fromdense({t}_few, nse=6).T.todense() |
BCOO.fromdense({t}_few, nse=6).sum(axis=0).todense() | (sparse.BCOO.fromdense({t}_few, nse=6) *
{t}_vector).todense() | BCOO.fromdense({t}_few, nse=6)[1:3, :2].todense() | BCOO.fromdense({t}_few,
nse=6).reshape(2, 8).todense() | BCOO(({t}_vector, np.array([[0, 1], [2, 3], [0, 1], [1, 0]])),
shape=(4, 4)).sum_duplicates(nse=3).todense() | BCOO(({t}_vector, np.array([[0], [2], [0], [9]])),
shape=(3,)).todense() | BCSR.fromdense({t}_few, nse=6) @ {t}_columns | BCSR.fromdense({t}_few,
nse=6).todense() | BCSR.from_bcoo(sparse.BCOO.fromdense({t}_few)).to_bcoo().todense() |
(sparse.BCOO.fromdense({t}_few, nse=6) @ sparse.BCOO.fromdense({t}_few, nse=6)).todense() |
sparsify(lambda a, b: (a + a) @ b - b)(sparse.BCOO.fromdense({t}_few, nse=6), {t}_vector) |
sparsify(jnp.sin)(sparse.BCOO.fromdense({r}_few, nse=6)).todense() | sparsify(lambda m: m.T @
m)(sparse.BCOO.fromdense({r}_few, nse=6)).todense() |
bcoo_dot_general(sparse.BCOO.fromdense({t}_few, nse=6), {t}_columns, dimension_numbers=(((0,),
(0,)), ((), ()))) | bcoo_dot_general_sampled({t}_square, {t}_other, np.array([[0, 1], [2, 2]]),
dimension_numbers=(((1,), (0,)), ((), ()))) | bcoo_reduce_sum(sparse.BCOO.fromdense({t}_few,
nse=6), axes=(1,)).todense() | bcoo_transpose(sparse.BCOO.fromdense({t}_few, nse=6),
permutation=(1, 0)).todense() | bcoo_concatenate([sparse.BCOO.fromdense({t}_few, nse=6)] * 2,
dimension=1).todense() | eye(3).todense() | eye(3, 4, k=1, dtype='int32').todense() | empty((2,
3)).todense() | todense(sparse.BCOO.fromdense([[0, 1], [2, 0]])) | COO.fromdense({t}_few, nse=6) @
{t}_vector | CSR.fromdense({t}_few, nse=6) @ {t}_vector | CSC.fromdense({t}_few, nse=6) @
{t}_vector | linalg.spsolve({r}_vector + 3, np.arange(4), np.arange(5), {r}_weights) |
linalg.lobpcg_standard(jnp.diag(jnp.arange(1.0, 13.0)), jnp.ones((12, 1)))[0].round(3) |
random_bcoo(k, (3, 4), nse=0.5).shape
""")
_FAMILIES = {"science linalg": [*_NUMPY_LINALG, *_LAX_LINALG, *_SCIPY_LINALG],
             "science fft": _FFT, "science signal": _SIGNAL, "science special": _SPECIAL,
             "science rest": _REST, "science sparse": _SPARSE}


def families(x64: bool) -> dict[str, list[str]]:
    """Return the expressions of a mode by family."""
    types = {"r": "f64", "c": "c128"} if x64 else {"r": "f32", "c": "c64"}
    return {name: list(dict.fromkeys(
                re.sub(r"(?<!\.)\b(spatial|interpolate)\.", r"jsp.\1.",
                       call.format(t=t, **types)).replace("jsp.jsp.", "jsp.")
                for call in calls for t in types.values()))
            for name, calls in _FAMILIES.items()}
