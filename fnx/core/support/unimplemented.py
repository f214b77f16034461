"""Parts of JAX that are not implemented yet: their names, and what to use instead.

>>> print(*find_unimplemented("numpy.linalg.eig"), sep="; ")
factorizations and inverses of matrices; use numpy.linalg.eig on concrete arrays, or \
through fnx.pure_callback in a traced function
>>> find_unimplemented("numpy.sum")
"""

from __future__ import annotations

from fnmatch import fnmatchcase

# feature -> (names without "fnx.", what to use instead; {0} is the name)
UNIMPLEMENTED: dict[str, tuple[tuple[str, ...], str]] = {
    "eigenvalues of general matrices": (("numpy.roots",),
        "use {0} on concrete arrays, or through fnx.pure_callback in a traced function"),
    "factorizations and inverses of matrices": ((
        "numpy.linalg.eig", "numpy.linalg.eigvals", "lax.linalg.eig", "scipy.linalg.dft",
        "scipy.linalg.funm", "scipy.linalg.rsf2csf", "scipy.linalg.sqrtm"),
        "use {0} on concrete arrays, or through fnx.pure_callback in a traced function"),
    "spectra of signals": ((
        "scipy.signal.fftconvolve", "scipy.signal.*stft", "scipy.signal.csd",
        "scipy.signal.welch"),
        "use {0} on concrete arrays, or through fnx.pure_callback in a traced function"),
}
_EQUIVALENTS = {"lax.linalg": "scipy.linalg"}


def find_unimplemented(path: str) -> tuple[str, str] | None:
    """Return (the part of JAX that a name belongs to, what to use instead), or None."""
    for feature, (patterns, instead) in UNIMPLEMENTED.items():
        if any(fnmatchcase(path, pattern) for pattern in patterns):
            path_there = next((path.replace(old, new, 1)
                               for old, new in _EQUIVALENTS.items() if path.startswith(old)), path)
            return feature, instead.format(path_there)
    return None
