"""dm-haiku: training a convolutional net with batch norm, and an LSTM unrolled over time."""

import json

import haiku as hk
import jax
import jax.numpy as jnp
import optax


def classify(images, is_training):
    x = hk.Conv2D(8, 3, with_bias=False)(images)
    x = jax.nn.relu(hk.BatchNorm(True, True, 0.9)(x, is_training))
    x = hk.dropout(hk.next_rng_key(), 0.1, x) if is_training else x
    return hk.nets.MLP([16, 3])(hk.Flatten()(x))


def sequence(x):
    core = hk.LSTM(12)
    outs, _ = hk.dynamic_unroll(core, x, core.initial_state(x.shape[1]))
    return hk.Linear(1)(outs[-1])


NET = hk.transform_with_state(classify)
RNN = hk.without_apply_rng(hk.transform(sequence))
ADAM = optax.adam(1e-2)


@jax.jit
def step(params, state, opt, key, images, labels):
    def loss(params):
        logits, new = NET.apply(params, state, key, images, True)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), new
    (value, state), grads = jax.value_and_grad(loss, has_aux=True)(params)
    updates, opt = ADAM.update(grads, opt)
    return optax.apply_updates(params, updates), state, opt, value


@jax.jit
def rnn_loss(params, x):
    return jnp.mean((RNN.apply(params, x) - x.sum(0)[:, :1]) ** 2)


def main():
    images = jax.random.normal(jax.random.key(1), (8, 10, 10, 1))
    labels = jnp.arange(8) % 3
    params, state = NET.init(jax.random.PRNGKey(0), images, True)
    opt, keys, losses = ADAM.init(params), hk.PRNGSequence(3), []
    for _ in range(6):
        params, state, opt, value = step(params, state, opt, next(keys), images, labels)
        losses.append(float(value))
    logits, _ = NET.apply(params, state, None, images, False)
    x = jax.random.normal(jax.random.key(2), (7, 4, 2))
    weights = RNN.init(jax.random.PRNGKey(5), x)
    grads = jax.grad(rnn_loss)(weights, x)
    print(json.dumps({
        "losses": losses, "logits": logits.tolist(), "size": hk.data_structures.tree_size(params),
        "rnn": float(rnn_loss(weights, x)), "rnn_gradient": float(optax.global_norm(grads))}))


if __name__ == "__main__":
    main()
