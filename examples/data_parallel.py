"""Train a digit classifier on several devices, each with a part of every batch.

    python examples/data_parallel.py                  # 8 devices of one process: some seconds
    python examples/data_parallel.py --devices 4
    mpiexec -n 2 python examples/data_parallel.py     # 8 devices of two processes

The loss of one shard is written for one device; shard_map runs it on all of them, and pmean makes
the loss of the batch. The weights after training are compared with those of one device.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import numpy as np

import fnx
import fnx.lax as lax
import fnx.numpy as jnp
from fnx import NamedSharding, P

BATCH, RATE = 64, 0.5


def digits(count: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return noisy pictures of ten random shapes of 8 x 8 points, and which shape each shows."""
    rng = np.random.default_rng(0)
    shapes = rng.standard_normal((10, 64)).astype(np.float32)
    labels = rng.integers(0, 10, count)
    noise = rng.standard_normal((count, 64)).astype(np.float32)
    return shapes[labels] + 1.5 * noise, labels.astype(np.int32)


def loss(weights: Any, pictures: Any, labels: Any) -> Any:
    """Return the mean surprise of a network with one hidden layer."""
    hidden = jnp.tanh(pictures @ weights["in"])
    scores = fnx.nn.log_softmax(hidden @ weights["out"])
    return -jnp.take_along_axis(scores, labels[:, None], 1).mean()


def train(mean_loss: Any, pictures: Any, labels: Any, steps: int, placed: Any = np.asarray
          ) -> tuple[Any, list[float]]:
    """Return the weights after some steps of gradient descent on batches, and the losses."""
    rng = np.random.default_rng(1)
    weights = {"in": jnp.asarray(rng.standard_normal((64, 32)).astype(np.float32) / 8),
               "out": jnp.zeros((32, 10))}

    @fnx.jit
    def step(weights: Any, pictures: Any, labels: Any) -> Any:
        value, slopes = fnx.value_and_grad(mean_loss)(weights, pictures, labels)
        return fnx.tree.map(lambda w, g: w - RATE * g, weights, slopes), value
    losses = []
    for i in range(steps):
        at = slice(i * BATCH % len(labels), i * BATCH % len(labels) + BATCH)
        weights, value = step(weights, placed(pictures[at]), placed(labels[at]))
        losses.append(float(value))
    return weights, losses


def main(argv: list[str] | None = None) -> None:
    """Train on several devices and on one, and print how far they are apart."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args(argv)
    count = sum(int(os.environ.get(name, 0)) for name in ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE")) or 1
    fnx.config.cpu_devices = options.devices // count
    if count > 1:
        fnx.distributed.initialize()
    mesh = fnx.make_mesh((fnx.device_count(),), ("data",))
    rows = NamedSharding(mesh, P("data"))
    pictures, labels = digits(4096)

    def placed(batch: Any) -> Any:
        return fnx.make_array_from_process_local_data(rows, batch, batch.shape)

    sharded_loss = fnx.shard_map(lambda w, x, y: lax.pmean(loss(w, x, y), "data"), mesh=mesh,
                                 in_specs=(P(), P("data"), P("data")), out_specs=P())
    weights, losses = train(sharded_loss, pictures, labels, options.steps, placed)
    on_one, _ = train(loss, pictures, labels, options.steps)
    apart = max(float(abs(np.asarray(a) - np.asarray(b)).max()) for a, b in
                zip(fnx.tree.leaves(weights), fnx.tree.leaves(on_one)))
    if fnx.process_index() == 0:
        fnx.debug.visualize_array_sharding(placed(pictures[:BATCH]))
        print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f} on {fnx.device_count()} devices; "
              f"the weights of one device are within {apart:.1e}")


if __name__ == "__main__":
    main()
