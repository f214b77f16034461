"""``fnx.torch.function`` and ``load``: modules as pure functions that all transforms take."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import fnx
import fnx.numpy as jnp
import fnx.torch
from fnx.core.support.errors import ArgumentError, DTypeError, ModelError, ShapeError

BATCH = torch.export.Dim("batch", min=2, max=16)


@pytest.fixture(autouse=True)
def seed() -> Iterator[None]:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of torch.export about itself
        yield


def tensor(x: Any) -> torch.Tensor:
    return torch.from_dlpack(x).clone()


def array(x: torch.Tensor) -> Any:
    return jnp.from_dlpack(x.detach().contiguous(), copy=True)


def convnet() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4),
                               torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 5))


def test_values_and_gradients_are_those_of_pytorch() -> None:
    module, x = convnet().eval(), torch.randn(2, 3, 8, 8)
    f, params = fnx.torch.function(module)
    assert params.keys() == dict(module.named_parameters()).keys()
    gradients = fnx.jit(fnx.grad(lambda p, x: jnp.sum(f(p, x) ** 2)))(params, array(x))
    y = module(x)
    torch.testing.assert_close(tensor(f(params, array(x))), y)
    y.square().sum().backward()
    for name, p in module.named_parameters():
        torch.testing.assert_close(tensor(gradients[name]), p.grad, rtol=1e-4, atol=1e-4)


def test_gradients_of_each_example() -> None:
    module, x = convnet().eval(), torch.randn(3, 3, 8, 8)
    f, params = fnx.torch.function(module)
    each = fnx.vmap(fnx.grad(lambda p, x: jnp.sum(f(p, x[None]) ** 2)), (None, 0))(
        params, array(x))
    for i in range(3):
        module.zero_grad()
        module(x[i:i + 1]).square().sum().backward()
        for name, p in module.named_parameters():
            torch.testing.assert_close(tensor(each[name][i]), p.grad, rtol=1e-4, atol=1e-4)


def test_buffers_that_change_are_results() -> None:
    module, x = convnet(), torch.randn(2, 3, 8, 8)
    f, params = fnx.torch.function(module)
    with pytest.raises(ArgumentError, match=r"changes 1\.num_batches_tracked, .*\n.*f\.update"):
        f(params, array(x))
    y, buffers = fnx.jit(f.update)(params, f.buffers, array(x))
    torch.testing.assert_close(tensor(y), module(x))
    for name, b in module.named_buffers():
        torch.testing.assert_close(tensor(buffers[name]), b)


def test_the_mode_and_the_weights_are_those_of_the_call() -> None:
    module, x = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout()).eval(), \
        torch.randn(2, 4)
    expected = module(x)
    f, params = fnx.torch.function(module)
    module.train()[0].weight.data.zero_()
    torch.testing.assert_close(tensor(f(params, array(x))), expected)


def test_random_modules_take_a_key() -> None:
    f, params = fnx.torch.function(torch.nn.Dropout(0.25))
    x = jnp.ones((100, 100))
    with pytest.raises(ArgumentError, match=r"rng=fnx\.random\.key"):
        f(params, x)
    a, b, c = (f(params, x, rng=fnx.random.key(i)) for i in (0, 0, 1))
    assert bool((a == b).all()) and not bool((a == c).all())
    assert abs(float(a.mean()) - 1) < 0.05


class Stopped(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            y = x * 3
        return (x.detach() * x + y).sum()


def test_detach_and_no_grad_stop_gradients() -> None:
    f, params = fnx.torch.function(Stopped())
    assert fnx.grad(lambda x: f(params, x))(jnp.asarray([1.0, 2.0])).tolist() == [1.0, 2.0]


class Named(torch.nn.Module):
    def forward(self, ids: torch.Tensor, *, scale: float = 1.0, double: bool = False
                ) -> dict[str, torch.Tensor]:
        y = ids * scale
        return {"y": y * 2 if double else y, "index": ids}


def test_arguments_by_name_python_values_and_structures() -> None:
    f, params = fnx.torch.function(Named())
    result = f(params, ids=jnp.asarray([1, 2]), double=True, scale=0.5)
    assert result["y"].tolist() == [1.0, 2.0] and result["index"].dtype.name == "int64"


def test_tied_parameters_are_one() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 3, bias=False), torch.nn.Linear(3, 3))
    module[1].weight = module[0].weight
    f, params = fnx.torch.function(module)
    assert params.keys() == {"0.weight", "1.bias"}
    x = torch.randn(2, 3)
    gradient = fnx.grad(lambda p: f(p, array(x)).sum())(params)["0.weight"]
    module(x).sum().backward()
    torch.testing.assert_close(tensor(gradient), module[0].weight.grad)


def test_files_of_modules(tmp_path: Path) -> None:
    f, params = fnx.torch.function(torch.nn.Linear(3, 2))
    x = jnp.ones((4, 3))
    fnx.export(f, params, x, to="fnx", name="linear").save(tmp_path)
    read = fnx.load_exported(tmp_path / "linear.fnx")
    assert bool((read(params, x) == f(params, x)).all())


def test_load_checks_dynamic_sizes_and_dtypes() -> None:
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 2))
    exported = torch.export.export(module, (torch.ones(4, 3, 4),),
                                   dynamic_shapes=({0: BATCH},))
    f, params = fnx.torch.load(exported)
    for n in (2, 5, 16):
        x = torch.randn(n, 3, 4)
        torch.testing.assert_close(tensor(fnx.jit(f)(params, array(x))), module(x))
    with pytest.raises(ShapeError, match=r"got \(17, 3, 4\)"):
        f(params, jnp.ones((17, 3, 4)))
    with pytest.raises(ShapeError, match="dynamic_shapes"):
        f(params, jnp.ones((4, 3, 5)))
    with pytest.raises(DTypeError, match="astype"):
        f(params, jnp.ones((4, 3, 4), "float16"))
    with pytest.raises(ArgumentError, match="structure"):
        f(params, jnp.ones((4, 3, 4)), 1)


class Branches(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x


class Writes(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.add_(1)


def test_what_is_no_pure_function_is_refused() -> None:
    x = jnp.ones(3)
    for module, error, words in (
            (Branches(), ModelError, "can't trace Branches"),
            (Writes(), ArgumentError, r"write x = x \+ 1")):
        f, params = fnx.torch.function(module)
        with pytest.raises(error, match=words):
            f(params, x)
    with pytest.raises(ArgumentError, match="make a module"):
        fnx.torch.function(lambda x: x)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"torch\.export\.load"):
        fnx.torch.load("model.pt2")
    f, params = fnx.torch.function(torch.nn.Linear(3, 3))
    with pytest.raises(ArgumentError, match="differ in bias"):
        f({"weight": params["weight"]}, x)
