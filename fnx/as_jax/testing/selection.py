"""Which cases of a test run: sampled products of parameters, devices, versions, settings."""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import os
import re
import sys
import unittest
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from absl.testing import parameterized

from fnx.as_jax.finder import VERSION
from fnx.core.support.config import config, override
from fnx.sharding import Mesh
from fnx.sharding.device_registry import devices
from fnx.transforms.jit import jit

Decorator = Callable[[Any], Any]

NUM_GENERATED_CASES = SimpleNamespace(value=int(os.getenv("JAX_NUM_GENERATED_CASES", "10")))
TEST_NUM_THREADS = SimpleNamespace(value=0)
SKIP_SLOW_TESTS = SimpleNamespace(value=os.getenv("JAX_SKIP_SLOW_TESTS", "0") == "1")


def _call(f: Any, *args: Any, **kwargs: Any) -> Any:
    return functools.wraps(f)(functools.partial(f, **kwargs)) if kwargs else f


JIT_IMPLEMENTATION = (jit, _call)


# ---- parameters ---------------------------------------------------------------------------------


def sanitize_test_name(s: str) -> str:
    """Return a text as a part of the name of a test."""
    return re.sub(r"[ \"'\[\](){}<>=,._]+", "_", s).strip("_")


def _products(args: Sequence[Iterable[Mapping[str, Any]]], kw: Mapping[str, Iterable[Any]]
              ) -> list[dict[str, Any]]:
    axes: list[list[Mapping[str, Any]]] = [list(group) for group in args]
    axes.extend([{name: x} for x in values] for name, values in kw.items())
    cases = [dict(itertools.chain.from_iterable(c.items() for c in chosen))
             for chosen in itertools.product(*axes)]
    limit = NUM_GENERATED_CASES.value
    if len(cases) <= limit:
        return cases
    rng = np.random.RandomState(42)
    return [cases[i] for i in sorted(rng.choice(len(cases), limit, replace=False))]


def sample_product_testcases(*args: Any, **kw: Any) -> list[dict[str, Any]]:
    """Return a sample of the cases of a product of parameters."""
    return _products(args, kw)


def sample_product(*args: Any, **kw: Any) -> Decorator:
    """Run a test with a sample of the cases of a product of parameters."""
    return parameterized.parameters(*_products(args, kw))  # type: ignore[no-any-return]


def parameterized_filterable(*, kwargs: Sequence[Mapping[str, Any]],
                             testcase_name: Callable[[dict[str, Any]], str] | None = None,
                             one_containing: str | None = None) -> Decorator:
    """Run a test with each of some keyword arguments; their values name the cases."""
    def name_of(case: Mapping[str, Any]) -> str:
        return "_".join(f"{k}={v}" for k, v in case.items())
    cases = []
    for i, options in enumerate(kwargs):
        case = dict(options)
        name = case.pop("testcase_name", None)
        text = sanitize_test_name(str(name or (testcase_name or name_of)(case)))
        if one_containing is None or one_containing in text:
            cases.append({"testcase_name": f"_{i}_{text}"[:120], **case})
    return parameterized.named_parameters(*cases)  # type: ignore[no-any-return]


def named_cases_from_sampler(gen: Callable[[Any], Iterator[dict[str, Any]]]
                             ) -> list[dict[str, Any]]:
    """Return cases that a generator yields, given a function that chooses one of a sequence."""
    rng = np.random.RandomState(42)
    cases: dict[str, dict[str, Any]] = {}
    for _ in range(NUM_GENERATED_CASES.value * 4):
        for case in gen(lambda options: list(options)[rng.randint(len(list(options)))]):
            cases.setdefault(str(case.get("testcase_name", case)), case)
    return list(cases.values())[:NUM_GENERATED_CASES.value]


# ---- devices and versions -----------------------------------------------------------------------


def device_under_test() -> str:
    """Return the platform of the default device."""
    return "cpu"


def test_device_matches(device_types: Iterable[str]) -> bool:
    """Whether the default device is one of some platforms."""
    return device_under_test() in tuple(device_types)


test_device_matches.__test__ = False  # type: ignore[attr-defined]


def _skip_unless(wanted: bool, reason: str) -> Decorator:
    return (lambda test: test) if wanted else unittest.skip(reason)


def run_on_devices(*enabled_devices: str, skip_reason: str | None = None) -> Decorator:
    """Skip a test unless the default device is one of some platforms."""
    return _skip_unless(test_device_matches(enabled_devices), skip_reason or "other device")


def skip_on_devices(*disabled_devices: str, skip_reason: str | None = None) -> Decorator:
    """Skip a test if the default device is one of some platforms."""
    return _skip_unless(not test_device_matches(disabled_devices), skip_reason or "this device")


def skip_on_flag(flag_name: str, skip_value: Any) -> Decorator:
    """Skip a test if a setting has a value."""
    return _skip_unless(config.read(flag_name) != skip_value, f"{flag_name} is {skip_value}")


def skip_under_pytest(reason: str) -> Decorator:
    """Skip a test under pytest."""
    return _skip_unless(not is_running_under_pytest(), reason)


