"""The examples, each for some seconds: they learn, draw a picture, and resume after an
interruption."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import fnx

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{name}_example", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its dataclasses look up annotations
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def digits() -> ModuleType:
    return example("digits")


@pytest.fixture(scope="module")
def char_lm() -> ModuleType:
    return example("char_lm")


def is_picture(path: Path) -> bool:
    return path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 10_000


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_split_is_fixed_stratified_and_complete(digits: ModuleType) -> None:
    data, again = digits.load(), digits.load()
    assert len(data.x_train) + len(data.x_test) == 1797
    np.testing.assert_array_equal(data.x_test, again.x_test)
    train, test = (np.bincount(y, minlength=10) for y in (data.y_train, data.y_test))
    np.testing.assert_allclose(test / (train + test), 0.2, atol=0.01)


def test_an_epoch_visits_every_image_once_and_ends_ragged(digits: ModuleType) -> None:
    data = digits.load()
    batches = digits.batches(fnx.random.key(0), data, 64)
    assert [len(y) for _, y in batches] == [64] * 22 + [29]
    visited = np.concatenate([x for x, _ in batches])
    assert not np.array_equal(visited, data.x_train)
    np.testing.assert_array_equal(np.sort(visited.sum(1)), np.sort(data.x_train.sum(1)))


def two_epochs_learn_most_digits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "digits.png"
    example("digits").main(["--seeds", "1", "--epochs", "2", "--out", str(picture)])
    said = lines(capsys)
    accuracy = re.fullmatch(r"test accuracy: (0\.\d\d\d)", said[-1])
    assert accuracy is not None and float(accuracy[1]) > 0.85
    kernels = re.search(r"(\d+) kernels", "\n".join(said))
    assert kernels is not None and int(kernels[1]) <= 20
    assert is_picture(picture)


def a_small_convolutional_network_learns(tmp_path: Path,
                                         capsys: pytest.CaptureFixture[str]) -> None:
    digits: Any = example("digits")
    digits.CHANNELS, digits.HEAD, digits.RATE = (1, 8, 8), (8 * 4 * 4, 10), 1e-2
    digits.main(["--conv", "--seeds", "1", "--epochs", "2", "--out", str(tmp_path / "conv.png")])
    assert float(lines(capsys)[-1].rpartition(" ")[2]) > 0.8


def test_shifted_images_are_the_images(digits: ModuleType) -> None:
    x = np.arange(1.0, 2 * 64 + 1).reshape(2, 64)
    moved = digits.shifted(fnx.random.key(3), np.repeat(x, 50, axis=0), 1).reshape(100, 8, 8)
    corners = moved[:, 0, 0].reshape(2, 50)
    assert set(corners[0]) == {1, 2, 9, 10}  # the edge, or one pixel further in
    assert digits.shifted(fnx.random.key(3), x, 0) is x


def the_autoencoder_learns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "vae.png"
    example("vae").main(["--epochs", "12", "--rate", "6e-3", "--out", str(picture)])
    assert float(lines(capsys)[-1].split()[2]) < 29
    assert is_picture(picture)


def the_parameters_of_the_equation_are_found(tmp_path: Path,
                                             capsys: pytest.CaptureFixture[str]) -> None:
    ode, picture = example("ode"), tmp_path / "ode.png"
    matrix = np.random.default_rng(0).normal(size=(6, 6)).astype("float32")
    matrix = matrix @ matrix.T + np.eye(6, dtype="float32")
    np.testing.assert_allclose(matrix @ np.asarray(ode.solved(matrix, matrix[0])), matrix[0],
                               rtol=1e-4, atol=1e-4)
    ode.main(["--starts", "8", "--steps", "20", "--out", str(picture)])
    said = lines(capsys)
    for line in said[1:7]:
        found, _, deviation, _, true = line.rstrip(")").split()[-5:]
        assert abs(float(found) - float(true)) < 4 * float(deviation), line
    assert float(said[-1].split()[-4]) < 40 and is_picture(picture)


def the_process_learns_period_and_noise(tmp_path: Path,
                                        capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "gp.png"
    example("gp").main(["--count", "80", "--starts", "4", "--steps", "120", "--out", str(picture)])
    words = lines(capsys)[-1].replace(",", "").split()
    assert int(words[words.index("at") + 1]) > 60  # percent of the times
    assert abs(float(words[words.index("noise") + 1]) - 0.12) < 0.03
    assert abs(float(words[-1]) - 1) < 0.02 and is_picture(picture)


def a_barrier_is_found_that_lets_half_of_a_packet_pass(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "quantum.png"
    example("quantum").main(["--grid", "256", "--steps", "400", "--tries", "6", "--out",
                             str(picture)])
    said = lines(capsys)
    distances = said[1].replace(",", "").split()
    assert float(distances[6]) < 1e-3 and float(distances[-1]) < 1e-3
    assert abs(float(said[2].split()[6]) - 0.5) < 1e-3 and is_picture(picture)


@pytest.mark.cases(3)
@pytest.mark.parametrize("learns", [
    two_epochs_learn_most_digits, a_small_convolutional_network_learns, the_autoencoder_learns,
    the_parameters_of_the_equation_are_found, the_process_learns_period_and_noise,
    a_barrier_is_found_that_lets_half_of_a_packet_pass], ids=lambda f: str(f.__name__))
def test_an_example_learns(learns: Callable[[Path, pytest.CaptureFixture[str]], None],
                           tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    learns(tmp_path, capsys)


# ---- the language model

SMALL = ["--batch", "2", "--length", "16", "--width", "16", "--layers", "1", "--heads", "2",
         "--characters", "5000", "--every", "5"]


def test_the_ngram_model_is_a_distribution(char_lm: ModuleType) -> None:
    """Its probabilities of all characters after a context add up to 1."""
    train = np.random.default_rng(0).integers(0, 3, 60).astype(np.uint8)
    total = 0.0
    for context in ((0, 1), (2, 2), (1, 0)):
        total = sum(np.exp(-char_lm.ngram_loss(char_lm.Text("abc", train, np.array(
            [*context, c], np.uint8)), 3)[2]) for c in range(3))
        np.testing.assert_allclose(total, 1, rtol=1e-12)
    alone = char_lm.ngram_loss(char_lm.Text("abc", train, np.arange(3, dtype=np.uint8)), 1)
    counts = np.bincount(train, minlength=3)
    np.testing.assert_allclose(np.exp(-alone), (counts + 1) / 63, rtol=1e-12)


def test_the_split_is_by_files_and_the_same_each_time(char_lm: ModuleType) -> None:
    text, again = char_lm.read(30_000), char_lm.read(30_000)
    assert len(text.train) == 30_000 and len(text.valid) == 2000
    assert (text.train == again.train).all() and (text.valid == again.valid).all()
    assert "import" in text.show(text.train) and text.show(text.valid) not in text.show(text.train)


def test_the_model_sees_nothing_of_what_comes(char_lm: ModuleType) -> None:
    size = char_lm.Size(2, 8, 2, 6)
    params = char_lm.init(fnx.random.key(0), size, 5)
    before = np.asarray(char_lm.logits(params, np.array([0, 1, 2, 3, 4, 0]), 2))
    after = np.asarray(char_lm.logits(params, np.array([0, 1, 2, 4, 1, 3]), 2))
    assert np.array_equal(before[:3], after[:3]) and not np.array_equal(before[3:], after[3:])


def test_a_killed_run_goes_on_to_the_same_bits(char_lm: ModuleType, tmp_path: Path,
                                               monkeypatch: pytest.MonkeyPatch,
                                               capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "char_lm.png"

    def arguments(save: str) -> list[str]:
        return [*SMALL, "--steps", "100", "--save", str(tmp_path / save), "--out", str(picture)]

    killed = tmp_path / "killed.safetensors"
    program = [sys.executable, str(EXAMPLES / "char_lm.py"), *arguments(killed.name)]
    child = subprocess.Popen(program,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                             env={**os.environ, "PYTHONPATH": str(EXAMPLES.parent)})
    while child.poll() is None and not killed.exists():
        time.sleep(0.002)
    child.kill()  # a signal that no program can handle
    child.wait()
    done = int(fnx.load(killed)["state.step"])
    assert 0 < done < 100
    char_lm.main(arguments(killed.name))
    said = lines(capsys)
    assert f"goes on from step {done} " in said[0]
    assert is_picture(picture)
    monkeypatch.setattr(char_lm, "sample", lambda *args: "")  # once is enough
    monkeypatch.setattr(char_lm, "plot", lambda *args: None)
    char_lm.main(arguments("whole.safetensors"))
    assert killed.read_bytes() == (tmp_path / "whole.safetensors").read_bytes()
    assert lines(capsys)[-1] == said[-1] and float(said[-1].rpartition(" ")[2]) < 3.5


@pytest.fixture
def own_cpu_devices() -> Iterator[None]:
    before = fnx.config.cpu_devices
    yield
    fnx.config.cpu_devices = before


def test_data_parallel_training_has_the_weights_of_one_device(
        capsys: pytest.CaptureFixture[str], own_cpu_devices: None) -> None:
    example("data_parallel").main(["--steps", "20"])
    said = re.fullmatch(r"loss (.*) -> (.*) on 8 devices; .* within (.*)", lines(capsys)[-1])
    assert said is not None and float(said[2]) < float(said[1]) / 2 and float(said[3]) < 1e-5


def test_a_gpt_that_is_sharded_in_five_ways_has_the_losses_of_one_device(
        capsys: pytest.CaptureFixture[str], own_cpu_devices: None) -> None:
    example("sharded_gpt").main(["--steps", "4"])
    form = r"(\w+) +loss (.*) -> (.*), within (.*) of one device; .* (\(.*\)) of.*"
    said = [re.fullmatch(form, x) for x in lines(capsys)]
    parts = {m[1]: m[5] for m in said if m is not None}
    assert parts == {"data": "(4, 64, 256)", "full": "(4, 16, 256)", "tensor": "(4, 64, 64)",
                     "sequence": "(4, 64, 256)", "pipeline": "(1, 64, 256)"}
    assert all(m is not None and float(m[3]) < float(m[2]) and float(m[4]) < 1e-4 for m in said)
