"""The attacks on processes and files, for a bounded time."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork and signals")


@pytest.mark.cases(1)
@pytest.mark.parametrize("name, options", [
    ("interrupts", ("--seconds", "5")), ("cache", ("--seconds", "4")),
    *[("instants", ("--seconds", "4", "--part", f"{i}/4")) for i in range(1, 5)],
    ("values", ("--count", "120")),
    ("forks", ("--count", "80", "--seconds", "12")),
    ("memory", ("redefine", "another_shape", "--count", "400", "--small"))])
def test_an_attack_finds_nothing(name: str, options: tuple[str, ...]) -> None:
    done = subprocess.run([sys.executable, "-m", f"tests.attack.{name}", *options], timeout=900,
                          capture_output=True, text=True)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 wrong" in done.stdout and "0 hangs" in done.stdout
    assert "(0 times" not in done.stdout
