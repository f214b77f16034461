"""The configuration: one parser for variables and assignments, sources, misspelt names."""

import os
import subprocess
import sys
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fnx.backends.device.base import get_device
from fnx.core.support.config import DEVICES, FIELDS, Config, config, override
from fnx.core.support.errors import ArgumentError, DeviceError


def test_override_restores_values_and_sources() -> None:
    before = repr(config)
    with pytest.raises(ZeroDivisionError), override(x64=True, workers=3):
        assert config.x64 and config.workers == 3 and config.key()[0] is True
        assert "workers = 3  (assigned)" in repr(config)
        raise ZeroDivisionError
    assert repr(config) == before
    with pytest.raises(ArgumentError, match="expected the name of a setting"):
        config.no_such_field = 1  # type: ignore[attr-defined]
    with pytest.raises(ArgumentError, match="expected the name of a setting"), \
            override(no_such_field=1):
        pass


def test_from_the_environment() -> None:
    fresh = Config({"FNX_WORKERS": " 3", "FNX_CHECK_SPEC": "0", "FNX_DEVICE": "interp"})
    assert (fresh.workers, fresh.check_spec, fresh.device) == (3, False, "interp")
    assert "workers = 3  (FNX_WORKERS)" in str(fresh) and "x64 = False  (default)" in str(fresh)
    assert [line.split()[0] for line in str(fresh).splitlines()] == list(FIELDS)
    assert Config({"FNX_WORKERS": "", "FNX_CACHE_DIR": ""}).cache_dir == ""
    assert Config({"FNX_CHECK": "nan"}).check == "nan"


def test_variables_of_jax_are_read_unless_one_of_fnx_is_set() -> None:
    fresh = Config({"FNX_ENABLE_X64": "0"})
    fresh.read_jax_variables({"JAX_ENABLE_X64": "1", "JAX_DEBUG_NANS": "True",
                              "JAX_PLATFORMS": "cpu", "JAX_LOG_COMPILES": "0"})
    assert (fresh.x64, fresh.check) == (False, "nan")
    fresh = Config({})
    fresh.read_jax_variables({"JAX_ENABLE_X64": "true"})
    assert fresh.x64
    for name, text, words in (("JAX_ENABLE_X64", "maybe", "JAX_ENABLE_X64: expected True or False"),
                              ("JAX_PLATFORMS", "tpu", "jax_platforms to be None or 'cpu'")):
        with pytest.raises(ArgumentError, match=words):
            fresh.read_jax_variables({name: text})


@pytest.mark.parametrize("text, value", [
    ("false", False), ("False", False), ("no", False), ("off", False), ("0", False), ("", False),
    ("true", True), ("TRUE", True), ("1", True), ("yes", True), ("on", True)])
def test_words_for_true_and_false(text: str, value: bool) -> None:
    assert Config({"FNX_CHECK_SPEC": text}).check_spec is value


@pytest.mark.parametrize("variable, text, words", [
    ("FNX_WORKERS", "abc", "an integer from 0 to 1,024"),
    ("FNX_WORKERS", "-1", "an integer from 0 to 1,024"),
    ("FNX_WORKERS", "99999999", "an integer from 0 to 1,024"),
    ("FNX_WORKERS", "2.5", "an integer"), ("FNX_CHECK_SPEC", "maybe", "True or False"),
    ("FNX_CHECK", "1", "one of '', nan, inf"),
    ("FNX_DEVICE", "tpu", "one of cpu, cuda, interp, null, opencl, soft, trace, webgpu"),
    ("FNX_CACHE_BYTES", "1 GB", "an integer")])
def test_what_a_variable_does_not_take(variable: str, text: str, words: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        Config({variable: text})
    assert caught.value.message.startswith(f"{variable}: expected {words}")
    assert repr(text) in caught.value.message and caught.value.hint


@pytest.mark.parametrize("name, value", [
    ("workers", -1), ("workers", "3"), ("workers", True), ("x64", 1), ("device", "tpu"),
    ("cache_dir", 3), ("time_limit", -1.0), ("time_limit", float("nan")), ("cache_bytes", 1.5)])
def test_an_assignment_is_checked_alike(name: str, value: object) -> None:
    before = getattr(config, name)
    with pytest.raises(ArgumentError, match=rf"config\.{name}: expected .*, got"):
        setattr(config, name, value)
    assert getattr(config, name) == before


@given(st.sampled_from([n for n, f in FIELDS.items() if f.variable]), st.text(max_size=8))
def test_any_text_is_a_legal_value_or_a_clear_error(name: str, text: str) -> None:
    field = FIELDS[name]
    try:
        made = Config({str(field.variable): text})
    except ArgumentError as e:
        assert field.kind.description in e.message
    else:
        assert field.kind.is_valid(getattr(made, name))


def test_a_misspelt_variable_warns_with_the_nearest_name() -> None:
    with pytest.warns(UserWarning, match="FNX_WORKER is not read.*nearest that is: FNX_WORKERS"):
        Config({"FNX_WORKER": "2"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Config({"FNX_WORKERS": "2", "OTHER_WORKER": "3"})


def test_the_home_directory_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert Config({"FNX_CACHE_DIR": "~/cache"}).cache_dir == "/home/me/cache"
    with override(cache_dir="~/cache"):
        assert config.cache_dir == "/home/me/cache"


def test_a_bad_variable_says_so_at_the_import() -> None:
    done = subprocess.run([sys.executable, "-c", "import fnx"], capture_output=True, text=True,
                          env=os.environ | {"FNX_WORKERS": "abc"})
    assert done.returncode == 1
    assert "FNX_WORKERS: expected an integer from 0 to 1,024, got 'abc'" in done.stderr


def test_each_device_is_registered_once() -> None:
    for name in DEVICES:
        try:
            assert get_device(name).name == name
        except DeviceError as why:  # no driver here
            assert why.message.startswith(f"{name}: ") and why.hint
