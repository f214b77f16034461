"""``torch.compile(module, backend="fnx")``: values and gradients equal to those of PyTorch."""

from __future__ import annotations

import doctest
import importlib
import os
import subprocess
import sys
import tomllib
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch

from fnx.core.support.errors import ArgumentError
from fnx.torch.backend import backend

ROOT = Path(__file__).resolve().parents[2]


def mlp() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))


def compare(module: Any, *args: torch.Tensor) -> None:
    """Compare outputs, and gradients by the parameters, with those of eager PyTorch."""
    compiled = torch.compile(module, backend=backend)
    seen = []
    for f in (module, compiled):
        module.zero_grad()
        y = f(*args)
        y.square().sum().backward()
        seen.append((y, [p.grad.clone() for p in module.parameters()]))
    torch.testing.assert_close(seen[1], seen[0], rtol=1e-4, atol=1e-5)


def test_values_without_gradients() -> None:
    module, x = mlp(), torch.randn(16, 8)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(module, backend=backend)(x), module(x))


def test_gradients() -> None:
    compare(mlp(), torch.randn(16, 8))


def test_a_convolution_with_batch_norm_changes_the_running_statistics() -> None:
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4),
                                 torch.nn.GELU(), torch.nn.MaxPool2d(2), torch.nn.Flatten(),
                                 torch.nn.Linear(36, 5))
    copy, x = deepcopy(module), torch.randn(2, 3, 8, 8)
    compare(module, x)
    copy(x), copy(x)
    torch.testing.assert_close(dict(module.named_buffers()), dict(copy.named_buffers()))


def test_a_training_loop_is_that_of_pytorch() -> None:
    losses = []
    for compiled in (False, True):
        torch.manual_seed(1)
        module = mlp()
        f = torch.compile(module, backend=backend) if compiled else module
        optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
        x, y = torch.randn(32, 8), torch.randn(32, 4)
        for _ in range(5):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(f(x), y)
            loss.backward()
            optimizer.step()
        losses.append(loss.detach())
    torch.testing.assert_close(losses[0], losses[1])


def test_one_graph_serves_many_sizes() -> None:
    module = torch.compile(mlp(), backend=backend)
    for n in (3, 4, 5, 9):
        x = torch.randn(n, 8)
        with torch.no_grad():
            torch.testing.assert_close(module(x), module._orig_mod(x))


@pytest.mark.parametrize("make", [
    lambda: torch.randn(4, 6).t(), lambda: torch.randn(40)[1:25].view(6, 4),
    lambda: torch.randn(12, 8)[::2, ::2], lambda: torch.randn(1, 4).expand(6, 4)],
    ids=["transposed", "unaligned", "strided", "expanded"])
def test_layouts_of_inputs(make: Any) -> None:
    x = make()
    f = torch.compile(lambda x: (x.t() * 2, x.sum(0)), backend=backend)
    for got, expected in zip(f(x), (x.t() * 2, x.sum(0))):
        assert got.stride() == expected.stride()
        torch.testing.assert_close(got, expected)


def test_writes_in_place_reach_the_argument() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * 2

    x = torch.zeros(3)
    assert torch.compile(f, backend=backend)(x).tolist() == [2, 2, 2]
    assert x.tolist() == [1, 1, 1]


def test_writes_into_views_and_into_inputs_that_share_memory() -> None:
    def views(x: torch.Tensor) -> Any:
        y = x.view(-1)
        y[0] = 9
        x.t().add_(1)
        return y

    def shared(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return y * 2

    for f, make in ((views, lambda x: (x,)), (shared, lambda x: (x[:2], x[1:]))):
        seen = []
        for g in (f, torch.compile(f, backend=backend)):
            x = torch.arange(12.0).reshape(3, 4)
            seen.append((g(*make(x)).clone(), x))
        assert all(map(torch.equal, *seen))


def test_a_compiled_optimizer_step() -> None:
    seen = []
    for compiled in (False, True):
        torch.manual_seed(1)
        module = mlp()
        optimizer = torch.optim.AdamW(module.parameters(), lr=0.01)
        step = torch.compile(optimizer.step, backend=backend) if compiled else optimizer.step
        for _ in range(3):
            optimizer.zero_grad()
            module(torch.ones(2, 8)).square().sum().backward()
            step()
        seen.append(list(module.parameters()))
    torch.testing.assert_close(seen[0], seen[1])


def test_autocast_and_channels_last() -> None:
    module = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 6, 6).to(memory_format=torch.channels_last)
    seen = []
    for f in (module, torch.compile(module, backend=backend)):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            seen += [f(x)]
        seen += [f(x)]
    for got, expected in zip(seen[2:], seen):
        assert got.dtype == expected.dtype and got.stride() == expected.stride()
        torch.testing.assert_close(got, expected)


