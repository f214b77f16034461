"""What users read after a mistake: the line at fault, what was expected and what came, the fix.

After an intended change: pytest tests/attack/test_mistakes.py --update-golden, and read the diff as
somebody who does not know fnx.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fnx import FnxError
from fnx.core.support.config import override
from tests.attack.mistakes import Mistake, frames, made, mistakes

MISTAKES = list(mistakes())


@pytest.mark.parametrize("mistake", MISTAKES, ids=[m.name for m in MISTAKES])
def test_an_error_names_the_line_and_the_cure(mistake: Mistake) -> None:
    error = made(mistake)
    assert isinstance(error, FnxError), repr(error)
    first, *rest = str(error).splitlines()
    assert first.startswith(f"{mistake.file}:{mistake.line}: ")
    assert any(line.startswith("  Fix: ") for line in rest), str(error)
    assert len(first) < 300 and "<unknown" not in str(error)


def test_messages(golden: Callable[[str, str], None]) -> None:
    assert len(MISTAKES) >= 120 and len({m.name for m in MISTAKES}) == len(MISTAKES)
    texts = [f"{m.name}\n{str(made(m)).replace(m.file, 'user.py')}\n" for m in MISTAKES]
    golden("messages/mistakes.txt", "\n".join(texts))


def test_tracebacks_are_the_users() -> None:
    """Few of fnx's own frames remain, and none for most errors."""
    inside, all_inside = [], []
    for mistake in MISTAKES:
        with override(tracebacks="user"):
            inside.append(sum(frames(made(mistake))))
        with override(tracebacks="all"):
            all_inside.append(sum(frames(made(mistake))))
    assert max(inside) <= 3 and sum(inside) < len(inside) / 2
    assert sum(all_inside) > 8 * sum(inside)
