"""Names and errors of meshes, shardings, shard_map and pmap are as JAX's are."""

from __future__ import annotations

import json
from pathlib import Path

from tests.sharding import words

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "sharding_words.json"


def test_what_jax_refuses_is_refused_and_nothing_else() -> None:
    theirs = {call: words.Said(tuple(classes), "says" * has_text)
              for call, (classes, has_text) in json.loads(GOLDEN.read_text()).items()}
    assert list(theirs) == list(words.calls())
    ours, _ = words.run_in_fnx()
    differ = {call: (said.classes, ours[call]) for call, said in theirs.items()
              if not words.agree(ours[call], said)}
    assert differ.keys() == words.MEANT.keys() & theirs.keys() & differ.keys(), differ
