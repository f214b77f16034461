"""The first of the generated calls of ``test_op_golden.py``, compiled."""

from __future__ import annotations

import pytest

import fnx
from tests.public.generated import FAMILIES, RECORDED, modules

COMPILED = True  # see conftest.py
CASES = 3  # per family


@pytest.mark.cases(6)
@pytest.mark.parametrize("family", FAMILIES)
def test_answers_as_jax_does_compiled(family: str) -> None:
    cases, check = modules()
    for case, want in zip(cases.cases(family, CASES), RECORDED[family]):
        said = check.difference(case, want, fnx, jit=True)
        assert not said, f"{case.expression} of {case.operands}: {said}"
