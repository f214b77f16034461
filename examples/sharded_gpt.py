"""Train a small GPT in five ways over several devices; each has the losses of one device.

    python examples/sharded_gpt.py                    # 4 devices of one process: some seconds
    python examples/sharded_gpt.py --ways tensor pipeline
    mpiexec -n 2 python examples/sharded_gpt.py       # 4 devices of two processes

    data       each device has a part of the batch
    full       the same, and a part of each weight and of its momentum
    tensor     each device has some heads, and some columns of the layers after them
    sequence   each device has a part of each text
    pipeline   each device has a layer; parts of the batch go from one to the next

The model is written once, for one device. The first four ways differ in the shardings of weights
and texts only; the last one is a function of a shard that sends what it computed to its neighbor.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import numpy as np

import fnx
import fnx.lax as lax
import fnx.nn as nn
import fnx.numpy as jnp
from fnx import NamedSharding, P

LETTERS, WIDTH, HEADS, LENGTH, BATCH = 32, 64, 4, 32, 16
RATE, DECAY = 0.3, 0.8

# of each weight: its shape, without the axis of layers, and the axis whose parts devices have by
# tensor parallelism
SHAPES: dict[str, tuple[tuple[int, ...], int]] = {
    "query": ((WIDTH, HEADS, WIDTH // HEADS), 1), "key": ((WIDTH, HEADS, WIDTH // HEADS), 1),
    "value": ((WIDTH, HEADS, WIDTH // HEADS), 1), "mix": ((HEADS, WIDTH // HEADS, WIDTH), 0),
    "up": ((WIDTH, 4 * WIDTH), 1), "down": ((4 * WIDTH, WIDTH), 0)}
WAYS = "data", "full", "tensor", "sequence", "pipeline"


def weights_of(layers: int) -> dict[str, Any]:
    """Return weights; those of layers have an axis of layers in front."""
    rng = np.random.default_rng(0)

    def draw(*shape: int) -> Any:
        return (rng.standard_normal(shape) / 8).astype(np.float32)
    blocks = {name: draw(layers, *shape) for name, (shape, _) in SHAPES.items()}
    return {"letters": draw(LETTERS, WIDTH), "places": draw(LENGTH, WIDTH), "blocks": blocks}


def block(w: dict[str, Any], x: Any) -> Any:
    """Return texts after a layer: attention to what is before, and a network."""
    h = nn.standardize(x)
    q, k, v = [jnp.einsum("btd,dhe->bhte", h, w[name]) for name in ("query", "key", "value")]
    scores = jnp.einsum("bhqe,bhke->bhqk", q, k) / np.sqrt(WIDTH // HEADS)
    before = jnp.tril(jnp.ones((LENGTH, LENGTH), bool))
    seen = nn.softmax(jnp.where(before, scores, -1e9))
    x = x + jnp.einsum("bhqk,bhke,hed->bqd", seen, v, w["mix"])
    return x + nn.gelu(nn.standardize(x) @ w["up"]) @ w["down"]


def all_blocks(blocks: dict[str, Any], x: Any) -> Any:
    return lax.scan(lambda x, w: (block(w, x), None), x, blocks)[0]


def loss(weights: dict[str, Any], texts: Any, layers: Any = all_blocks) -> Any:
    """Return the mean surprise about the next letter."""
    x = layers(weights["blocks"], weights["letters"][texts] + weights["places"])
    scores = nn.log_softmax(nn.standardize(x) @ weights["letters"].T)[:, :-1]
    return -(scores * nn.one_hot(texts[:, 1:], LETTERS)).sum(-1).mean()


def pipelined(mesh: Any, parts: int) -> Any:
    """Return ``all_blocks`` with a layer on each device, for a batch in some parts.

    In step t the device i computes its layer of part t - i, and sends the result to device i + 1.
    """
    count = mesh.size

    def stage(blocks: dict[str, Any], x: Any) -> Any:
        here = lax.axis_index("layer")
        mine = fnx.tree.map(lambda w: w[0], blocks)
        queue = x.reshape(parts, -1, *x.shape[1:])

        def step(got: Any, t: Any) -> tuple[Any, Any]:
            first = queue[jnp.clip(t, 0, parts - 1)]
            out = block(mine, jnp.where(here == 0, first, got))
            return lax.ppermute(out, "layer", [(i, i + 1) for i in range(count - 1)]), out
        _, outs = lax.scan(step, jnp.zeros_like(queue[0]), jnp.arange(parts + count - 1))
        done = jnp.where(here == count - 1, outs[count - 1:], 0.0)  # of the last layer
        return lax.psum(done, "layer").reshape(x.shape)
    return fnx.shard_map(stage, mesh=mesh, in_specs=(P("layer"), P()), out_specs=P())


def specs_of(way: str) -> tuple[dict[str, Any], Any]:
    """Return how the weights and the texts are cut."""
    blocks = {name: P() for name in SHAPES}
    weights: dict[str, Any] = {"letters": P(), "places": P(), "blocks": blocks}
    if way == "full":
        weights = {"letters": P("d"), "places": P("d"),
                   "blocks": {name: P(None, "d") for name in SHAPES}}
    elif way == "tensor":
        weights["blocks"] = {name: P(*[None] * (1 + axis), "d")
                             for name, (_, axis) in SHAPES.items()}
    elif way == "pipeline":
        weights["blocks"] = {name: P("layer") for name in SHAPES}
    return weights, {"data": P("d"), "full": P("d"), "sequence": P(None, "d")}.get(way, P())


def train(way: str, layers: int, steps: int) -> tuple[list[float], Any]:
    """Return the losses of some steps in a way, or on one device; and the state."""
    state: Any = weights_of(layers), fnx.tree.map(np.zeros_like, weights_of(layers))
    texts = (np.arange(LENGTH) * np.arange(1, BATCH + 1)[:, None]) % LETTERS
    of_layers = all_blocks
    if way:
        mesh = fnx.make_mesh((fnx.device_count(),), ("layer" if way == "pipeline" else "d",))
        of_weights, of_texts = specs_of(way)
        shardings = fnx.tree.map(lambda spec: NamedSharding(mesh, spec), of_weights,
                                 is_leaf=lambda x: isinstance(x, P))
        state = fnx.device_put(state, (shardings, shardings))
        texts = fnx.device_put(texts, NamedSharding(mesh, of_texts))
        of_layers = pipelined(mesh, BATCH // 4) if way == "pipeline" else all_blocks

    @fnx.jit
    def step(state: Any, texts: Any) -> tuple[Any, Any]:
        weights, momenta = state
        value, slopes = fnx.value_and_grad(loss)(weights, texts, of_layers)
        momenta = fnx.tree.map(lambda m, g: DECAY * m + g, momenta, slopes)
        return (fnx.tree.map(lambda w, m: w - RATE * m, weights, momenta), momenta), value
    losses = []
    for _ in range(steps):
        state, value = step(state, texts)
        losses.append(float(value))
    return losses, state


def main(argv: list[str] | None = None) -> None:
    """Train in some ways and on one device, and print the losses."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, default=4)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    options = parser.parse_args(argv)
    count = sum(int(os.environ.get(name, 0)) for name in ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE")) or 1
    fnx.config.cpu_devices = options.devices // count
    if count > 1:
        fnx.distributed.initialize()
    on_one, _ = train("", fnx.device_count(), options.steps)
    for way in options.ways:
        losses, (weights, _) = train(way, fnx.device_count(), options.steps)
        apart = max(abs(a - b) for a, b in zip(losses, on_one))
        part = weights["blocks"]["up"].sharding.shard_shape(weights["blocks"]["up"].shape)
        if fnx.process_index() == 0:
            print(f"{way:9} loss {losses[0]:.4f} -> {losses[-1]:.4f}, within {apart:.1e} of one "
                  f"device; a device has {part} of 'up'")


if __name__ == "__main__":
    main()