def pytest_mark_if_available(marker: str) -> Decorator:
    """Return the decorator of a mark of pytest; without pytest it does nothing."""
    pytest = sys.modules.get("pytest")
    return (lambda test: test) if pytest is None else getattr(pytest.mark, marker)


def is_running_under_pytest() -> bool:
    """Whether pytest runs this process."""
    return "pytest" in sys.modules


def never(*args: Any, **kwargs: Any) -> bool:
    """Return False: a property of hardware or of a build that fnx does not have."""
    return False


def is_optimized_build() -> bool:
    """Return True: there is no other build."""
    return True


def runtime_environment() -> str | None:
    """Return None: no build system runs the test."""
    return None


def device_supports_buffer_donation() -> bool:
    """Whether donated arrays are deleted."""
    return True


def parse_version(v: str) -> tuple[int, ...]:
    """Return the numbers of a version.

    >>> parse_version("2.1.0rc1")
    (2, 1, 0)
    """
    match = re.match(r"\d+(?:\.\d+)*", v)
    if match is None:
        raise ValueError(f"expected a version, got {v!r}")
    return tuple(map(int, match[0].split(".")))


def numpy_version() -> tuple[int, ...]:
    """Return the version of NumPy."""
    return parse_version(np.__version__)


def jaxlib_version() -> tuple[int, ...]:
    """Return the version of JAX that fnx takes the place of."""
    return parse_version(VERSION)


def pattern_search(patterns: str | Sequence[str], string: str) -> str | None:
    """Return the first of some patterns that a text contains, or None."""
    each = [patterns] if isinstance(patterns, str) else patterns
    return next((p for p in each if re.search(p, string)), None)


def device_kind_match(device_patterns: str | Sequence[str]) -> str | None:
    """Return the first of some patterns that the default device is of, or None."""
    return pattern_search(device_patterns, devices()[0].device_kind)


def request_cpu_devices(nr_devices: int) -> None:
    """Accept a number of devices; tests that need more are skipped by ``create_mesh``."""


def create_mesh(mesh_shape: Sequence[int], axis_names: Sequence[str], iota_order: bool = False,
                axis_types: Any = None) -> Mesh:
    """Return a mesh of the first devices; skip the test if there are too few."""
    n = int(np.prod(mesh_shape))
    available = devices()
    if len(available) < n:
        raise unittest.SkipTest(f"the test needs {n} devices, and there are {len(available)}")
    return Mesh(np.array(available[:n]).reshape(tuple(mesh_shape)), tuple(axis_names))


@contextlib.contextmanager
def with_mesh(named_shape: Sequence[tuple[str, int]]) -> Iterator[Mesh]:
    """Run a block within a mesh given as pairs of a name and a size."""
    with create_mesh([n for _, n in named_shape], [name for name, _ in named_shape]) as mesh:
        yield mesh


def with_explicit_mesh(sizes: Sequence[int], names: Sequence[str], axis_types: Any = None,
                       iota_order: bool = False) -> Decorator:
    """Call a test with a mesh as its argument."""
    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(test)
        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            with create_mesh(sizes, names) as mesh:
                return test(self, *args, **kwargs, mesh=mesh)
        return run
    return decorate


# ---- settings and streams -----------------------------------------------------------------------


def thread_unsafe_test(condition: bool = True) -> Decorator:
    """Return the test: tests run one after the other."""
    return lambda test: test


thread_unsafe_test_class = thread_unsafe_test


def thread_local_config_context(**kwds: Any) -> contextlib.AbstractContextManager[None]:
    """Change settings for a block."""
    return override(**kwds)


@contextlib.contextmanager
def global_config_context(**kwds: Any) -> Iterator[None]:
    """Change settings of the process for a block."""
    before = {name: config.read(name) for name in kwds}
    try:
        for name, value in kwds.items():
            config.update(name, value)
        yield
    finally:
        for name, value in before.items():
            config.update(name, value)


def _settings_of_class(kwds: Mapping[str, Any]) -> Decorator:
    def decorate(cls: Any) -> Any:
        cls.settings = {**getattr(cls, "settings", {}), **kwds}
        return cls
    return decorate


def with_config(**kwds: Any) -> Decorator:
    """Change settings for all tests of a class."""
    return _settings_of_class(kwds)


with_global_config = with_config


@contextlib.contextmanager
def set_env(**kwargs: Any) -> Iterator[None]:
    """Set environment variables for a block; None deletes one."""
    before = {name: os.environ.get(name) for name in kwargs}

    def assign(values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = str(value)

    assign(kwargs)
    try:
        yield
    finally:
        assign(before)


@contextlib.contextmanager
def ignore_warning(*, message: str | None = None, category: type[Warning] = Warning
                   ) -> Iterator[None]:
    """Ignore warnings of a text and a class in a block; also a decorator."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message or "", category=category)
        yield


@contextlib.contextmanager
def capture_stdout() -> Iterator[Callable[[], str]]:
    """Yield a function that returns what a block has printed."""
    with contextlib.redirect_stdout(io.StringIO()) as text:
        yield text.getvalue


@contextlib.contextmanager
def capture_stderr() -> Iterator[Callable[[], str]]:
    """Yield a function that returns what a block has written to stderr."""
    with contextlib.redirect_stderr(io.StringIO()) as text:
        yield text.getvalue
