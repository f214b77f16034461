"""Rotations in three dimensions, as in ``jax.scipy.spatial.transform``.

>>> import fnx.numpy as jnp
>>> print(Rotation.from_euler("z", 90, degrees=True).as_rotvec().round(3))
[0.    0.    1.571]
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import fnx.numpy as jnp
import fnx.random as random
from fnx.core.array import arguments
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.promotion import as_float
from fnx.core.support.errors import ArgumentError, ShapeError, lazy_module
from fnx.scipy.spatial import quaternions

__all__ = ["Rotation", "Slerp"]


class Rotation(NamedTuple):
    """A rotation, or an array of them: a pytree of one array.

    Args:
        quat: unit quaternions (x, y, z, w), in the last axis.

    >>> import fnx.numpy as jnp
    >>> from fnx.scipy.spatial.transform import Rotation
    >>> r = Rotation.from_rotvec(jnp.asarray([0.0, 0.0, jnp.pi / 2]))
    >>> print((r * r).magnitude().round(4))
    3.1416
    """

    quat: Array

    @classmethod
    @public_api
    def concatenate(cls, rotations: Sequence[Rotation]) -> Rotation:
        """Join arrays of rotations.

        Args:
            rotations: the arrays of rotations.
        """
        return cls(jnp.concatenate([rotation.quat for rotation in rotations]))

    @classmethod
    @public_api
    def from_euler(cls, seq: str, angles: ArrayLike, degrees: bool = False) -> Rotation:
        """Return the rotation of up to three Euler angles.

        Args:
            seq: the axes, such as "xyz" (fixed axes) or "ZYX" (axes that turn with the body).
            angles: one angle for each axis in the last axis.
            degrees: whether the angles are in degrees.

        Raises:
            ArgumentError: other letters, more than three, or the same axis twice in a row.
            ShapeError: not as many angles as axes.
        """
        axes, intrinsic = _parse_axes(seq, (1, 2, 3))
        theta = as_float(angles)
        theta = theta if theta.ndim else theta.reshape(1)
        if theta.shape[-1] != len(axes):
            raise ShapeError(f"expected {len(axes)} angles in the last axis, got shape "
                             f"{theta.shape}")
        theta = jnp.deg2rad(theta) if degrees else theta
        return cls(quaternions.from_euler(axes, theta, intrinsic))

    @classmethod
    @public_api
    def from_matrix(cls, matrix: ArrayLike) -> Rotation:
        """Return the rotation of an orthogonal matrix with determinant 1.

        Args:
            matrix: of shape (..., 3, 3).
        """
        return cls(quaternions.from_matrix(_check("matrix", matrix, (3, 3))))

    @classmethod
    @public_api
    def from_mrp(cls, mrp: ArrayLike) -> Rotation:
        """Return the rotation of modified Rodrigues parameters, axis times tan(angle / 4).

        Args:
            mrp: of shape (..., 3).
        """
        return cls(quaternions.from_mrp(_check("mrp", mrp, (3,))))

    @classmethod
    @public_api
    def from_quat(cls, quat: ArrayLike) -> Rotation:
        """Return the rotation of quaternions (x, y, z, w), which are normalized.

        Args:
            quat: of shape (..., 4).
        """
        return cls(quaternions.normalize(_check("quat", quat, (4,))))

    @classmethod
    @public_api
    def from_rotvec(cls, rotvec: ArrayLike, degrees: bool = False) -> Rotation:
        """Return the rotation about vectors by their lengths.

        Args:
            rotvec: of shape (..., 3).
            degrees: whether the lengths are in degrees.
        """
        vector = _check("rotvec", rotvec, (3,))
        return cls(quaternions.from_rotvec(jnp.deg2rad(vector) if degrees else vector))

    @classmethod
    @public_api
    def identity(cls, num: int | None = None, dtype: DTypeLike = float) -> Rotation:
        """Return the rotation that changes nothing.

        Args:
            num: how many; by default a single one.
            dtype: of the quaternions.
        """
        quat = jnp.asarray(np.asarray([0, 0, 0, 1]), dtype)
        return cls(quat if num is None else jnp.tile(quat, (arguments.check_int("num", num), 1)))

    @classmethod
    @public_api
    def random(cls, random_key: Any, num: int | None = None) -> Rotation:
        """Return uniformly distributed rotations.

        Args:
            random_key: a key of ``fnx.random``.
            num: how many; by default a single one.
        """
        front = () if num is None else (arguments.check_int("num", num),)
        return cls(quaternions.normalize(random.normal(random_key, (*front, 4))))

    @public_api
    def __getitem__(self, indexer: Any) -> Rotation:  # type: ignore[override]
        self._require_several("an index")
        return Rotation(self.quat[indexer])

    def __len__(self) -> int:
        self._require_several("a length")
        return self.quat.shape[0]

    @public_api
    def __mul__(self, other: Any) -> Rotation:
        """Return the rotation ``other`` followed by this one."""
        return Rotation(quaternions.normalize(quaternions.compose(self.quat, other.quat)))

    @public_api
    def apply(self, vectors: ArrayLike, inverse: bool = False) -> Array:
        """Rotate vectors.

        Args:
            vectors: of shape (..., 3); the axes before broadcast against the rotations.
            inverse: whether to rotate back.
        """
        quat = quaternions.invert(self.quat) if inverse else self.quat
        return quaternions.apply_matrix(quaternions.to_matrix(quat),
                                        _check("vectors", vectors, (3,)))

    @public_api
    def as_euler(self, seq: str, degrees: bool = False) -> Array:
        """Return three Euler angles; in gimbal lock the last (first, if intrinsic) one is 0.

        Args:
            seq: three axes, such as "xyz" (fixed axes) or "ZYX" (axes that turn with the body).
            degrees: whether the angles are in degrees.

        Raises:
            ArgumentError: not three axes, or the same axis twice in a row.
        """
        axes, intrinsic = _parse_axes(seq, (3,))
        angles = quaternions.to_euler(self.quat, axes, intrinsic)
        return jnp.rad2deg(angles) if degrees else angles

    @public_api
    def as_matrix(self) -> Array:
        """Return matrices, of shape (..., 3, 3)."""
        return quaternions.to_matrix(self.quat)

    @public_api
    def as_mrp(self) -> Array:
        """Return modified Rodrigues parameters, axis times tan(angle / 4)."""
        return quaternions.to_mrp(self.quat)

    @public_api
    def as_rotvec(self, degrees: bool = False) -> Array:
        """Return vectors along the axes, whose lengths are the angles.

        Args:
            degrees: whether the lengths are in degrees.
        """
        vector = quaternions.to_rotvec(self.quat)
        return jnp.rad2deg(vector) if degrees else vector

    @public_api
    def as_quat(self, canonical: bool = False, scalar_first: bool = False) -> Array:
        """Return quaternions (x, y, z, w).

        Args:
            canonical: whether to choose the sign so that w >= 0 (and x, y, z if it is 0).
            scalar_first: whether the order is (w, x, y, z).
        """
        quat = quaternions.make_canonical(self.quat) if canonical else self.quat
        return jnp.roll(quat, 1, -1) if scalar_first else quat

    @public_api
    def inv(self) -> Rotation:
        """Return the inverse."""
        return Rotation(quaternions.invert(self.quat))

    @public_api
    def magnitude(self) -> Array:
        """Return the angles, from 0 to pi."""
        return quaternions.magnitude(self.quat)

    @public_api
    def mean(self, weights: ArrayLike | None = None) -> Rotation:
        """Return the mean: its quaternion has the largest squared products with the others.

        Args:
            weights: one for each rotation.

        Raises:
            ShapeError: not one weight for each rotation.
        """
        self._require_several("a mean")
        n = self.quat.shape[0]
        w = jnp.ones(n, self.quat.dtype) if weights is None else \
            asarray(weights).astype(self.quat.dtype)
        if w.shape != (n,):
            raise ShapeError(f"expected weights of shape ({n},), got {w.shape}")
        return Rotation(jnp.linalg.eigh((w * self.quat.T) @ self.quat)[1][:, -1])

    @property
    def single(self) -> bool:
        """Whether this is a single rotation."""
        return self.quat.ndim == 1

    def _require_several(self, what: str) -> None:
        if self.single:
            raise ArgumentError(f"expected an array of rotations for {what}, got a single one")


class Slerp(NamedTuple):
    """Interpolation of rotations with constant speed between two of them.

    Args:
        times: when the rotations are reached.
        timedelta: the differences of the times.
        rotations: all but the last.
        rotvecs: the vectors of the rotations from each to the next.

    >>> import fnx.numpy as jnp
    >>> from fnx.scipy.spatial.transform import Rotation, Slerp
    >>> turns = Rotation.from_euler("z", jnp.asarray([[0.0], [90.0]]), degrees=True)
    >>> print(Slerp.init(jnp.asarray([0.0, 1.0]), turns)(0.5).magnitude().round(4))
    0.7854
    """

    times: Array
    timedelta: Array
    rotations: Rotation
    rotvecs: Array

    @classmethod
    @public_api
    def init(cls, times: ArrayLike, rotations: Rotation) -> Slerp:
        """Return the interpolation of rotations at times.

        Args:
            times: strictly increasing.
            rotations: as many rotations, at least two.

        Raises:
            ArgumentError: ``rotations`` is no array of at least two rotations.
            ShapeError: not as many times as rotations.
        """
        if not isinstance(rotations, Rotation) or rotations.single or len(rotations) < 2:
            raise ArgumentError("expected a Rotation of at least two rotations")
        at = asarray(times).astype(rotations.quat.dtype)
        if at.shape != (len(rotations),):
            raise ShapeError(f"expected {len(rotations)} times, got shape {at.shape}")
        before, after = rotations.quat[:-1], rotations.quat[1:]
        steps = quaternions.normalize(quaternions.compose(quaternions.invert(before), after))
        return cls(at, jnp.diff(at), Rotation(before), quaternions.to_rotvec(steps))

    @public_api
    def __call__(self, times: ArrayLike) -> Rotation:
        """Return the rotations at times; those outside continue the first and last step.

        Args:
            times: a number or a vector.

        Raises:
            ShapeError: more than one axis.
        """
        at = asarray(times).astype(self.times.dtype)
        if at.ndim > 1:
            raise ShapeError(f"expected times of at most one axis, got shape {at.shape}")
        index = jnp.clip(jnp.searchsorted(self.times, at) - 1, 0, self.timedelta.size - 1)
        fraction = (at - self.times[index]) / self.timedelta[index]
        step = quaternions.from_rotvec(self.rotvecs[index] * fraction[..., None])
        return Rotation(quaternions.normalize(
            quaternions.compose(self.rotations.quat[index], step)))


def _parse_axes(seq: str, lengths: Sequence[int]) -> tuple[list[int], bool]:
    """Return the numbers of axes, and whether they turn with the body (capital letters)."""
    if not re.fullmatch("[xyz]+|[XYZ]+", seq) or len(seq) not in lengths or \
            any(a == b for a, b in zip(seq, seq[1:])):
        size = "three" if lengths == (3,) else "one to three"
        raise ArgumentError(f"expected {size} of the axes 'x', 'y', 'z' (or 'X', 'Y', 'Z'), not "
                            f"the same twice in a row; got {seq!r}")
    return ["xyz".index(axis) for axis in seq.lower()], seq.isupper()


def _check(name: str, x: ArrayLike, shape: tuple[int, ...]) -> Array:
    """Return an argument as floats, of a shape that ends as said."""
    value = as_float(x)
    if value.shape[-len(shape):] != shape:
        text = ", ".join(map(str, shape))
        raise ShapeError(f"expected {name} of shape (..., {text}), got {value.shape}")
    return value


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
