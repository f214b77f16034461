"""Parts of JAX that are not implemented yet: their names, and what to use instead.

>>> print(*find_unimplemented("scipy.signal.welch"), sep="; ")
spectra of signals; use scipy.signal.welch on concrete arrays, or \
through fnx.pure_callback in a traced function
>>> find_unimplemented("numpy.sum")
"""

from __future__ import annotations

from fnmatch import fnmatchcase

# feature -> (names without "fnx.", what to use instead; {0} is the name)
UNIMPLEMENTED: dict[str, tuple[tuple[str, ...], str]] = {
    "spectra of signals": ((
        "scipy.signal.fftconvolve", "scipy.signal.*stft", "scipy.signal.csd",
        "scipy.signal.welch"),
        "use {0} on concrete arrays, or through fnx.pure_callback in a traced function"),
}


def find_unimplemented(path: str) -> tuple[str, str] | None:
    """Return (the part of JAX that a name belongs to, what to use instead), or None."""
    for feature, (patterns, instead) in UNIMPLEMENTED.items():
        if any(fnmatchcase(path, pattern) for pattern in patterns):
            return feature, instead.format(path)
    return None
