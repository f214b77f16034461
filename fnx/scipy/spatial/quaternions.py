"""Unit quaternions (x, y, z, w) in the last axis of an array: rotations in three dimensions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import fnx.numpy as jnp
from fnx.core.array.array import Array

__all__ = ["apply_matrix", "compose", "from_euler", "from_matrix", "from_mrp", "from_rotvec",
           "invert", "magnitude", "make_canonical", "normalize", "to_euler", "to_matrix", "to_mrp",
           "to_rotvec"]

SMALL_ANGLE = 1e-3  # radians: below it series are used, whose error is below rounding
DEGENERATE = 1e-7  # radians: so near to 0 or pi the middle Euler angle leaves one of two free


def compose(p: Array, q: Array) -> Array:
    """Return the rotation q followed by p."""
    u, v = p[..., :3], q[..., :3]
    s, t = p[..., 3:], q[..., 3:]
    return jnp.concatenate([s * v + t * u + jnp.cross(u, v),
                            s * t - (u * v).sum(-1, keepdims=True)], -1)


def normalize(quat: Array) -> Array:
    return quat / jnp.sqrt((quat * quat).sum(-1, keepdims=True))


def invert(quat: Array) -> Array:
    return quat * jnp.asarray(np.asarray([-1, -1, -1, 1]), quat.dtype)


def make_canonical(quat: Array) -> Array:
    """Return the one of quat and -quat whose last nonzero of (z, y, x, w) is positive."""
    x, y, z, w = [quat[..., i] for i in range(4)]
    negative = (w < 0) | ((w == 0) & ((x < 0) | ((x == 0) & ((y < 0) | ((y == 0) & (z < 0))))))
    return jnp.where(negative[..., None], -quat, quat)


def magnitude(quat: Array) -> Array:
    """Return the angle, from 0 to pi."""
    return 2 * jnp.arctan2(jnp.linalg.norm(quat[..., :3], axis=-1), jnp.abs(quat[..., 3]))


def from_rotvec(rotvec: Array) -> Array:
    """Return the rotation about a vector by its length."""
    square = (rotvec * rotvec).sum(-1, keepdims=True)
    small = square <= SMALL_ANGLE ** 2
    angle = jnp.sqrt(jnp.where(small, 1, square))
    scale = jnp.where(small, 0.5 - square / 48 + square * square / 3840,
                      jnp.sin(angle / 2) / angle)
    half = jnp.where(small, 1 - square / 8 + square * square / 384, jnp.cos(angle / 2))
    return jnp.concatenate([scale * rotvec, half], -1)


def to_rotvec(quat: Array) -> Array:
    quat = jnp.where(quat[..., 3:] < 0, -quat, quat)  # an angle of at most pi
    vector, w = quat[..., :3], quat[..., 3:]
    square = (vector * vector).sum(-1, keepdims=True)
    small = square <= (SMALL_ANGLE / 2) ** 2
    sine = jnp.sqrt(jnp.where(small, 1, square))
    angle = 2 * jnp.arctan2(sine, w)
    scale = jnp.where(small, 2 + square / 3 + 3 * square * square / 20, angle / sine)
    return scale * vector


def from_mrp(mrp: Array) -> Array:
    """Return the rotation of modified Rodrigues parameters: the axis times tan(angle / 4)."""
    square = (mrp * mrp).sum(-1, keepdims=True)
    return jnp.concatenate([2 * mrp, 1 - square], -1) / (1 + square)


def to_mrp(quat: Array) -> Array:
    sign = jnp.where(quat[..., 3:] < 0, -1, 1).astype(quat.dtype)
    return sign * quat[..., :3] / (1 + sign * quat[..., 3:])


def to_matrix(quat: Array) -> Array:
    x, y, z, w = [quat[..., i] for i in range(4)]
    rows = [[x * x - y * y - z * z + w * w, 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), y * y - x * x - z * z + w * w, 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), z * z - x * x - y * y + w * w]]
    return jnp.stack([jnp.stack(row, -1) for row in rows], -2)


def from_matrix(matrix: Array) -> Array:
    """Return the rotation of a matrix: from its largest diagonal element, or its trace."""
    m = [[matrix[..., i, j] for j in range(3)] for i in range(3)]
    trace = m[0][0] + m[1][1] + m[2][2]
    choice = jnp.argmax(jnp.stack([m[0][0], m[1][1], m[2][2], trace], -1), -1)[..., None]
    candidates = []
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        parts = {i: 1 - trace + 2 * m[i][i], j: m[j][i] + m[i][j], k: m[k][i] + m[i][k],
                 3: m[k][j] - m[j][k]}
        candidates.append(jnp.stack([parts[at] for at in range(4)], -1))
    last = jnp.stack([m[2][1] - m[1][2], m[0][2] - m[2][0], m[1][0] - m[0][1], 1 + trace], -1)
    return normalize(jnp.where(choice == 3, last, jnp.where(
        choice == 0, candidates[0], jnp.where(choice == 1, candidates[1], candidates[2]))))


def apply_matrix(matrix: Array, vectors: Array) -> Array:
    return (matrix * vectors[..., None, :]).sum(-1)


def from_euler(axes: Sequence[int], angles: Array, intrinsic: bool) -> Array:
    """Compose rotations about coordinate axes; intrinsic ones turn the axes with the body."""
    total: Array | None = None
    for at, axis in enumerate(axes):
        half = angles[..., at] / 2
        zero = jnp.zeros_like(half)
        parts = [zero, zero, zero, jnp.cos(half)]
        parts[axis] = jnp.sin(half)
        quat = jnp.stack(parts, -1)
        if total is None:
            total = quat
        else:
            total = compose(total, quat) if intrinsic else compose(quat, total)
    assert total is not None
    return total


def to_euler(quat: Array, axes: Sequence[int], intrinsic: bool) -> Array:
    """Return three angles about coordinate axes, from -pi to pi.

    Source: Bernardes and Viollet, Quaternion to Euler angles conversion: a direct, general and
    computationally efficient method, PLoS ONE 17 (2022).
    """
    i, j, k = axes[::-1] if intrinsic else axes
    symmetric = i == k
    k = 3 - i - j if symmetric else k
    sign = (i - j) * (j - k) * (k - i) // 2
    x, y, z, w = quat[..., i], quat[..., j], quat[..., k] * sign, quat[..., 3]
    a, b, c, d = (w, x, y, z) if symmetric else (w - y, x + z, y + w, z - x)
    middle = 2 * jnp.arctan2(jnp.hypot(c, d), jnp.hypot(a, b))
    at_zero, at_pi = jnp.abs(middle) <= DEGENERATE, jnp.abs(middle - np.pi) <= DEGENERATE
    half_sum, half_difference = jnp.arctan2(b, a), jnp.arctan2(d, c)
    degenerate = at_zero | at_pi
    lone = jnp.where(at_zero, 2 * half_sum, (2 if intrinsic else -2) * half_difference)
    near = half_sum - half_difference  # of the axis that is applied first
    far = half_sum + half_difference
    if intrinsic:
        first = jnp.where(degenerate, lone, far)
        last = jnp.where(degenerate, 0, near)
        first = first if symmetric else first * sign
    else:
        first = jnp.where(degenerate, lone, near)
        last = jnp.where(degenerate, 0, far)
        last = last if symmetric else last * sign
    middle = middle if symmetric else middle - np.pi / 2
    angles = jnp.stack([first, middle, last], -1)
    return (angles + np.pi) % (2 * np.pi) - np.pi
