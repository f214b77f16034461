"""Training: an MLP, a convolutional net with batch norm, a transformer of flax.linen."""

import json
import sys

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.training import train_state

SIZE = int(sys.argv[1]) if len(sys.argv) > 1 else 1  # width multiplier of the models
STEPS = 5 if SIZE == 1 else 20


class Trained(train_state.TrainState):
    statistics: dict


def train(model, x, loss, optimizer):
    """Return the loss of each step; ``loss`` takes the model's output."""
    variables = model.init({"params": jax.random.key(0), "dropout": jax.random.key(1)}, x)
    state = Trained.create(apply_fn=model.apply, params=variables["params"], tx=optimizer,
                           statistics=variables.get("batch_stats", {}))

    @jax.jit
    def step(state, key):
        def value(params):
            out, changed = state.apply_fn(
                {"params": params, "batch_stats": state.statistics}, x, rngs={"dropout": key},
                mutable=["batch_stats"])
            return loss(out), changed.get("batch_stats", {})
        (found, statistics), g = jax.value_and_grad(value, has_aux=True)(state.params)
        return state.apply_gradients(grads=g).replace(statistics=statistics), found

    found = []
    for i in range(STEPS):
        state, value = step(state, jax.random.fold_in(jax.random.key(2), i))
        found.append(float(value))
    return found


class MLP(nn.Module):
    @nn.compact
    def __call__(self, x):
        for width in (8 * SIZE, 8 * SIZE):
            x = nn.gelu(nn.Dense(width)(x))
        return nn.Dense(1)(x)[:, 0]


def mlp():
    x = jax.random.normal(jax.random.key(3), (16 * SIZE, 3))
    y = jnp.sin(x.sum(1))
    return train(MLP(), x, lambda out: jnp.mean((out - y) ** 2), optax.adam(1e-2))


class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Conv(4 * SIZE, (3, 3))(x)
        x = nn.relu(nn.BatchNorm(use_running_average=False, momentum=0.9)(x))
        x = nn.max_pool(x, (2, 2), strides=(2, 2))
        x = nn.avg_pool(nn.Conv(4 * SIZE, (3, 3), strides=2)(x), (2, 2))
        return nn.Dense(3)(x.reshape(x.shape[0], -1))


def cnn():
    x = jax.random.normal(jax.random.key(3), (6, 8, 8, 1))
    labels = jnp.arange(6) % 3
    return train(Net(), x, lambda out: optax.softmax_cross_entropy_with_integer_labels(
        out, labels).mean(), optax.sgd(0.1, momentum=0.9))


class Block(nn.Module):
    @nn.compact
    def __call__(self, x):
        h = nn.LayerNorm()(x)
        h = nn.MultiHeadDotProductAttention(num_heads=2)(
            h, mask=nn.make_causal_mask(jnp.ones(x.shape[:2])))
        x = x + nn.Dropout(0.1, deterministic=False)(h)
        return x + nn.Dense(x.shape[-1])(nn.silu(nn.Dense(2 * x.shape[-1])(nn.RMSNorm()(x))))


class Transformer(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(11, 8 * SIZE)(tokens)
        x = x + self.param("places", nn.initializers.normal(0.1), x.shape[1:])
        for _ in range(2):
            x = Block()(x)
        return nn.Dense(11)(x)


def transformer():
    text = (jnp.arange(28) ** 2 % 11).reshape(4, 7)
    return train(Transformer(), text[:, :-1],
                 lambda out: optax.softmax_cross_entropy_with_integer_labels(
                     out, text[:, 1:]).mean(), optax.adamw(3e-3))


class Deep(nn.Module):
    """Layers under ``nn.scan`` and ``nn.remat``, each with its own parameters."""

    @nn.compact
    def __call__(self, x):
        class Layer(nn.Module):
            @nn.compact
            def __call__(self, x, _):
                return x + nn.tanh(nn.Dense(x.shape[-1])(x)), None

        layers = nn.scan(nn.remat(Layer), variable_axes={"params": 0},
                         split_rngs={"params": True}, length=3)
        return layers()(x, None)[0]


def scanned():
    x = jax.random.normal(jax.random.key(3), (4, 5))
    return train(Deep(), x, lambda out: jnp.mean(out ** 2), optax.adam(1e-2))


def main():
    print(json.dumps({f.__name__: f() for f in (mlp, cnn, transformer, scanned)}))


if __name__ == "__main__":
    main()