ROWS: dict[str, Any] = {  # that few or none of PyTorch's samples reach
    "gcd": lambda x, z: torch.gcd(x, x.flip(0)), "lcm": lambda x, z: torch.lcm(x, x.flip(0)),
    "iota": lambda x, z: torch.ops.prims.iota(
        5, start=3, step=2, dtype=torch.int64, device="cpu", requires_grad=False) + x[0],
    "isfinite": lambda x, z: torch.isfinite(1 / z.real), "polar": lambda x, z: torch.polar(
        z.real, z.imag).real,
    "parts": lambda x, z: z.real * 2 + z.imag, "conj": lambda x, z: (z.conj() * z).real,
    "convert": lambda x, z: torch.ops.prims.convert_element_type(x, torch.float32) / 2,
    "copy": lambda x, z: torch.ops.aten.copy(z.real, x[0]),
    "reshape": lambda x, z: torch.ops.aten._reshape_copy(x, [2, 3]),
    "rfft": lambda x, z: torch.fft.rfft(x.float() * torch.ones(20, 2, 1), norm="ortho").abs(),
    "irfft": lambda x, z: torch.fft.irfft2(z * torch.ones(4, 3), norm="forward"),
    "ifft": lambda x, z: torch.fft.ifft(z, norm="ortho").real,
    "take": lambda x, z: x.take(x.abs() % 3)}


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_rare_ops(name: str) -> None:
    x = torch.tensor([12, -18, 7, 30, 0, 4])
    z = torch.complex(torch.tensor([1.0, 0.0, -2.0]), torch.tensor([0.5, 3.0, 1.0]))
    torch.testing.assert_close(torch.compile(ROWS[name], backend=backend)(x, z), ROWS[name](x, z))


def test_an_output_that_is_an_input_or_given_twice() -> None:
    def f(x: torch.Tensor) -> Any:
        y = x * 1
        return x, y, y + 0

    x = torch.ones(3)
    results = torch.compile(f, backend=backend)(x)
    assert results[0] is x
    results[1].add_(1)
    assert x.tolist() == [1, 1, 1] and results[2].tolist() == [1, 1, 1]


@torch.library.custom_op("fnx_tests::reverse", mutates_args=())
def reverse(x: torch.Tensor) -> torch.Tensor:
    return x.flip(0)


@reverse.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def test_an_op_that_fnx_lacks_is_computed_by_pytorch_with_a_warning() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return reverse(x * 2) + x.sum()

    x = torch.tensor([0.0, 1.0, 2.0])
    with pytest.warns(UserWarning, match=r"PyTorch computes fnx_tests\.reverse.*test_backend"):
        assert torch.compile(f, backend=backend)(x).tolist() == f(x).tolist()


@pytest.mark.parametrize(("settings", "words"), [
    ({"options": {"triton.cudagraphs": True}}, "got triton.cudagraphs"),
    ({"options": {"search": -1.0}}, "search"),
    ({"mode": "reduce-overhead"}, "leave mode= out"),
    ({"mode": "max-autotune"}, "'search': seconds")])
def test_settings_without_a_meaning_are_refused(settings: Any, words: str) -> None:
    with pytest.raises((ArgumentError, torch._dynamo.exc.BackendCompilerFailed), match=words):
        torch.compile(mlp(), backend=backend, **settings)(torch.ones(1, 8))


def test_options_are_settings_while_compiling() -> None:
    x, index = torch.arange(6.0), torch.tensor([1, 9])
    f = torch.compile(lambda x, i: x[i] * 2, backend=backend,
                      options={"check_index": False, "search": 0.1})
    assert f(x, index)[0] == 2


