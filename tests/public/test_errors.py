"""Every error that reaches users has a name in ``fnx.errors`` to catch it by."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.kernel as k
import fnx.numpy as jnp
from fnx.core.support import errors

CLASSES = [value for value in vars(errors).values()
           if isinstance(value, type) and issubclass(value, Exception | Warning)]


@pytest.mark.parametrize("error", CLASSES, ids=lambda c: str(c.__name__))
def test_a_class_of_errors_is_public(error: type) -> None:
    assert getattr(fnx.errors, error.__name__) is error
    assert error.__name__ in fnx.errors.__all__


def test_what_modules_derive_can_be_caught_by_a_public_name() -> None:
    """An error class of a module derives from a public class more specific than FnxError."""
    for module in pkgutil.walk_packages(fnx.__path__, "fnx."):
        if not module.name.startswith(("fnx.as_jax.", "fnx.torch")) and \
                not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    left, found = [fnx.FnxError], set[type]()
    while left:
        of = left.pop().__subclasses__()
        left += of
        found.update(of)
    for error in found - set(CLASSES):
        name = error.__name__
        named = getattr(importlib.import_module(error.__module__), "__all__", ())
        assert name in named or not {*error.__mro__[1:]}.isdisjoint(CLASSES[1:]), error
    assert len(found) >= len(CLASSES) - 2


def test_they_are_caught(tmp_path: Path) -> None:
    path = tmp_path / "w.npz"
    path.write_bytes(b"PK")
    with pytest.raises(fnx.errors.CheckpointError):
        fnx.load(path)
    with pytest.raises(fnx.errors.OutOfMemoryError):
        jnp.zeros((1 << 32, 1 << 32))

    @fnx.call(out=lambda x: x)
    def nothing(x: object, o: object) -> None:
        pass

    with pytest.raises(fnx.errors.KernelError):
        nothing(jnp.ones(3))


def test_a_module_without_its_package_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch
                                                             ) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "fnx.torch", raising=False)
    with pytest.raises(fnx.errors.FnxError, match="package torch.*\n.*pip install 'torch'"):
        importlib.import_module("fnx.torch")


def test_a_fault_in_an_installed_library_names_the_users_line(tmp_path: Path) -> None:
    file = tmp_path / "site-packages" / "library.py"
    code = compile("def apply(x, y):\n    return x + y\n", str(file), "exec")
    library: dict[str, Any] = {}
    exec(code, library)
    with pytest.raises(fnx.errors.ShapeError) as caught:
        library["apply"](jnp.ones(2), jnp.ones(3))  # the user's line
    line = caught.tb.tb_lineno
    first, second = str(caught.value).splitlines()[:2]
    assert first.startswith(f"{file}:2: ")
    assert second.endswith(f"test_errors.py:{line}") and second.startswith("  Called at ")
    with pytest.raises(fnx.errors.ShapeError) as caught:
        jnp.ones(2) + jnp.ones(3)
    assert "Called at" not in str(caught.value)


def test_names_of_code_for_jax_are_jaxs() -> None:
    for owner, name in (("jax", "jax.tree.map"), ("fnx", "fnx.tree.map")):
        error = errors.UnknownNameError(f"module '{owner}'", "tree_map", ("jit",), "")
        assert str(error).endswith(f"did you mean {name!r}?")


@pytest.mark.parametrize(("f", "shown"), [
    (jnp.unique, "float32[2, 3] as ar:"), (jnp.argwhere, "float32[2, 3] as a:"),
    (lambda x: jnp.setdiff1d(jnp.ones(2), x), "float32[2, 3] as ar2:"),
    (lambda x: jnp.extract(x > 0, x), "bool[2, 3] as condition computed at"),
    (lambda x: jnp.compress(x[0] > 0, x[0]), "bool[3] as condition computed at")])
def test_a_result_of_unknown_length_names_the_argument_as_it_was_passed(
        f: Callable[[Any], Any], shown: str) -> None:
    with pytest.raises(fnx.errors.TracedValueError) as caught:
        fnx.jit(f)(jnp.ones((2, 3)))
    assert f"expected a concrete value, got a traced {shown}" in str(caught.value)
    assert "size=" in str(caught.value)


def test_in_a_kernel_the_function_of_the_same_name_is_the_cure() -> None:
    def cure(f: Callable[[Any], Any]) -> str:
        @fnx.call(out=lambda x: x)
        def kernel(x: Any, o: Any) -> None:
            i = k.range(x.shape[0])
            o[i] = f(x[i])

        with pytest.raises(fnx.errors.KernelError) as caught:
            kernel(jnp.ones(3))
        return caught.value.hint

    assert [cure(jnp.exp), cure(np.exp), cure(jnp.sum)] == ["use k.exp", "use k.exp", "use k.sum"]
    assert "the functions of fnx.kernel" in cure(jnp.cumsum)
    assert "the functions of fnx.kernel" in cure(lambda x: jnp.stack([x, x]))


def test_a_range_without_a_name_is_named_by_its_line() -> None:
    @fnx.call(out=lambda x: x)
    def kernel(x: Any, o: Any) -> None:
        i, j = k.range(x.shape[0]), k.range(x.shape[0])
        o[i] = x[j]

    with pytest.raises(fnx.errors.KernelError, match=r"in each iteration of the range made at "
                       r"\S*test_errors\.py:\d+ \(number 2 of 2 there\)"):
        kernel(jnp.ones(3))


def number(*_: Any) -> Any:
    return 1.0


TORCH: dict[str, Any] = {"dim": 0}
MISPLACED: dict[str, tuple[Callable[[], Any], str]] = {
    "scan": (lambda: fnx.lax.scan(0.0, number, jnp.ones(3)),
             "write scan(f, init, xs, length, ...)"),
    "fori_loop": (lambda: fnx.lax.fori_loop(0, 3, 0.0, number),
                  "write fori_loop(lower, upper, body_fun, init_val)"),
    "while_loop": (lambda: fnx.lax.while_loop(5, number, number),
                   "write while_loop(cond_fun, body_fun, init_val)"),
    "cond": (lambda: fnx.lax.cond(number, number, True),
             "write cond(pred, true_fun, false_fun, *operands)"),
    "map": (lambda: fnx.lax.map(jnp.ones(3), number), "write map(f, xs)"),
    "vjp": (lambda: fnx.vjp(1.0, number), "write vjp(f, x)"),
    "vmap": (lambda: fnx.vmap(jnp.ones(3), number), "write vmap(f)(x), not vmap(f(x))"),
    "one_hot": (lambda: fnx.nn.one_hot(3, jnp.arange(3)), "write one_hot(x, num_classes)"),
    "linspace": (lambda: jnp.linspace(0, 1, 2.5), "use int(...)"),
    "repeat": (lambda: jnp.repeat(jnp.ones(2), 2.5), "use int(...)"),
    "permutation": (lambda: fnx.random.permutation(fnx.random.key(0), 5.5), "use int(...)"),
    "no return": (lambda: fnx.grad(lambda x: None)(1.0), "a function without a return statement"),
    "keyword": (lambda: jnp.sum(jnp.ones(3), **TORCH), "did you mean 'axis'?"),
    "text": (lambda: "a" * jnp.ones(3), "convert the data to numbers first"),
    "padding": (lambda: fnx.lax.conv(jnp.ones((1, 1, 3, 3)), jnp.ones((1, 1, 3, 3)), (1, 1), "SME"),
                "did you mean 'SAME'?")}


@pytest.mark.parametrize("name", MISPLACED)
def test_arguments_in_another_order_say_the_order(name: str) -> None:
    f, hint = MISPLACED[name]
    with pytest.raises(fnx.errors.FnxError) as caught:
        f()
    assert str(caught.value.hint).startswith(hint)


def test_text_is_in_no_array() -> None:
    assert "a" not in jnp.ones(3) and 1 in jnp.ones(3)
