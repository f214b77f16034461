"""The environment of every test: spec checks at each level, and a cache of its own.

A run draws some of the cases of slow tests, a sixth of the examples of hypothesis and the files
whose kernels LLVM optimizes, others each time. ``--all-cases`` runs and optimizes all of them.

The object cache of a test run is one temporary directory that all workers of pytest-xdist share:
tests of the cache are real, and the user's own cache is left alone.
"""

from __future__ import annotations

import gc
import importlib.util
import linecache
import math
import os
import random
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

_OWNER = "TEST_OF_FNX_CACHE_OWNER"  # process that removes the directory
_STATES: dict[tuple[str, str], Any] = {}  # of random generators of test modules, as imported
_SEED = "seed_of_fnx_tests"  # what workers are told
_OPTIMIZED = "tests/tiny", "tests/backends", "tests/attack"  # files whose kernels LLVM optimizes
_SHARE = 6  # one of so many examples that a test asks for is drawn
_FEW = 3  # but at least so many

if _OWNER not in os.environ:  # before fnx is imported, as its configuration reads the environment
    os.environ["FNX_CACHE_DIR"] = tempfile.mkdtemp(prefix="fnx-test-")
    os.environ[_OWNER] = str(os.getpid())
    os.environ.setdefault("POCL_CACHE_DIR", os.path.join(os.environ["FNX_CACHE_DIR"], "pocl"))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as for a shell's background jobs
    signal.signal(signal.SIGINT, signal.default_int_handler)  # inherited by processes of tests

gc.set_threshold(100_000, 20, 100)  # modules and items of the collection stay

settings.register_profile("fnx", deadline=None, print_blob=True,
                          suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("fnx")


collect_ignore_glob = ["*/record_*.py",  # recorders, which import JAX
                       "as_jax/programs/*", "as_jax/run.py"]  # run by python -m fnx.as_jax
if importlib.util.find_spec("torch") is None:  # make test-torch installs it
    collect_ignore_glob.append("torch/*")


class _AllTests:
    """Hooks for tests in all folders: those of this file are for its own folder."""

    @staticmethod
    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(item: pytest.Item) -> None:
        """Draw whether LLVM optimizes kernels, before fixtures of modules are made, and for all
        threads. Forget the lines of files before a doctest, whose debugger looks at all of these
        files before each example."""
        from fnx.core.support.config import config

        config.disable_most_optimizations = quick = _compiles_quickly(item)
        os.environ["FNX_DISABLE_MOST_OPTIMIZATIONS"] = str(int(quick))  # for processes of the test
        if isinstance(item, pytest.DoctestItem):
            for name in [name for name in linecache.cache if os.path.isabs(name)]:
                linecache.cache.pop(name, None)


def _compiles_quickly(item: pytest.Item) -> bool:
    """Return whether LLVM does not optimize the kernels of a test, which takes it a third of the
    time: in eleven of twelve files, drawn by the run's seed; never for tests of what it emits."""
    file = item.nodeid.partition("::")[0]
    if item.config.getoption("all_cases") or file.startswith(_OPTIMIZED):
        return False
    return random.Random(f"{item.config.getoption('hypothesis_seed')} {file}").random() < 11 / 12


@pytest.fixture(autouse=True)
def _check_spec() -> Iterator[None]:
    """Check every graph between all passes, whatever an earlier test changed."""
    from fnx.core.support.config import override

    with override(check_spec=True):
        yield


@pytest.fixture(autouse=True)
def _same_data(request: pytest.FixtureRequest) -> None:
    """Reset the random generators of the test's module, so that its data do not depend on which
    tests this process ran before."""
    module = request.node.getparent(pytest.Module)
    for name, value in vars(module.obj).items() if module is not None else ():
        if isinstance(value, np.random.Generator):
            state = _STATES.setdefault((module.nodeid, name), value.bit_generator.state)
            value.bit_generator.state = state


@pytest.fixture
def float64() -> Iterator[None]:
    """64-bit types for the whole test."""
    from fnx.core.support.config import override

    with override(x64=True):
        yield


@pytest.fixture
def own_disk_cache(tmp_path: Path) -> Iterator[None]:
    """A disk cache of the test's own, and no outcomes of earlier searches."""
    from fnx.core.support.config import override
    from fnx.transforms.dispatch.schedule_trials import measurements

    with override(cache_dir=str(tmp_path / "cache")):
        measurements.clear()
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all-cases", action="store_true",
                     help="run all cases of a test, also where @pytest.mark.cases draws some, and "
                     "all examples of hypothesis, with kernels that LLVM optimizes")
    parser.addoption("--update-golden", action="store_true",
                     help="write what golden tests see instead of comparing it")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """``golden(name, text)`` checks that text equals tests/golden/<name>."""
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
    """Draw other examples in every run, also in CI, with one seed for all workers, which is
    reported."""
    config.pluginmanager.register(_AllTests())
    config.addinivalue_line("markers", "cases(count, of=''): draw so many of the parametrized "
                            "cases of a test by the run's seed, or of all tests of a file with the "
                            "same word; --all-cases runs all of them")
    if config.getoption("hypothesis_seed") is None:
        drawn = str(random.SystemRandom().randrange(1 << 32))
        config.option.hypothesis_seed = getattr(config, "workerinput", {}).get(_SEED, drawn)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of pytest-xdist the seed: it does not inherit options that were set."""
    node.workerinput[_SEED] = node.config.option.hypothesis_seed


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("all_cases"):
        _draw_examples(items)
        if not any("[" in str(arg) for arg in config.args):
            _draw_cases(config, items)


def _draw_examples(items: list[pytest.Item]) -> None:
    """Let hypothesis draw fewer examples than tests ask for. It reads the settings of a test from
    this attribute, also in its own plugin of pytest."""
    name = "_hypothesis_internal_use_settings"
    functions = {getattr(item, "obj", None) for item in items}
    for function in functions:
        if is_hypothesis_test(function):
            asked = getattr(function, name, settings.default)
            count = max(math.ceil(asked.max_examples / _SHARE), min(asked.max_examples, _FEW))
            setattr(function, name, settings(asked, max_examples=count))


def _draw_cases(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Draw cases of tests that are marked with ``cases``, and tests of the same ``of``: each has
    others from run to run, as hypothesis has other examples. What is asked for by its name always
    runs."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if mark := item.get_closest_marker("cases"):
            word = mark.kwargs.get("of")
            name = f"{item.nodeid.partition('::')[0]} {word}" if word else \
                item.nodeid.partition("[")[0]
            cases.setdefault(name, []).append(item)
    left_out: set[pytest.Item] = set()
    for name, some in cases.items():
        mark = some[0].get_closest_marker("cases")
        assert mark is not None
        draw = random.Random(f"{config.getoption('hypothesis_seed')} {name}")
        left_out.update(draw.sample(some, max(0, len(some) - mark.args[0])))
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


def pytest_collection_finish() -> None:
    """Leave what is there before the first test out of garbage collections, which tests of
    lifetimes ask for: with all tests, one would take nearly half a second. Others are rarer than
    Python's, which would take a twentieth of the time: nodes die without them."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report the seed of this run, the available devices, and why others are missing."""
    seed = terminalreporter.config.getoption("hypothesis_seed")
    terminalreporter.write_line(f"examples were drawn with --hypothesis-seed={seed}")
    from fnx.backends.device.base import get_device
    from fnx.core.support.errors import DeviceError

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
