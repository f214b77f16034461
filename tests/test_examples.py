"""The example that ``make demo`` runs, for two epochs."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "digits.py"


@pytest.fixture(scope="module")
def digits() -> ModuleType:
    spec = importlib.util.spec_from_file_location("digits_example", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look their annotations up there
    spec.loader.exec_module(module)
    return module


def test_split_is_fixed_stratified_and_complete(digits: ModuleType) -> None:
    data, again = digits.load(), digits.load()
    assert len(data.x_train) + len(data.x_test) == 1797
    np.testing.assert_array_equal(data.x_test, again.x_test)
    train, test = (np.bincount(y, minlength=10) for y in (data.y_train, data.y_test))
    np.testing.assert_allclose(test / (train + test), 0.2, atol=0.01)


def test_an_epoch_visits_every_image_once_and_ends_ragged(digits: ModuleType) -> None:
    import fnx.random

    data = digits.load()
    batches = digits.batches(fnx.random.key(0), data, 64)
    assert [len(y) for _, y in batches] == [64] * 22 + [29]
    visited = np.concatenate([x for x, _ in batches])
    assert not np.array_equal(visited, data.x_train)
    np.testing.assert_array_equal(np.sort(visited.sum(1)), np.sort(data.x_train.sum(1)))


def test_two_epochs_learn_most_digits(digits: ModuleType, tmp_path: Path,
                                      capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "digits.png"
    digits.main(["--seeds", "1", "--epochs", "2", "--out", str(picture)])
    lines = capsys.readouterr().out.splitlines()
    accuracy = re.fullmatch(r"test accuracy: (0\.\d\d\d)", lines[-1])
    assert accuracy is not None and float(accuracy[1]) > 0.85
    kernels = re.search(r"(\d+) kernels", "\n".join(lines))
    assert kernels is not None and int(kernels[1]) <= 20
    assert picture.read_bytes().startswith(b"\x89PNG")
