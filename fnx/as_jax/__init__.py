"""Run programs written for JAX unchanged on fnx: ``import jax`` means fnx in this process.

    python -m fnx.as_jax script.py --its arguments
    python -m fnx.as_jax -m package.module

or, before anything imports jax:

>>> import fnx.as_jax
>>> fnx.as_jax.install()                                              # doctest: +SKIP
>>> import jax                                                        # doctest: +SKIP

``docs/differences.md`` lists what is not supported.
"""

from __future__ import annotations

import sys

from fnx.as_jax.core_helpers import name_jitted_functions
from fnx.as_jax.finder import FINDER, VERSION, install_finder
from fnx.as_jax.messages import words_of_jax
from fnx.core.ir.low_precision import ml_dtypes
from fnx.core.support.config import config
from fnx.core.support.errors import FnxError, set_other_words

__all__ = ["VERSION", "AlreadyImportedError", "install"]


class AlreadyImportedError(FnxError, ImportError):
    """JAX itself is already imported, so that values of both could mix."""


def install() -> None:
    """Make ``import jax``, ``jax.numpy`` ... mean fnx for the rest of the process.

    Explicit 64-bit dtypes become 32 bits wide, as in JAX, unless ``jax_enable_x64``; derivatives
    that JAX does not have are errors, unless ``fnx.config.derivatives = "all"``. Variables such
    as ``JAX_ENABLE_X64`` are read from the environment, unless fnx's own (``FNX_ENABLE_X64``) is
    there. A name that fnx lacks can be imported, and raises when it is used.

    Raises:
        AlreadyImportedError: the process has imported JAX.
        ArgumentError: a variable has a value that its setting does not take.

    >>> import fnx.as_jax
    >>> fnx.as_jax.install()                                          # doctest: +SKIP
    """
    if FINDER not in sys.meta_path:
        imported = next((name for name in ("jax", "jaxlib") if name in sys.modules), None)
        if imported is not None:
            raise AlreadyImportedError(
                f"expected {imported} not to be imported yet, got "
                f"({getattr(sys.modules[imported], '__file__', None)})",
                hint="call fnx.as_jax.install() before anything that imports jax, or run: python "
                     "-m fnx.as_jax script.py")
    install_finder()
    name_jitted_functions()
    set_other_words(words_of_jax)
    ml_dtypes()  # so that np.dtype("bfloat16") is known, as after importing JAX
    config.truncate = True
    config.derivatives = "jax"
    config.read_jax_variables()
