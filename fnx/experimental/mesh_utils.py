"""Arrays of devices for meshes, under the names of ``jax.experimental.mesh_utils``."""

from fnx.sharding.mesh import create_device_mesh

__all__ = ["create_device_mesh"]
