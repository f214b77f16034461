"""Values of all processes, under the names of ``jax.experimental.multihost_utils``.

Each function is called by all processes in the same order. With one process they work, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fnx.core.array import tree
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array
from fnx.core.array.placement import not_addressable
from fnx.core.scope import communicator
from fnx.core.support.errors import DistributedError, lazy_module
from fnx.core.support.process import lazy_import
from fnx.sharding.constraints import move
from fnx.sharding.mesh import Mesh
from fnx.sharding.named_sharding import NamedSharding, PartitionSpec

__all__ = ["assert_equal", "broadcast_one_to_all", "global_array_to_host_local_array",
           "host_local_array_to_global_array", "process_allgather", "sync_global_devices"]

_from_blocks = lazy_import("fnx.device_transfer", "make_array_from_process_local_data")


def sync_global_devices(name: str) -> None:
    """Wait until all processes come here.

    Args:
        name: of the place, the same in all processes.

    Raises:
        DistributedError: another process waits elsewhere, or does not come.

    >>> sync_global_devices("after the data is loaded")
    """
    got = communicator.of_process().exchange(name.encode(), f"sync_global_devices({name!r})")
    _check_same(got, f"the processes wait at sync_global_devices({name!r})", [*map(bytes.decode,
                                                                                  got)])


def assert_equal(in_tree: Any, fail_message: str = "") -> None:
    """Raise unless arrays have equal values in all processes.

    Args:
        in_tree: a pytree of arrays.
        fail_message: the beginning of the error's message.

    Raises:
        DistributedError: they differ.

    >>> assert_equal({"seed": 3})
    """
    data = b"".join([repr((x.dtype.str, x.shape)).encode() + x.tobytes()
                     for x in map(_value, tree.leaves(in_tree))])
    _check_same(communicator.of_process().exchange(data, "assert_equal"),
                fail_message or "assert_equal: the values are equal")


def _check_same(got: list[bytes], what: str, texts: list[str] | None = None) -> None:
    if differ := [i for i, data in enumerate(got) if data != got[0]]:
        shown = f": {texts[differ[0]]!r} and {texts[0]!r}" if texts else ""
        raise DistributedError(f"expected that {what}, those of process {differ[0]} and 0 differ"
                               f"{shown}", hint="all processes must come here with the same values")


def broadcast_one_to_all(in_tree: Any, is_source: bool | None = None) -> Any:
    """Return the values of one process in all processes.

    Args:
        in_tree: a pytree of arrays, of the same shapes and dtypes in all processes.
        is_source: whether this process has the values; by default process 0 does.

    Returns:
        A pytree of NumPy arrays.

    Raises:
        DistributedError: not one process is the source.

    >>> broadcast_one_to_all({"seed": 3})
    {'seed': array(3, dtype=int32)}
    """
    current = communicator.of_process()
    source = current.rank == 0 if is_source is None else is_source
    leaves, structure = tree.flatten(in_tree)
    values = [_value(x) for x in leaves]
    got = current.exchange(b"1" + b"".join([x.tobytes() for x in values]) if source else b"",
                           "broadcast_one_to_all")
    sent = [data for data in got if data]
    if len(sent) != 1 or len(sent[0]) != 1 + sum([x.nbytes for x in values]):
        raise DistributedError("broadcast_one_to_all: expected one source with arrays of the same "
                               f"shapes in all processes, got {len(sent)}",
                               hint="is_source is true in one process")
    out, at = [], 1
    for x in values:
        out.append(np.frombuffer(sent[0], x.dtype, x.size, at).reshape(x.shape))
        at += x.nbytes
    return structure.unflatten(out)


def process_allgather(in_tree: Any, tiled: bool = False) -> Any:
    """Return the whole arrays in all processes.

    Args:
        in_tree: a pytree. An Array over several processes is gathered; of others, each process has
            one.
        tiled: join the arrays of the processes along their first axis; False: along a new one.

    Returns:
        A pytree of NumPy arrays.

    >>> process_allgather(np.ones(2, np.float32)).shape
    (1, 2)
    """
    def gather(x: Any) -> Any:
        if type(x) is Array and not x.is_fully_addressable:
            whole = move(x, NamedSharding(x.sharding.mesh, PartitionSpec()))
            return np.asarray(whole)
        value = _value(x)
        rows = [np.frombuffer(data, value.dtype).reshape(value.shape) for data in
                communicator.of_process().exchange(value.tobytes(), "process_allgather")]
        return np.concatenate(rows) if tiled and value.ndim else np.stack(rows)
    return tree.map(gather, in_tree)


def host_local_array_to_global_array(local_inputs: Any, global_mesh: Mesh, pspecs: Any) -> Any:
    """Return arrays over a mesh from the blocks of each process.

    Args:
        local_inputs: a pytree of arrays: the block of this process.
        global_mesh: the mesh.
        pspecs: a PartitionSpec, or a tree of them.

    Returns:
        A pytree of Arrays.

    >>> import fnx
    >>> mesh = fnx.make_mesh((1,), ("x",))
    >>> host_local_array_to_global_array(np.ones(2, np.float32), mesh, fnx.P("x"))
    Array([1., 1.], dtype=float32)
    """
    return _map_specs(lambda x, spec: _from_blocks(
        NamedSharding(global_mesh, spec), _value(x)), local_inputs, pspecs)


def global_array_to_host_local_array(global_inputs: Any, global_mesh: Mesh, pspecs: Any) -> Any:
    """Return the blocks of this process of arrays over a mesh.

    Args:
        global_inputs: a pytree of Arrays.
        global_mesh: the mesh.
        pspecs: a PartitionSpec, or a tree of them.

    Returns:
        A pytree of Arrays.

    >>> import fnx, fnx.numpy as jnp
    >>> mesh = fnx.make_mesh((1,), ("x",))
    >>> global_array_to_host_local_array(jnp.ones(2), mesh, fnx.P("x"))
    Array([1., 1.], dtype=float32)
    """
    def block(x: Any, spec: PartitionSpec) -> Any:
        placed = move(asarray(x), NamedSharding(global_mesh, spec))
        return placed if placed.is_fully_addressable else \
            placed._part(placed.sharding._block(placed.shape))
    return _map_specs(block, global_inputs, pspecs)


def _map_specs(f: Any, value: Any, specs: Any) -> Any:
    leaves, structure = tree.flatten(value)
    targets = tree.leaves(tree.broadcast(specs, value, is_leaf=_is_spec), is_leaf=_is_spec)
    return structure.unflatten([f(x, PartitionSpec() if s is None else s)
                                for x, s in zip(leaves, targets)])


def _is_spec(x: Any) -> bool:
    return x is None or isinstance(x, PartitionSpec)


def _value(x: Any) -> Any:
    """Return the value of an array that this process has."""
    x = asarray(x)
    if not (x.is_fully_addressable or x.is_fully_replicated):
        raise not_addressable("multihost_utils")
    return np.asarray(x)


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
