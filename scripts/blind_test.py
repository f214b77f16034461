"""Whether an outsider finds his way: questions on where names are defined, for readers of the tree.

    python scripts/blind_test.py ask --seed 7 FOLDER          tree.txt and questions.txt for readers
    python scripts/blind_test.py score --seed 7 FOLDER        of answers1.tsv, answers2.tsv, ...

A reader gets tree.txt and questions.txt only, and writes a line for each question: its number and
two guesses, separated by tabs. The questions are 40 of JAX's names, drawn from jax_names.json, and
20 terms of compilers, drawn from blind_test.tsv, which says where each is.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import json
import random
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAMES, TERMS = 40, 20
Question = tuple[str, list[str]]  # and the files that answer it


def tree() -> list[str]:
    """Return the Python files of the package, below its root."""
    listed = subprocess.run(["git", "ls-files", "fnx/*.py"], cwd=ROOT, check=True,
                            capture_output=True, text=True).stdout
    return [line.removeprefix("fnx/") for line in listed.split()]


def questions(seed: int, files: list[str]) -> list[Question]:
    """Draw the questions of a seed."""
    return [*random.Random(seed).sample(sorted(jax_names(files)), NAMES),
            *random.Random(seed).sample(sorted(compiler_terms()), TERMS)]


def compiler_terms() -> list[Question]:
    """Return the terms of the table, with the files that do what they name."""
    with Path(__file__).with_suffix(".tsv").open(newline="") as file:
        return [(row["term"], row["files"].split()) for row in csv.DictReader(file, delimiter="\t")]


def jax_names(files: list[str]) -> list[Question]:
    """Return the functions of JAX that fnx has, with the files that define them."""
    out = []
    for folder, names in json.loads((ROOT / "scripts" / "jax_names.json").read_text()).items():
        try:
            module = importlib.import_module(".".join(["fnx", folder]).rstrip("."))
        except ModuleNotFoundError:  # not there yet
            continue
        for name in names:
            function = getattr(module, name, None)
            home = str(getattr(function, "__module__", ""))
            if callable(function) and not isinstance(function, type) and home.startswith("fnx."):
                path = home.removeprefix("fnx.").replace(".", "/")
                is_file = f"{path}.py" in files
                out.append((".".join(filter(None, ["jax", folder, name])),
                            [f"{path}.py" if is_file else f"{path}/__init__.py"]))
    return out


def score(folder: Path, asked: list[Question]) -> None:
    """Print how many questions each reader answered, and those that somebody missed."""
    missed: dict[str, list[str]] = {}
    for answers in sorted(folder.glob("answers*.tsv")):
        lines = [line.split("\t") for line in answers.read_text().splitlines() if line.strip()]
        guesses = {int(number): places for number, *places in lines}
        right = 0
        for i, (text, files) in enumerate(asked, 1):
            if set(files).isdisjoint(guesses.get(i, [])[:2]):
                missed.setdefault(f"{text}: {' '.join(files)}", []).append(
                    " or ".join(guesses.get(i, [])[:2]))
            else:
                right += 1
        print(f"{answers.name}: {right} of {len(asked)} in two guesses")
    for text, found in missed.items():
        print(text, *found, sep="\n    ")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("ask", "score"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    files = tree()
    asked = questions(options.seed, files)
    if options.what == "score":
        score(options.folder, asked)
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    (options.folder / "tree.txt").write_text("\n".join(files) + "\n")
    (options.folder / "questions.txt").write_text(
        "".join(f"{i}. {text}\n" for i, (text, _) in enumerate(asked, 1)))


if __name__ == "__main__":
    main()
