"""Training models of equinox: an MLP, a convolutional net with batch norm, a transformer."""

import json
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax

SIZE = int(sys.argv[1]) if len(sys.argv) > 1 else 1  # width multiplier of the models
STEPS = 5 if SIZE == 1 else 20


def train(model, state, loss, optimizer):
    """Return the loss of each step; ``loss`` returns (value, state)."""
    opt = optimizer.init(eqx.filter(model, eqx.is_inexact_array))

    @eqx.filter_jit
    def step(model, state, opt):
        (value, state), g = eqx.filter_value_and_grad(loss, has_aux=True)(model, state)
        updates, opt = optimizer.update(g, opt, eqx.filter(model, eqx.is_inexact_array))
        return eqx.apply_updates(model, updates), state, opt, value

    found = []
    for _ in range(STEPS):
        model, state, opt, value = step(model, state, opt)
        found.append(float(value))
    return found


def mlp():
    x = jr.normal(jr.PRNGKey(1), (16 * SIZE, 3))
    y = jnp.sin(x.sum(1))
    model = eqx.nn.MLP(3, "scalar", 8 * SIZE, 2, activation=jax.nn.gelu, key=jr.PRNGKey(0))
    return train(model, None, lambda m, s: (jnp.mean((jax.vmap(m)(x) - y) ** 2), s),
                 optax.adam(1e-2))


class Net(eqx.Module):
    first: eqx.nn.Conv2d
    norm: eqx.nn.BatchNorm
    pool: eqx.nn.MaxPool2d
    last: eqx.nn.Linear

    def __init__(self, key):
        one, two = jr.split(key)
        self.first = eqx.nn.Conv2d(1, 4 * SIZE, 3, padding=1, key=one)
        self.norm = eqx.nn.BatchNorm(4 * SIZE, axis_name="batch", mode="batch")
        self.pool = eqx.nn.MaxPool2d(2, 2)
        self.last = eqx.nn.Linear(4 * SIZE * 4 * 4, 3, key=two)

    def __call__(self, x, state):
        x, state = self.norm(self.first(x), state)
        return self.last(jnp.ravel(self.pool(jax.nn.relu(x)))), state


def cnn():
    x = jr.normal(jr.PRNGKey(2), (6, 1, 8, 8))
    labels = jnp.arange(6) % 3
    model, state = eqx.nn.make_with_state(Net)(jr.PRNGKey(0))

    def loss(model, state):
        logits, state = jax.vmap(model, axis_name="batch", in_axes=(0, None),
                                 out_axes=(0, None))(x, state)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), state
    return train(model, state, loss, optax.sgd(0.1, momentum=0.9))


class Block(eqx.Module):
    attention: eqx.nn.MultiheadAttention
    before: eqx.nn.LayerNorm
    after: eqx.nn.LayerNorm
    wide: eqx.nn.MLP
    dropout: eqx.nn.Dropout

    def __init__(self, size, key):
        one, two = jr.split(key)
        self.attention = eqx.nn.MultiheadAttention(2, size, key=one)
        self.before, self.after = eqx.nn.LayerNorm(size), eqx.nn.LayerNorm(size)
        self.wide = eqx.nn.MLP(size, size, 2 * size, 1, activation=jax.nn.gelu, key=two)
        self.dropout = eqx.nn.Dropout(0.1)

    def __call__(self, x, key):
        mask = jnp.tril(jnp.ones((x.shape[0], x.shape[0]), bool))
        h = jax.vmap(self.before)(x)
        x = x + self.dropout(self.attention(h, h, h, mask), key=key)
        return x + jax.vmap(self.wide)(jax.vmap(self.after)(x))


class Transformer(eqx.Module):
    tokens: eqx.nn.Embedding
    places: jax.Array
    blocks: list
    head: eqx.nn.Linear

    def __init__(self, key):
        keys = jr.split(key, 5)
        self.tokens = eqx.nn.Embedding(11, 8 * SIZE, key=keys[0])
        self.places = 0.1 * jr.normal(keys[1], (6, 8 * SIZE))
        self.blocks = [Block(8 * SIZE, k) for k in keys[2:4]]
        self.head = eqx.nn.Linear(8 * SIZE, 11, key=keys[4])

    def __call__(self, tokens, key):
        x = jax.vmap(self.tokens)(tokens) + self.places
        for i, block in enumerate(self.blocks):
            x = block(x, jr.fold_in(key, i))
        return jax.vmap(self.head)(x)


def transformer():
    text = (jnp.arange(28) ** 2 % 11).reshape(4, 7)

    def loss(model, state):
        keys = jr.split(jr.PRNGKey(3), 4)
        logits = jax.vmap(model)(text[:, :-1], keys)
        return optax.softmax_cross_entropy_with_integer_labels(
            logits, text[:, 1:]).mean(), state
    return train(Transformer(jr.PRNGKey(0)), None, loss, optax.adamw(3e-3))


def recurrent():
    """A GRU under lax.scan, and partition and tree_at on trees."""
    cell = eqx.nn.GRUCell(3, 5, key=jr.PRNGKey(0))
    xs = jr.normal(jr.PRNGKey(1), (7, 3))

    def loss(cell, state):
        out, _ = jax.lax.scan(lambda h, x: (cell(x, h), None), jnp.zeros(5), xs)
        return jnp.sum(out ** 2), state

    arrays, static = eqx.partition(cell, eqx.is_array)
    again = eqx.combine(arrays, static)
    assert eqx.tree_equal(cell, again)
    bigger = eqx.tree_at(lambda c: c.bias, cell, replace_fn=lambda b: b + 1)
    shapes = eqx.filter_eval_shape(lambda c: loss(c, None)[0], bigger)
    assert shapes.shape == ()
    return train(bigger, None, loss, optax.sgd(0.1))


def main():
    print(json.dumps({f.__name__: f() for f in (mlp, cnn, transformer, recurrent)}))


if __name__ == "__main__":
    main()
