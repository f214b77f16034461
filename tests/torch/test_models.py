"""Models compiled by fnx: outputs, gradients, buffers and training steps are those of PyTorch.

In float64, so that the tolerance is PyTorch's own for it.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from fnx.torch.backend import backend
from tests.torch import models


def example(name: str) -> tuple[Any, tuple[Any, ...]]:
    make, inputs = models.MODELS[name]
    return make().double(), tuple([x.double() if x.is_floating_point() else x for x in inputs()])


@pytest.mark.cases(2)
@pytest.mark.parametrize("name", models.MODELS)
def test_training_and_evaluation(name: str) -> None:
    module, args = example(name)
    compiled = torch.compile(copy.deepcopy(module), backend=backend)
    seen: list[Any] = []
    for f in (module, compiled):
        optimizer = torch.optim.SGD(f.parameters(), lr=0.01, momentum=0.9)
        outputs = []
        for _ in range(2):
            optimizer.zero_grad()
            y = f(*args)
            y.square().mean().backward()
            optimizer.step()
            outputs.append(y.detach().clone())
        f.eval()
        with torch.no_grad():
            outputs.append(f(*args))
        seen.append((outputs, [p.grad for p in f.parameters()],
                     [x.clone() for x in f.state_dict().values()]))
    torch.testing.assert_close(seen[1], seen[0])


def test_decoding_writes_into_the_cache() -> None:
    module, _ = example("gpt")
    compiled = torch.compile(module, backend=backend)
    tokens = torch.randint(40, (2, 6))
    caches = torch.zeros(2, 2, 2, 2, 12, 8, dtype=torch.float64)
    with torch.no_grad():
        compiled(tokens[:, :4], caches, 0)
        for i in range(4, 6):
            last = compiled(tokens[:, i:i + 1], caches, i)
        torch.testing.assert_close(last[:, 0], module(tokens)[:, -1])
