"""A few products on matrix units; ``python -m tests.attack.products`` checks more."""

from __future__ import annotations

import pytest

from tests.attack import products

COMPILED = True


@pytest.mark.cases(2)
@pytest.mark.parametrize("seed", range(200, 208))
def test_products_of_narrow_types_are_the_wide_ones(seed: int) -> None:
    products.check(seed)
