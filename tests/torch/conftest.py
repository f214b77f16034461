"""What tests of torch.compile share."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest

from fnx.core.support.process import lazy_import

torch = lazy_import("torch")  # this file is read where PyTorch is missing, too


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    """No graphs of other tests; a fallback to PyTorch is an error."""
    torch.compiler.reset()
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="fnx:")
        yield
