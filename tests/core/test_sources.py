"""The digest of fnx's own sources: what runs, not what was edited since it was imported."""

import os
import time
from pathlib import Path

from fnx.core.sources import digest_of_sources


def test_sources_decide_the_digest_unless_they_are_newer_than_the_process(tmp_path: Path) -> None:
    source, note = tmp_path / "a.py", tmp_path / "note.txt"
    source.write_text("x = 1")
    os.utime(source, (1e9, 1e9))
    now = time.time()
    first = digest_of_sources(str(tmp_path), now)
    note.write_text("not a source")
    assert digest_of_sources(str(tmp_path), now) == first
    source.write_text("x = 2")
    os.utime(source, (1e9, 1e9))
    assert digest_of_sources(str(tmp_path), now) != first
    edited = [digest_of_sources(str(tmp_path), 1e9 - 1) for _ in range(2)]
    assert edited[0] != edited[1]
