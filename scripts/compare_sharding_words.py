"""Compare names and errors of meshes, shardings, shard_map and pmap with JAX on 8 devices.

    python scripts/compare_sharding_words.py            what differs, with the reason if it is meant
    python scripts/compare_sharding_words.py -v         also what both say
    python scripts/compare_sharding_words.py --record   JAX's answers for the suite

The table of calls is made from templates (tests/sharding/words.py): each is an expression in JAX's
words. JAX runs them in a child process. A call agrees if both give a value, or both raise and fnx's
error is also of the builtin class of JAX's.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.sharding import words  # noqa: E402

GOLDEN = ROOT / "tests" / "golden" / "sharding_words.json"


def of_jax() -> tuple[dict[str, words.Said], dict[str, set[str]]]:
    """Return what JAX gives, from a child process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "answers")
        flags = "--xla_force_host_platform_device_count=8"
        subprocess.run([sys.executable, __file__, "--jax", str(path)], check=True,
                       env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"})
        said, names = pickle.loads(path.read_bytes())
    return {call: words.Said(*pair) for call, pair in said.items()}, names


def main(argv: list[str]) -> int:
    """Return 1 if something differs that is not meant."""
    if argv[:1] == ["--jax"]:
        import jax
        said, names = words.run(jax)
        Path(argv[1]).write_bytes(pickle.dumps(
            ({call: tuple(x) for call, x in said.items()}, names)))
        return 0
    import fnx
    fnx.config.cpu_devices = 8
    theirs, their_names = of_jax()
    if argv[:1] == ["--record"]:
        lines = [f"{json.dumps(call)}: {json.dumps([said.classes[:1], bool(said.text)])}"
                 for call, said in theirs.items()]
        GOLDEN.write_text("{" + ",\n".join(lines) + "}\n")
        return 0
    ours, our_names = words.run_in_fnx()
    wrong = 0
    for call, said in theirs.items():
        differs = not words.agree(ours[call], said)
        wrong += differs and call not in words.MEANT
        if differs or "-v" in argv:
            print(f"{'differs' if differs else 'agrees'}: {call}\n"
                  f"    JAX: {said.classes[:1]} {said.text[:160]!r}\n"
                  f"    fnx: {ours[call].classes[:1]} {ours[call].text[:160]!r}")
            if differs and call in words.MEANT:
                print(f"    meant: {words.MEANT[call]}")
    for name, theirs_of in their_names.items():
        if absent := theirs_of - our_names[name]:
            print(f"{name} lacks {', '.join(sorted(absent))}")
    refused = sum(bool(said.classes) for said in theirs.values())
    print(f"{len(theirs)} calls, {refused} of which JAX refuses; {wrong} differ that should not")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
