"""A misspelt name gets the right hint: a table of misspellings, and words that are no name."""

from __future__ import annotations

from typing import Any

import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax, nn, random

OWNERS: dict[str, Any] = {
    "array": jnp.ones(3), "config": fnx.config, "debug": fnx.debug, "fnx": fnx, "jnp": jnp,
    "kernel": fnx.kernel, "lax": lax, "linalg": jnp.linalg, "nn": nn, "random": random,
    "stats": fnx.scipy.stats, "tree": fnx.tree}

MISSPELLINGS = """
    jnp.arrange arange      jnp.lingspace linspace    jnp.zero zeros            jnp.cumsm cumsum
    jnp.agrmax argmax       jnp.concatinate concatenate  jnp.tranpose transpose  jnp.wheer where
    jnp.sqaure square       jnp.avg average           jnp.mena mean             jnp.stdev std
    jnp.maximun maximum     jnp.einsun einsum         jnp.matmult matmul        jnp.vstak vstack
    jnp.expand_dim expand_dims  jnp.braodcast_to broadcast_to  jnp.flaot32 float32
    jnp.ones_liek ones_like  jnp.uniqe unique         jnp.meshgird meshgrid     jnp.cat concatenate
    jnp.unsqueeze expand_dims  jnp.logsumexp fnx.nn.logsumexp  jnp.relu fnx.nn.relu
    fnx.vampp vmap          fnx.gard grad             fnx.jitt jit              fnx.hesian hessian
    fnx.grad_and_value value_and_grad  fnx.chekpoint checkpoint  fnx.custum_vjp custom_vjp
    fnx.devcies devices     lax.while while_loop      lax.for_loop fori_loop    lax.cnod cond
    nn.Relu relu            nn.softmx softmax         nn.onehot one_hot         nn.gleu gelu
    random.nomal normal     random.randn normal       random.rand_int randint   random.seed key
    tree.leafs leaves       linalg.invert inv         linalg.cholesy cholesky   debug.pirnt print
    kernel.vectorise vectorize  stats.nrom norm       config.devic device
    array.reshap reshape    array.unsqueeze fnx.numpy.expand_dims  array.permute transpose
    array.numpy numpy.asarray(x)  array.detach fnx.lax.stop_gradient  fnx.tree_map fnx.tree.map
""".split()
NO_NAMES = ("array.foo", "jnp.q", "jnp.train", "jnp.helper", "jnp.data", "fnx.server", "lax.xyz")


def message(path: str) -> str:
    """Return what a user sees who reads this attribute."""
    owner, _, name = path.partition(".")
    with pytest.raises(AttributeError) as error:
        if owner == "array":  # in traces: a hook of the class would slow down all attributes
            fnx.jit(lambda x: getattr(x, name))(OWNERS[owner])
        else:
            getattr(OWNERS[owner], name)
    return str(error.value)


def test_a_misspelt_name_gets_the_right_hint() -> None:
    pairs = dict(zip(MISSPELLINGS[::2], MISSPELLINGS[1::2], strict=True))
    assert len(pairs) >= 50
    wrong = {path: text for path, name in pairs.items()
             if f"did you mean {name!r}?" not in (text := message(path))}
    assert not wrong


def test_functions_of_numpy_that_are_no_methods_are_named() -> None:
    assert "write fnx.numpy.exp(x)" in message("array.exp")


def test_a_word_that_is_like_no_name_gets_no_wrong_hint() -> None:
    assert not [path for path in NO_NAMES if "did you mean" in message(path).lower()]
