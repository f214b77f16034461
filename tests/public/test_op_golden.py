"""Generated calls of convolutions, sorts and similar functions answer as JAX did.

Record it again with scripts/record_jax_ops.py, which also compares live.
"""

from __future__ import annotations

from typing import Any

import pytest

import fnx
from tests.public.generated import FAMILIES, RECORDED, modules


@pytest.mark.cases(7)
@pytest.mark.parametrize("family", FAMILIES)
def test_answers_as_jax_does(family: str) -> None:
    cases, check = modules()
    recorded: list[Any] = RECORDED[family]
    for case, want in zip(cases.cases(family, len(recorded)), recorded, strict=True):
        said = check.difference(case, want, fnx)
        assert not said, f"{case.expression} of {case.operands}: {said}"


def test_the_recording_is_of_all_families() -> None:
    assert sorted(FAMILIES) == sorted(modules()[0].FAMILIES)
    assert RECORDED["jax"] == "0.10.2"
