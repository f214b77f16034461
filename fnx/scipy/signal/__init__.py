"""Convolutions, trends and spectra of signals, as in ``jax.scipy.signal``.

>>> import fnx.numpy as jnp
>>> print(convolve(jnp.asarray([1.0, 2.0, 3.0]), jnp.asarray([1.0, 1.0])))
[1. 3. 5. 3.]
"""

from typing import TYPE_CHECKING

from fnx.core.support.errors import lazy_module
from fnx.scipy.signal import convolutions, spectra, trends
from fnx.scipy.signal.convolutions import *
from fnx.scipy.signal.spectra import *
from fnx.scipy.signal.trends import *

__all__ = [*convolutions.__all__, *spectra.__all__, *trends.__all__]

if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
