"""Fourier transforms of ATen."""

from __future__ import annotations

from collections.abc import Sequence

import fnx.numpy as jnp
from fnx.core.array.array import Array
from fnx.torch.entry import Table, entries

FORWARD = ("backward", "ortho", "forward")  # by PyTorch's number of the scale: 1, 1/sqrt(n), 1/n
INVERSE = ("forward", "ortho", "backward")  # NumPy's names are of the direction that is scaled


def _real_to_complex(x: Array, dim: Sequence[int], scale: int, onesided: bool) -> Array:
    f = jnp.fft.rfftn if onesided else jnp.fft.fftn
    return f(x, axes=tuple(dim), norm=FORWARD[scale])


def _complex_to_complex(x: Array, dim: Sequence[int], scale: int, forward: bool) -> Array:
    if forward:
        return jnp.fft.fftn(x, axes=tuple(dim), norm=FORWARD[scale])
    return jnp.fft.ifftn(x, axes=tuple(dim), norm=INVERSE[scale])


def _complex_to_real(x: Array, dim: Sequence[int], scale: int, size: int) -> Array:
    sizes = [*[x.shape[d] for d in dim[:-1]], size]
    return jnp.fft.irfftn(x, sizes, axes=tuple(dim), norm=INVERSE[scale])


TABLE: Table = entries({"_fft_r2c": _real_to_complex, "_fft_c2c": _complex_to_complex,
                        "_fft_c2r": _complex_to_real})
