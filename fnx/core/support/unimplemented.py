"""Parts of JAX that are not implemented yet: their names, and what to use instead.

>>> print(*find_unimplemented("experimental.sparse.linalg.spsolve"), sep="; ")
solvers of sparse matrices; use scipy.sparse.linalg.cg, bicgstab or gmres, or scipy's functions \
through fnx.pure_callback
>>> find_unimplemented("numpy.sum")
"""

from __future__ import annotations

from fnmatch import fnmatchcase

# feature -> (names without "fnx.", what to use instead; {0} is the name)
UNIMPLEMENTED: dict[str, tuple[tuple[str, ...], str]] = {
    "solvers of sparse matrices": (("experimental.sparse.linalg", "experimental.sparse.linalg.*"),
        "use scipy.sparse.linalg.cg, bicgstab or gmres, or scipy's functions through "
        "fnx.pure_callback"),
}


def find_unimplemented(path: str) -> tuple[str, str] | None:
    """Return (the part of JAX that a name belongs to, what to use instead), or None."""
    for feature, (patterns, instead) in UNIMPLEMENTED.items():
        if any(fnmatchcase(path, pattern) for pattern in patterns):
            return feature, instead.format(path)
    return None
