"""jaxtyping: functions whose shapes and dtypes are checked when they run, also under jit."""

import json

import jax
import jax.numpy as jnp
from beartype import beartype
from jaxtyping import Array, Float, Int, PyTree, jaxtyped


@jaxtyped(typechecker=beartype)
def attend(q: Float[Array, "time dim"], k: Float[Array, "time dim"], v: Float[Array, "time out"]
           ) -> Float[Array, "time out"]:
    return jax.nn.softmax(q @ k.T / jnp.sqrt(q.shape[-1])) @ v


@jax.jit
@jaxtyped(typechecker=beartype)
def embed(table: Float[Array, "vocab dim"], ids: Int[Array, "*batch"]
          ) -> Float[Array, "*batch dim"]:
    return table[ids]


@jaxtyped(typechecker=beartype)
def total(tree: PyTree[Float[Array, "..."]]) -> Float[Array, ""]:
    return sum(jnp.sum(x) for x in jax.tree.leaves(tree))


def is_refused(f, *args):
    try:
        f(*args)
    except Exception:
        return 1
    return 0


def main():
    x = jnp.sin(jnp.arange(12.0)).reshape(4, 3)
    ids = jnp.array([[0, 1], [2, 3]])
    print(json.dumps({
        "attention": jax.jit(attend)(x, x, x).tolist(),
        "gradient": jax.grad(lambda x: total(attend(x, x, x)))(x).tolist(),
        "embedding": embed(x, ids).tolist(), "tree": total({"a": x, "b": [x, x]}).tolist(),
        "batch": jax.vmap(attend)(x[None], x[None], x[None]).tolist(),
        "refused": [is_refused(attend, x, x[:3], x), is_refused(embed, x, x),
                    is_refused(jax.jit(attend), x, x.T, x), is_refused(total, [ids]),
                    is_refused(attend, x, x, x), int(isinstance(x, Float[Array, "4 3"])),
                    int(isinstance(x, Float[Array, "4 4"]))]}))


if __name__ == "__main__":
    main()
