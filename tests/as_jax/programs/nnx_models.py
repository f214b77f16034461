"""Training models of flax.nnx: an MLP, a convolutional net with batch norm, a transformer."""

import json

import jax
import jax.numpy as jnp
import optax
from flax import nnx

STEPS = 5


def train(model, x, loss, optimizer):
    """Loss of each step; ``loss`` takes what the model gives."""
    optimizer = nnx.Optimizer(model, optimizer, wrt=nnx.Param)

    @nnx.jit
    def step(model, optimizer):
        value, g = nnx.value_and_grad(lambda model: loss(model(x)))(model)
        optimizer.update(model, g)
        return value

    return [float(step(model, optimizer)) for _ in range(STEPS)]


class MLP(nnx.Module):
    def __init__(self, rngs):
        self.layers = nnx.List([nnx.Linear(3, 8, rngs=rngs), nnx.Linear(8, 8, rngs=rngs)])
        self.last = nnx.Linear(8, 1, rngs=rngs)

    def __call__(self, x):
        for layer in self.layers:
            x = nnx.gelu(layer(x))
        return self.last(x)[:, 0]


def mlp():
    x = jax.random.normal(jax.random.key(3), (16, 3))
    y = jnp.sin(x.sum(1))
    return train(MLP(nnx.Rngs(0)), x, lambda out: jnp.mean((out - y) ** 2), optax.adam(1e-2))


class Net(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Conv(1, 4, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(4, rngs=rngs)
        self.dropout = nnx.Dropout(0.2, rngs=rngs)
        self.last = nnx.Linear(64, 3, rngs=rngs)

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
        self.before, self.after = nnx.LayerNorm(8, rngs=rngs), nnx.RMSNorm(8, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(2, 8, decode=False, rngs=rngs)
        self.wide, self.narrow = nnx.Linear(8, 16, rngs=rngs), nnx.Linear(16, 8, rngs=rngs)

    def __call__(self, x):
        x = x + self.attention(self.before(x), mask=nnx.make_causal_mask(jnp.ones(x.shape[:2])))
        return x + self.narrow(nnx.silu(self.wide(self.after(x))))


class Transformer(nnx.Module):
    def __init__(self, rngs):
        self.tokens = nnx.Embed(11, 8, rngs=rngs)
        self.places = nnx.Param(0.1 * jax.random.normal(rngs.params(), (6, 8)))
        self.blocks = nnx.List([Block(rngs) for _ in range(2)])
        self.head = nnx.Linear(8, 11, rngs=rngs)

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