BOUNDS: dict[str, Any] = {  # x [5, 3], two indices along the first axis
    "embedding": lambda x, i: torch.nn.functional.embedding(i, x),
    "index": lambda x, i: x[i] + 1,
    "index_select": lambda x, i: x.index_select(0, i),
    "gather": lambda x, i: x.gather(0, i[:, None]),
    "take": lambda x, i: x.take(i * 3),
    "nll_loss": lambda x, i: torch.nn.functional.nll_loss(x.T[:2], i),
    "scatter": lambda x, i: x.scatter(0, i[:, None], 1.0),
    "scatter_add": lambda x, i: x.scatter_add(0, i[:, None], x[:2]),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i[:, None], x[:2], "amax"),
    "index_add": lambda x, i: x.index_add(0, i, x[:2]),
    "index_copy": lambda x, i: x.index_copy(0, i, x[:2]),
    "index_fill": lambda x, i: x.index_fill(0, i, 2.0),
    "index_put": lambda x, i: x.index_put((i,), x[0]),
    "one_hot": lambda x, i: torch.nn.functional.one_hot(i, 5) + 0,
    "masked_scatter": lambda x, i: x.masked_scatter(x < i.max(), x[:1, :2])}


@pytest.mark.cases(8)
@pytest.mark.parametrize("name", BOUNDS)
def test_an_index_out_of_bounds_raises_as_in_pytorch(name: str) -> None:
    """On the line of the user's, and nothing is written into arguments."""
    f, x = BOUNDS[name], torch.arange(15.0).reshape(5, 3)
    compiled = torch.compile(f, backend=backend, dynamic=False)
    for index in map(torch.tensor, ([1, 2], [0, 5], [-1, 2], [1, -6], [-100, 0])):
        try:
            expected = f(x, index)
        except (IndexError, RuntimeError) as error:
            with pytest.raises(type(error), match=f"test_backend.py:{f.__code__.co_firstlineno}"):
                compiled(x, index)
        else:
            assert torch.equal(compiled(x, index), expected)


def test_numbers_assigned_by_an_index() -> None:
    def f(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        x[i] = 2.0
        x[:, 1] = -1
        return x

    x, i = torch.ones(5, 3), torch.tensor([1, -2])
    assert torch.equal(torch.compile(f, backend=backend)(x, i), f(x, i))


def test_gradients_of_a_call_with_an_index_out_of_bounds_raise_in_the_forward_pass() -> None:
    x = torch.ones(5, 3, requires_grad=True)
    f = torch.compile(lambda x, i: x[i].sum(), backend=backend)
    f(x, torch.tensor([1, -5])).backward()
    with pytest.raises(IndexError, match="index 5 is out of bounds for dimension 0 with size 5"):
        f(x, torch.tensor([1, 5]))


def test_the_name_needs_no_import(tmp_path: Path) -> None:
    """In a process that has the metadata of pyproject.toml."""
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    folder = tmp_path / "fnx-0.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: fnx\nVersion: 0.0\n")
    (folder / "entry_points.txt").write_text("".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in rows.items())
        for group, rows in points.items()))
    code = """
import sys, torch
assert "fnx" not in sys.modules
f = torch.compile(lambda x: x + 1, backend="fnx")
print(f(torch.ones(2)).tolist(), "fnx" in sys.modules)
"""
    where = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=False,
                          env=os.environ | {"PYTHONPATH": where}, cwd=tmp_path)
    assert done.stdout == "[2.0, 2.0] True\n", done.stderr


def test_importing_fnx_does_not_import_torch() -> None:
    code = "import sys, fnx, fnx.numpy; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=True,
                          env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.stdout == "False\n"


@pytest.mark.cases(7)
@pytest.mark.parametrize("path", sorted((ROOT / "fnx" / "torch").glob("*.py")),
                         ids=lambda path: path.stem)
def test_examples_in_docstrings(path: Path) -> None:
    name = "fnx.torch" + ("" if path.stem == "__init__" else f".{path.stem}")
    assert doctest.testmod(importlib.import_module(name)).failed == 0
