"""Training: an MLP, a convolutional net with batch norm, a transformer of flax.nnx."""

import json
import sys

import jax
import jax.numpy as jnp
import optax
from flax import nnx

SIZE = int(sys.argv[1]) if len(sys.argv) > 1 else 1  # width multiplier of the models
STEPS = 5 if SIZE == 1 else 20


def train(model, x, loss, optimizer):
    """Return the loss of each step; ``loss`` takes the model's output."""
    optimizer = nnx.Optimizer(model, optimizer, wrt=nnx.Param)

    @nnx.jit
    def step(model, optimizer):
        value, g = nnx.value_and_grad(lambda model: loss(model(x)))(model)
        optimizer.update(model, g)
        return value

    return [float(step(model, optimizer)) for _ in range(STEPS)]


class MLP(nnx.Module):
    def __init__(self, rngs):
        self.layers = nnx.List([
            nnx.Linear(3, 8 * SIZE, rngs=rngs), nnx.Linear(8 * SIZE, 8 * SIZE, rngs=rngs)])
        self.last = nnx.Linear(8 * SIZE, 1, rngs=rngs)

    def __call__(self, x):
        for layer in self.layers:
            x = nnx.gelu(layer(x))
        return self.last(x)[:, 0]


def mlp():
    x = jax.random.normal(jax.random.key(3), (16 * SIZE, 3))
    y = jnp.sin(x.sum(1))
    return train(MLP(nnx.Rngs(0)), x, lambda out: jnp.mean((out - y) ** 2), optax.adam(1e-2))


class Net(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Conv(1, 4 * SIZE, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(4 * SIZE, rngs=rngs)
        self.dropout = nnx.Dropout(0.2, rngs=rngs)
        self.last = nnx.Linear(64 * SIZE, 3, rngs=rngs)

    def __call__(self, x):
        x = nnx.max_pool(nnx.relu(self.norm(self.first(x))), (2, 2), strides=(2, 2))
        return self.last(self.dropout(x.reshape(x.shape[0], -1)))


def cnn():
    x = jax.random.normal(jax.random.key(3), (6, 8, 8, 1))
    labels = jnp.arange(6) % 3
    return train(Net(nnx.Rngs(0)), x,
                 lambda out: optax.softmax_cross_entropy_with_integer_labels(
                     out, labels).mean(), optax.sgd(0.1, momentum=0.9))


class Block(nnx.Module):
    def __init__(self, rngs):
        size = 8 * SIZE
        self.before, self.after = nnx.LayerNorm(size, rngs=rngs), nnx.RMSNorm(size, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(2, size, decode=False, rngs=rngs)
        self.wide = nnx.Linear(size, 2 * size, rngs=rngs)
        self.narrow = nnx.Linear(2 * size, size, rngs=rngs)

    def __call__(self, x):
        x = x + self.attention(self.before(x), mask=nnx.make_causal_mask(jnp.ones(x.shape[:2])))
        return x + self.narrow(nnx.silu(self.wide(self.after(x))))


class Transformer(nnx.Module):
    def __init__(self, rngs):
        self.tokens = nnx.Embed(11, 8 * SIZE, rngs=rngs)
        self.places = nnx.Param(0.1 * jax.random.normal(rngs.params(), (6, 8 * SIZE)))
        self.blocks = nnx.List([Block(rngs) for _ in range(2)])
        self.head = nnx.Linear(8 * SIZE, 11, rngs=rngs)

    def __call__(self, tokens):
        x = self.tokens(tokens) + self.places[...]
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def transformer():
    text = (jnp.arange(28) ** 2 % 11).reshape(4, 7)
    return train(Transformer(nnx.Rngs(0)), text[:, :-1],
                 lambda out: optax.softmax_cross_entropy_with_integer_labels(
                     out, text[:, 1:]).mean(), optax.adamw(3e-3))


def main():
    print(json.dumps({f.__name__: f() for f in (mlp, cnn, transformer)}))


if __name__ == "__main__":
    main()
