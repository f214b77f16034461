"""Meshes and shardings of several devices of the processor, and arrays placed on them."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import NamedSharding, P, lax
from fnx.core.support.errors import ArgumentError, MeshError, PlacementError, ShapeError
from fnx.sharding import AbstractMesh, Mesh, SingleDeviceSharding
from fnx.sharding.mesh import create_device_mesh

X = np.arange(32, dtype=np.float32).reshape(8, 4)


def test_devices_share_the_processor() -> None:
    devices = fnx.devices()
    assert [d.id for d in devices] == [*range(8)] == [d.local_hardware_id for d in devices]
    assert fnx.device_count() == fnx.local_device_count() == 8 and str(devices[3]) == "cpu:3"
    assert fnx.devices("cpu") == devices and pickle.loads(pickle.dumps(devices[5])) is devices[5]
    assert len(fnx.devices("interp")) == 1


@pytest.mark.parametrize(("environment", "script"), [
    ({"FNX_CPU_DEVICES": "3"}, "import fnx; print(len(fnx.devices()))"),
    ({"XLA_FLAGS": "--a=1 --xla_force_host_platform_device_count=3 --b"},
     "import fnx.as_jax; fnx.as_jax.install(); import jax; print(jax.device_count())"),
    ({}, "import fnx.as_jax; fnx.as_jax.install(); import jax\n"
         "jax.config.update('jax_num_cpu_devices', 3); print(jax.device_count())"),
    ({"XLA_FLAGS": "--xla_force_host_platform_device_count=9", "FNX_CPU_DEVICES": "3"},
     "import fnx.as_jax; fnx.as_jax.install(); import jax; print(jax.device_count())"),
], ids=["FNX_CPU_DEVICES", "XLA_FLAGS", "jax_num_cpu_devices", "both"])
def test_how_many_devices(environment: dict[str, str], script: str) -> None:
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True,
                         env={**os.environ, "XLA_FLAGS": "", **environment})
    assert run.stdout == "3\n"


def test_a_mesh_has_axes_and_devices(mesh: Mesh) -> None:
    assert mesh.shape == {"a": 4, "b": 2} and mesh.size == 8
    assert repr(mesh) == "Mesh('a': 4, 'b': 2)"
    assert mesh.device_ids.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert mesh == Mesh(create_device_mesh((4, 2)), ("a", "b")) != Mesh(
        mesh.devices[::-1], ("a", "b"))
    assert mesh.abstract_mesh == AbstractMesh((4, 2), ("a", "b")) != mesh
    assert fnx.make_mesh((3,), "x").size == 3


def test_names_of_axes_are_any_hashable_values() -> None:
    mesh = fnx.make_mesh((4, 2), (0, ("b",)))
    x = fnx.device_put(X, NamedSharding(mesh, P(0)))
    assert x.sharding.shard_shape((8, 4)) == (2, 4) and P(("a",), ()) == P("a", None)
    spec = P(P.UNCONSTRAINED, "a")
    assert pickle.loads(pickle.dumps(spec)) == spec


@pytest.mark.parametrize(("spec", "shape", "shard"), [
    (P(), (3, 5), (3, 5)), (P("a"), (8, 3), (2, 3)), (P(None, "b"), (3, 4), (3, 2)),
    (P("b", "a"), (2, 4), (1, 1)), (P(("b", "a")), (16,), (2,)), (P(("a", "b")), (16,), (2,))])
def test_each_device_holds_the_part_of_its_index(mesh: Mesh, spec: Any, shape: Any, shard: Any
                                                 ) -> None:
    sharding = NamedSharding(mesh, spec)
    data = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    x = fnx.device_put(data, sharding)
    assert x.sharding == sharding and x.devices() == set(fnx.devices()) and x.committed
    assert x.device is sharding and x.is_fully_replicated == (spec == P())
    assert sharding.shard_shape(shape) == shard and sharding.num_devices == 8
    whole = np.zeros(shape)
    for part in x.addressable_shards:
        assert part.data.shape == shard and part.data.devices() == {part.device}
        np.testing.assert_array_equal(part.data, data[part.index])
        if part.replica_id == 0:
            whole[part.index] += part.data
    np.testing.assert_array_equal(whole, data)
    assert sharding.is_equivalent_to(NamedSharding(mesh, P(*spec, None)), x.ndim + 1)
    np.testing.assert_array_equal(x.addressable_data(3), x.global_shards[3].data)
    made = [fnx.make_array_from_callback(shape, sharding, lambda index: data[index]),
            fnx.make_array_from_process_local_data(sharding, data),
            fnx.make_array_from_single_device_arrays(
                shape, sharding, [s.data for s in x.addressable_shards][::-1])]
    for y in made:
        assert y.sharding == sharding
        np.testing.assert_array_equal(y, data)


def test_a_single_device_is_a_sharding() -> None:
    x = fnx.device_put(X, fnx.devices()[3])
    assert x.device is fnx.devices()[3] and x.sharding == SingleDeviceSharding(x.device)
    assert (x + 1).device is x.device and fnx.jit(jnp.sin)(x).devices() == {x.device}
    assert fnx.device_put(x, fnx.devices()[0]).device is fnx.devices()[0]


def test_a_sharded_array_computes_as_a_whole_one(mesh: Mesh) -> None:
    x = fnx.device_put(X, NamedSharding(mesh, P("a", "b")))
    f = fnx.jit(lambda x: (x @ x.T, jnp.sin(x)))
    for _ in range(4):
        for got, expected in zip(f(x), f(jnp.asarray(X))):
            assert got.devices() == set(fnx.devices())
            np.testing.assert_array_equal(got, expected)
        assert (x * 2).devices() == set(fnx.devices())


ON_A_DEVICE: dict[str, Callable[..., Any]] = {
    "zeros": lambda **to: jnp.zeros((8, 4), **to), "arange": lambda **to: jnp.arange(8, **to),
    "array": lambda **to: jnp.array(X, **to), "like": lambda **to: jnp.ones_like(X, **to),
    "asarray": lambda **to: jnp.asarray(X, **to), "full": lambda **to: jnp.full(8, 2.0, **to)}
WITH_A_SHARDING: dict[str, Callable[..., Any]] = {
    "zeros": lambda **to: jnp.zeros((8, 4), **to), "product": lambda **to: jnp.matmul(X, X.T, **to),
    "einsum": lambda **to: jnp.einsum("ij,kj->ik", X, X, **to),
    "normal": lambda **to: fnx.random.normal(fnx.random.key(0), (8, 2), **to),
    "gamma": lambda **to: fnx.random.gamma(fnx.random.key(0), 2.0, (8,), **to),
    "permutation": lambda **to: fnx.random.permutation(fnx.random.key(0), 8, **to)}


@pytest.mark.cases(4)
@pytest.mark.parametrize(("name", "keyword"), [
    *[(name, "device") for name in ON_A_DEVICE], *[(name, "out_sharding")
                                                   for name in WITH_A_SHARDING]])
def test_results_are_where_keywords_place_them(name: str, keyword: str, mesh: Mesh) -> None:
    f = (ON_A_DEVICE if keyword == "device" else WITH_A_SHARDING)[name]
    sharding = NamedSharding(mesh, P("a"))
    with fnx.set_mesh(mesh):
        placed = [f(**{keyword: sharding}), f(**{keyword: P("a")}),
                  fnx.jit(lambda: f(**{keyword: sharding}))()]
    for x in placed:
        assert x.sharding == sharding, x.sharding
        np.testing.assert_allclose(x, f(), rtol=1e-6)
    if keyword == "device":
        assert f(device=fnx.devices()[3]).device is fnx.devices()[3]
    with pytest.raises(MeshError, match="(?s)expected a mesh for P.*set_mesh"):
        f(**{keyword: P("a")})


def test_what_jax_names_of_meshes_and_specs(mesh: Mesh) -> None:
    assert not mesh.is_multi_process and mesh.local_mesh == mesh
    spec = P("a") + P(None)
    assert type(spec) is P and spec == P("a", None)
    assert NamedSharding(mesh, spec).with_memory_kind("device").spec == spec


X8, X6 = jnp.ones(8), jnp.ones((6, 4))
BAD: dict[str, tuple[Callable[[Mesh], Any], type[Exception], str, str]] = {
    "a device twice": (lambda m: Mesh([fnx.devices()[0]] * 2, "x"), ArgumentError, "cpu:0 twice",
                       "FNX_CPU_DEVICES"),
    "no device": (lambda m: Mesh([1, 2], "x"), ArgumentError, "expected devices, got 1",
                  "fnx.devices"),
    "names that do not fit": (lambda m: Mesh(fnx.devices(), ("x", "y")), ArgumentError,
                              "a name for each axis", "reshape"),
    "a name twice": (lambda m: Mesh(m.devices, ("x", "x")), ArgumentError, "'x' twice", "rename"),
    "more devices than there are": (lambda m: fnx.make_mesh((4, 4), ("x", "y")), ArgumentError,
                                    "at most 8 devices", "FNX_CPU_DEVICES=16"),
    "devices left over": (lambda m: create_device_mesh((3, 2)), ArgumentError, "for 8 devices",
                          r"devices=fnx.devices\(\)\[:6\]"),
    "an unknown axis": (lambda m: NamedSharding(m, P("z")), ArgumentError, "'z'",
                        "its axes are 'a', 'b'"),
    "an axis twice": (lambda m: NamedSharding(m, P("a", ("b", "a"))), ArgumentError, "'a' twice",
                      "one axis"),
    "no spec": (lambda m: NamedSharding(m, ("a",)), ArgumentError, "got tuple", "fnx.P"),
    "an uneven array": (lambda m: fnx.device_put(X6, NamedSharding(m, P("a"))), ShapeError,
                        "divisible into 4 parts.* got 6", "pad"),
    "too few axes": (lambda m: fnx.device_put(X8, NamedSharding(m, P(None, "a"))), ShapeError,
                     "at least 2 axes", "shorten"),
    "a mesh without devices": (lambda m: fnx.device_put(
        X8, NamedSharding(m.abstract_mesh, P("a"))).addressable_shards[9], IndexError, "", ""),
    "a spec without a mesh": (lambda m: fnx.device_put(X8, P("a")), MeshError,
                              "a mesh for P", "set_mesh"),
    "specs of jit without a mesh": (lambda m: fnx.jit(lambda x: x, in_shardings=P("a"))(X8),
                                    MeshError, "in_shardings", "set_mesh"),
    "other devices": (lambda m: fnx.device_put(X8, NamedSharding(m, P("a"))) + fnx.device_put(
        X8, fnx.devices()[3]), PlacementError, "cpu:0,1,2,3,4,5,6,7 .* cpu:3", "device_put"),
    "other devices in jit": (lambda m: fnx.jit(jnp.add)(
        fnx.device_put(X8, fnx.devices()[2]), fnx.device_put(X8, fnx.devices()[3])),
        PlacementError, "cpu:2 .* cpu:3", r"fnx.devices\('cpu'\)\[2\]"),
    "parts of another shape": (lambda m: fnx.make_array_from_callback(
        (8,), NamedSharding(m, P("a")), lambda i: np.ones(3)), ShapeError, r"\(2,\), got \(3,\)",
        ""),
    "too few parts": (lambda m: fnx.make_array_from_single_device_arrays(
        (8,), NamedSharding(m, P("a")), [X8]), ArgumentError, "each of 8 devices, got 1", "order"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name: str, mesh: Mesh) -> None:
    call, kind, message, cure = BAD[name]
    for _ in range(2):
        with pytest.raises(kind, match=f"(?s){message}.*{cure}"):
            call(mesh)


def test_all_shardings_on_one_device_are_equivalent() -> None:
    device, other = fnx.devices()[:2]
    mesh = Mesh(np.array([device]), ("a",))
    on_one = [SingleDeviceSharding(device), NamedSharding(mesh, P()),
              NamedSharding(mesh, P("a"))]
    assert all(s.is_equivalent_to(t, 2) for s in on_one for t in on_one)
    assert not any(s.is_equivalent_to(SingleDeviceSharding(other), 2) for s in on_one)


def test_a_constraint_in_a_trace_leaves_an_uneven_axis_whole() -> None:
    sharding = NamedSharding(fnx.make_mesh((4,), ("a",), devices=fnx.devices()[:4]), P("a"))
    f = fnx.value_and_grad(lambda x: (lax.with_sharding_constraint(x * 2, sharding) ** 2).sum())
    value, gradient = fnx.jit(f)(jnp.arange(6.0))
    assert float(value) == 220
    np.testing.assert_array_equal(gradient, 8 * np.arange(6.0))
    with pytest.raises(ShapeError, match="divisible into 4 parts"):
        lax.with_sharding_constraint(jnp.arange(6.0), sharding)
