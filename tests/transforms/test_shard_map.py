"""Meshes have one device; programs that would need more are rejected."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.lax as lax
import fnx.numpy as jnp
from fnx.core.support.errors import NotBuiltError
from fnx.sharding import Mesh, PartitionSpec, shard_map


def test_a_mesh_of_one_device_is_the_whole() -> None:
    mesh = Mesh(np.array(fnx.devices()[:1]), ("x",))
    total = shard_map(lambda x: lax.psum(x, "x"), mesh=mesh, in_specs=PartitionSpec("x"),
                      out_specs=PartitionSpec())
    assert total(jnp.ones(2)).tolist() == [1.0, 1.0]


def test_a_mesh_of_the_same_device_twice_is_refused() -> None:
    mesh = Mesh(np.array(fnx.devices()[:1] * 2), ("x",))
    with pytest.raises(NotBuiltError, match="vmap"):
        shard_map(lambda x: lax.psum(x, "x"), mesh=mesh, in_specs=PartitionSpec("x"),
                  out_specs=PartitionSpec())
    both = Mesh(np.array(fnx.devices()[:1] * 2).reshape(1, 2), ("a", "b"))
    assert shard_map(lambda x: lax.psum(x, "a"), mesh=both, in_specs=PartitionSpec("a"),
                     out_specs=PartitionSpec("a"), axis_names={"a"})(jnp.ones(2)).sum() == 2
