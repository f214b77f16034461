"""rlax: returns, TD errors, policy losses and a V-trace actor-critic step."""

import json

import jax
import jax.numpy as jnp
import optax
import rlax

T, A = 12, 4


def forward(params, observations):
    hidden = jnp.tanh(observations @ params["w"])
    return hidden @ params["policy"], (hidden @ params["value"])[..., 0]


def loss(params, batch):
    logits, values = forward(params, batch["observations"])
    rhos = rlax.categorical_importance_sampling_ratios(
        logits[:-1], batch["behavior"], batch["actions"])
    errors = rlax.vtrace_td_error_and_advantage(
        values[:-1], values[1:], batch["rewards"], batch["discounts"], rhos)
    policy = rlax.policy_gradient_loss(logits[:-1], batch["actions"], errors.pg_advantage,
                                       jnp.ones(T))
    entropy = rlax.entropy_loss(logits[:-1], jnp.ones(T))
    return policy + 0.5 * jnp.mean(errors.errors ** 2) + 0.01 * entropy


@jax.jit
def step(params, opt, batch):
    value, grads = jax.value_and_grad(loss)(params, batch)
    updates, opt = optax.rmsprop(1e-2).update(grads, opt)
    return optax.apply_updates(params, updates), opt, value


def main():
    keys = jax.random.split(jax.random.key(0), 5)
    params = {"w": jax.random.normal(keys[0], (5, 8)), "value": jnp.ones((8, 1)) / 8,
              "policy": jax.random.normal(keys[1], (8, A))}
    batch = {"observations": jax.random.normal(keys[2], (T + 1, 5)),
             "actions": jnp.arange(T) % A, "rewards": jnp.sin(jnp.arange(float(T))),
             "discounts": jnp.full(T, 0.95), "behavior": jax.random.normal(keys[3], (T, A))}
    opt, losses = optax.rmsprop(1e-2).init(params), []
    for _ in range(5):
        params, opt, value = step(params, opt, batch)
        losses.append(float(value))
    q = jax.random.normal(keys[4], (T + 1, A))
    td = jax.vmap(rlax.double_q_learning)(
        q[:-1], batch["actions"], batch["rewards"], batch["discounts"], q[1:], q[1:] * 0.9)
    print(json.dumps({
        "losses": losses, "double_q": td.tolist(),
        "returns": rlax.lambda_returns(batch["rewards"], batch["discounts"], q[1:, 0],
                                       0.9).tolist(),
        "twohot": rlax.transform_to_2hot(jnp.array([0.3, -1.2]), -2.0, 2.0, 9).tolist(),
        "squash": rlax.signed_hyperbolic(q[0]).tolist()}))


if __name__ == "__main__":
    main()
