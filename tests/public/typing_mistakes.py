"""A user's script with deliberate mistakes, each marked; test_typing.py runs mypy on it.

``# mistake: CODE`` ends a line on which ``mypy --strict`` must report CODE. It must report nothing
else, so the lines between are correct. Nobody calls ``main``.
"""

import fnx
import fnx.lax as lax
import fnx.numpy as jnp
from fnx.typing import Array, ArrayLike


def loss(w: Array, x: Array) -> Array:
    return jnp.sum((x @ w) ** 2, axis=0, keepdims=False)


def scale(x: Array, by: float = 2.0) -> Array:
    return x * by


def double(x: ArrayLike) -> Array:
    return jnp.add(x, x)


def wrong(x: ArrayLike) -> float:
    return jnp.add(x, x)  # mistake: return-value


def main() -> None:
    x = jnp.ones((2, 3))
    w = jnp.zeros(3, dtype=jnp.float32)
    step = fnx.jit(scale)
    gradient = fnx.grad(loss)

    jnp.sin("0.5")  # mistake: arg-type
    jnp.sum(x, axs=0)  # mistake: call-arg
    jnp.sum(x, axis=0.5)  # mistake: arg-type
    step(x, 2.0, 3.0)  # mistake: call-arg
    step(x, bye=2.0)  # mistake: call-arg
    count: int = jnp.sum(x)  # mistake: assignment
    print(count)
    jnp.sinn(x)  # mistake: attr-defined
    lax.negg(x)  # mistake: attr-defined
    jnp.zeros(3, dtype=32)  # mistake: arg-type
    jnp.zeros((3, 2.5))  # mistake: arg-type
    x.mean(axs=0)  # mistake: call-arg
    x.foo()  # mistake: attr-defined
    x.at[0].set(1.0, modee="clip")  # mistake: call-arg
    x.at[0].set(1.0, mode="clamp")  # mistake: arg-type
    jnp.matmul(x, w, precision="nonsense")  # mistake: arg-type
    gradient(w)  # mistake: call-arg
    fnx.nn.relu(x, 1.0)  # mistake: call-arg
    fnx.random.normal(fnx.random.key(0), shape="2")  # mistake: arg-type
    fnx.vmapp  # mistake: attr-defined
    text: str = step(x)  # mistake: assignment
    print(text)
    double(jnp.where(x > 0, x, 0.0)).sum(axis=(0, 1), keepdims=True).astype(jnp.int32).item()
    wrong(1.0)
