"""What every test runs under: the spec of each level checked, and a cache of its own.

The object cache of a test run lives in one temporary directory that all workers of
pytest-xdist share: tests of the cache are real, and the user's own cache is left alone.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

_OWNER = "TEST_OF_FNX_CACHE_OWNER"  # the process that made the directory also removes it

if _OWNER not in os.environ:  # before fnx is imported: its configuration reads the environment
    os.environ["FNX_CACHE_DIR"] = tempfile.mkdtemp(prefix="fnx-test-")
    os.environ[_OWNER] = str(os.getpid())
    os.environ.setdefault("POCL_CACHE_DIR", os.path.join(os.environ["FNX_CACHE_DIR"], "pocl"))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in what a shell runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)  # processes of tests inherit it

settings.register_profile("fnx", deadline=None, print_blob=True,
                          suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("fnx")


collect_ignore_glob = ["*/record_*.py",  # they record what JAX says, and import it
                       "as_jax/programs/*", "as_jax/run.py"]  # run by python -m fnx.as_jax


@pytest.fixture(autouse=True)
def _check_spec() -> Iterator[None]:
    """Every graph is checked between all passes, whatever a test left behind."""
    from fnx.core.config import override

    with override(check_spec=True):
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true",
                     help="write what golden tests see instead of comparing it")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """``golden(name, text)``: the text is that of tests/golden/<name>."""
    def compare(name: str, text: str) -> None:
        path = Path(__file__).parent / "golden" / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"no tests/golden/{name}; make it with --update-golden"
        assert text == path.read_text(), \
            f"tests/golden/{name} says otherwise; where this is right: --update-golden"
    return compare


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Every run draws other examples, in CI, too; the seed is one for all workers and is said."""
    if config.getoption("hypothesis_seed") is None:
        config.option.hypothesis_seed = str(random.SystemRandom().randrange(1 << 32))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The seed of this run, which devices the tests could run on; where one is not here, why."""
    seed = terminalreporter.config.getoption("hypothesis_seed")
    terminalreporter.write_line(f"examples were drawn with --hypothesis-seed={seed}")
    from fnx.backends.base import get_device
    from fnx.core.errors import DeviceError

    slow = ("webgpu",) if "CI" in os.environ else ()
    for name in ("opencl", "cuda", *slow):
        try:
            device: Any = get_device(name)
            terminalreporter.write_line(f"device {name}: {device.driver.kind}")
        except DeviceError as why:
            terminalreporter.write_line(f"device {name} is not here, what needs it is skipped: "
                                        f"{why.message}")


def pytest_unconfigure(config: pytest.Config) -> None:
    if os.environ.get(_OWNER) == str(os.getpid()):
        shutil.rmtree(os.environ["FNX_CACHE_DIR"], ignore_errors=True)
