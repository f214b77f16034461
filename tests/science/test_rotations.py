"""Rotations beside SciPy, and the laws of the group."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation as Reference
from scipy.spatial.transform import Slerp as ReferenceSlerp

import fnx
import fnx.numpy as jnp
import fnx.random as random
from fnx.core.support.errors import ArgumentError, ShapeError
from fnx.scipy.spatial.transform import Rotation, Slerp

QUATS = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
VECTORS = np.random.default_rng(1).normal(size=(6, 3)).astype(np.float32)
SEQUENCES = [s for letters in ("xyz", "XYZ") for t in itertools.product(letters, repeat=3)
             if t[0] != t[1] != t[2] for s in ["".join(t)]]


def close(a: object, b: object) -> None:
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-4, atol=2e-5)


@pytest.mark.cases(2, of="forms")
@settings(max_examples=30)
@given(st.integers(0, 999), st.sampled_from([1e-6, 1e-3, 1.0, 3.0]))
def test_all_forms_are_the_same_rotation(seed: int, size: float) -> None:
    vector = np.random.default_rng(seed).normal(size=3).astype(np.float32)
    vector *= np.float32(size / np.linalg.norm(vector))
    rotation, want = Rotation.from_rotvec(vector), Reference.from_rotvec(vector)
    close(rotation.as_matrix(), want.as_matrix())
    close(rotation.as_rotvec(), want.as_rotvec())
    close(rotation.as_mrp(), want.as_mrp())
    close(rotation.magnitude(), want.magnitude())
    for again in (Rotation.from_matrix(rotation.as_matrix()), Rotation.from_mrp(rotation.as_mrp()),
                  Rotation.from_quat(-2 * rotation.as_quat()), rotation.inv().inv()):
        close(again.as_matrix(), rotation.as_matrix())
    close((rotation * rotation.inv()).magnitude() < 2e-3, True)


@pytest.mark.cases(2)
@pytest.mark.parametrize("seq", SEQUENCES)
def test_euler_angles(seq: str) -> None:
    angles = Rotation.from_quat(QUATS).as_euler(seq)
    close(angles, Reference.from_quat(QUATS).as_euler(seq))
    close(Rotation.from_euler(seq, angles).as_matrix(), Rotation.from_quat(QUATS).as_matrix())


@pytest.mark.cases(2)
@pytest.mark.parametrize("seq", ["xyz", "ZYX", "zxz", "XYX"])
def test_gimbal_lock_loses_no_rotation(seq: str) -> None:
    middle = 90 if len(set(seq)) == 3 else 0
    rotation = Rotation.from_euler(seq, [20, middle, 30], degrees=True)
    close(Rotation.from_euler(seq, rotation.as_euler(seq)).as_matrix(), rotation.as_matrix())


@pytest.mark.cases(2, of="forms")
def test_arrays_of_rotations() -> None:
    a, b = Rotation.from_quat(QUATS), Rotation.from_rotvec(VECTORS)
    close((a * b).as_matrix(), a.as_matrix() @ b.as_matrix())
    close(a.apply(VECTORS), Reference.from_quat(QUATS).apply(VECTORS))
    close(a.apply(a.apply(VECTORS), inverse=True), VECTORS)
    close(a[2:4].as_quat(), a.as_quat()[2:4])
    close(Rotation.concatenate([a, b]).as_quat()[6:], b.as_quat())
    assert len(a) == 6 and a[0].single and not a.single
    close(a.as_quat(canonical=True, scalar_first=True),
          np.roll(Reference.from_quat(QUATS).as_quat(canonical=True), 1, -1))
    close(fnx.jit(lambda r: r.as_rotvec(degrees=True))(a), a.as_rotvec(degrees=True))
    drawn = Rotation.random(random.key(0), 500).as_quat()
    close(jnp.linalg.norm(drawn, axis=-1), np.ones(500))
    assert float(jnp.abs(drawn.mean(0)).max()) < 0.1
    close(Rotation.identity(2).apply(VECTORS[:2]), VECTORS[:2])


@pytest.mark.cases(2, of="forms")
def test_interpolation() -> None:
    times = np.asarray([0.0, 1, 2, 3.5, 4, 5], np.float32)
    at = np.asarray([0.0, 0.3, 2.0, 3.9, 5.0], np.float32)
    slerp = Slerp.init(times, Rotation.from_quat(QUATS))
    close(slerp(at).as_matrix(), ReferenceSlerp(times, Reference.from_quat(QUATS))(at).as_matrix())
    close(slerp(0.3).as_quat(), slerp(at)[1].as_quat())


@pytest.mark.cases(2)
@pytest.mark.parametrize("vector", [[0.0, 0.0, 0.0], [1e-5, 0.0, 2e-5], [0.3, -2.0, 1.0]])
def test_derivatives_also_at_the_identity(vector: list[float], float64: None) -> None:
    def f(v: jnp.ndarray) -> jnp.ndarray:
        return jnp.sum(Rotation.from_rotvec(v).as_matrix() * jnp.arange(9.0).reshape(3, 3)) \
            + jnp.sum(Rotation.from_rotvec(v).as_rotvec() * jnp.arange(3.0))
    x, step = np.asarray(vector), 1e-6
    found = np.asarray(fnx.grad(f)(jnp.asarray(x)))
    want = [(float(f(x + e)) - float(f(x - e))) / (2 * step) for e in step * np.eye(3)]
    np.testing.assert_allclose(found, want, atol=1e-6)


def test_bad_input() -> None:
    r = Rotation.identity()
    for act, kind, part in (
            (lambda: Rotation.from_euler("xx", [1.0, 2.0]), ArgumentError, "twice in a row"),
            (lambda: Rotation.from_euler("xY", [1.0, 2.0]), ArgumentError, "axes 'x'"),
            (lambda: Rotation.from_euler("xyz", [1.0]), ShapeError, "3 angles"),
            (lambda: r.as_euler("xy"), ArgumentError, "three of the axes"),
            (lambda: Rotation.from_quat(np.ones(3)), ShapeError, r"\(\.\.\., 4\)"),
            (lambda: len(r), ArgumentError, "single"),
            (lambda: Slerp.init([0.0], r), ArgumentError, "at least two"),
            (lambda: Slerp.init([0.0], Rotation.identity(2)), ShapeError, "2 times")):
        with pytest.raises(kind, match=part):
            act()
