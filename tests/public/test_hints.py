"""A misspelt name gets the right hint: a table of misspellings, and words that are no name."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from typing import Any

import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax, nn, random
from fnx.core.support import name_hints

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
    array.reshap reshape    fnx.tree_map fnx.tree.map jnp.sofmax fnx.nn.softmax  fnx.pmp pmap
    jnp.flatten ravel       jnp.topk fnx.lax.top_k    fnx.tree_leaves fnx.tree.leaves
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


@pytest.mark.parametrize("name, cure", [
    ("unsqueeze", "fnx.numpy.expand_dims(x, axis)"), ("numpy", "numpy.asarray(x)"),
    ("to", "fnx.device_put(x, device)"), ("cuda", 'fnx.devices("cuda")'),
    ("cpu", "numpy.asarray(x)"), ("backward", "fnx.grad(loss)(params)"),
    ("detach", "fnx.lax.stop_gradient(x)"), ("permute", "x.transpose("),
    ("requires_grad", "fnx.grad(loss)(params)"), ("append", "fnx.numpy.append(x, value)"),
    ("exp", "fnx.numpy.exp(x)"), ("float", 'x.astype("float32")'), ("numel", "x.size"),
    ("add_", "immutable"), ("scatter_add_", "x.at[index].add(value)")])
def test_a_method_of_other_libraries_has_a_cure(name: str, cure: str) -> None:
    for read in (lambda x: getattr(x, name), fnx.jit(lambda x: getattr(x, name))):
        with pytest.raises(AttributeError) as error:
            read(jnp.ones(3))
        first, fix = str(error.value).splitlines()[0::max(1, str(error.value).count("\n"))]
        assert f"an Array has no attribute {name!r}" in first and "test_hints.py:" in first
        assert cure in fix


@pytest.mark.parametrize("path, cure", [
    ("fnx.no_grad", "fnx.lax.stop_gradient(x)"), ("jnp.tensor", "fnx.numpy.asarray(data)"),
    ("nn.Linear", "flax or equinox"), ("fnx.optim", "optax"), ("fnx.show", ".lower(x).show()"),
    ("fnx.manual_seed", "fnx.random.key(seed)"), ("nn.cross_entropy", "fnx.nn.log_softmax"),
    ("fnx.cuda", 'fnx.devices("cuda")'), ("config.debug_nans", "fnx.debug_nans()"),
    ("jnp.view", "x.reshape(shape)"),
    ("random.manual_seed", "did you mean 'key'?")])
def test_what_other_libraries_have_in_a_module_has_a_cure(path: str, cure: str) -> None:
    assert cure in message(path)


@pytest.mark.parametrize("name, cure", [
    ("show", "f.lower(x).show()"), ("view", "f.lower(x).view()"),
    ("compile", "f.lower(x).compile()"), ("profile", "fnx.profile(f)(x)"),
    ("grad", "fnx.grad(f)(x)"), ("llvm", "f.lower(x).llvm()"), ("py_func", "f.__wrapped__")])
def test_a_method_that_a_transformed_function_lacks_has_a_cure(name: str, cure: str) -> None:
    for f in (fnx.jit(lambda x: x), fnx.grad(lambda x: x), fnx.vmap(lambda x: x)):
        with pytest.raises(AttributeError, match=re.escape(cure)):
            getattr(f, name)


def test_what_has_a_cure_is_not_there() -> None:
    """Neither in lists of names, nor for hasattr; and a user's attribute comes first."""
    def f(x: Any) -> Any:
        return x
    f.show = 3  # type: ignore[attr-defined]
    for value, cures in ((jnp.ones(3), name_hints.CURES_OF_ARRAYS),
                         (fnx.jit(lambda x: x), name_hints.CURES_OF_FUNCTIONS)):
        assert not set(dir(value)) & set(cures)
        assert not [name for name in cures if hasattr(value, name)]
    assert fnx.jit(f).show == 3 and "show" in dir(fnx.jit(f))  # type: ignore[attr-defined]


def named() -> Iterator[str]:
    """Yield each name of fnx and of NumPy that a cure says to write."""
    for cures in (name_hints.CURES_OF_ARRAYS, name_hints.CURES_OF_FUNCTIONS,
                  name_hints.CURES_OF_MODULES, name_hints.CURES_OF_KERNEL_VALUES,
                  name_hints.CURES_OF_REFERENCES):
        for cure in cures.values():
            yield from re.findall(r"\b(?:fnx|numpy)(?:\.\w+)+",
                                  re.sub(r"\bk\.", "fnx.kernel.", cure))


def test_what_a_cure_names_is_there() -> None:
    for path in set(named()):
        value: Any = importlib.import_module(path.partition(".")[0])
        for name in path.split(".")[1:]:
            value = getattr(value, name)
    x, f = OWNERS["array"], fnx.jit(lambda x: x)
    for cures, letter, owner in ((name_hints.CURES_OF_ARRAYS, "x", x),
                                 (name_hints.CURES_OF_FUNCTIONS, "f", f)):
        methods = {name for cure in cures.values()
                   for name in re.findall(rf"\b{letter}\.(\w+)", cure)}
        assert not [name for name in methods if not hasattr(owner, name)]
    stages = f.lower(x)
    assert not [name for cure in name_hints.CURES_OF_FUNCTIONS.values()
                for name in re.findall(r"\.lower\(x\)\.(\w+)", cure) if not hasattr(stages, name)]


def test_an_attribute_that_is_called_has_a_cure() -> None:
    for called in (lambda x: x.size(0), lambda x: x.shape(), lambda x: x.T(), lambda x: x.dtype()):
        with pytest.raises(TypeError) as caught:
            fnx.jit(called)(jnp.ones((2, 3)))
        assert "write x.shape, not x.shape()" in caught.value.__notes__[0]
