"""Count the caches of fnx by their syntax trees, and print where each is made.

``python scripts/count_caches.py [--at-most N]`` prints a line per cache: what makes it, and where.
With ``--at-most`` it exits with status 1 if there are more.

A cache is one store with one bound and one lifetime, however many functions or objects use it:

- a call of ``Cache``, ``OwnerCaches`` or ``WeakMemo``, or of a weak dictionary of the library;
- a function under ``functools.cache`` or ``lru_cache`` that takes arguments. One without arguments
  is a lazily made constant, and does not count.

A store within a class (that of ``TraceCache``) is one cache, though each object of the class has
its own. The stores that ``OwnerCaches`` itself is made of do not count, nor does a weak table whose
values are all None or names, annotated so: that is a set of objects to visit, not a cache. Plain
dictionaries can't be told from other tables, so they are not counted.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator
from pathlib import Path

STORES = frozenset({"Cache", "OwnerCaches", "WeakMemo", "WeakKeyDictionary",
                    "WeakValueDictionary"})
DECORATORS = frozenset({"cache", "lru_cache"})
IMPLEMENTATION = "OwnerCaches"  # the class that is made of other stores
NOT_CACHED = ("None", "str")  # types of the values of a registry


def last_name(node: ast.expr) -> str:
    """Return the last name of ``a``, ``a.b``, ``a[b]`` and of what a call calls."""
    if isinstance(node, ast.Call):
        return last_name(node.func)
    if isinstance(node, ast.Subscript):
        return last_name(node.value)
    return node.attr if isinstance(node, ast.Attribute) else \
        node.id if isinstance(node, ast.Name) else ""


def is_registry(node: ast.AST) -> bool:
    """Whether an assignment is annotated as a weak table without cached values."""
    return isinstance(node, ast.AnnAssign) and isinstance(node.annotation, ast.Subscript) and \
        last_name(node.annotation) == "WeakMemo" and \
        isinstance(node.annotation.slice, ast.Tuple) and \
        ast.unparse(node.annotation.slice.elts[-1]) in NOT_CACHED


def caches(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each cache in a syntax tree."""
    for node in ast.iter_child_nodes(tree):
        if is_registry(node) or isinstance(node, ast.ClassDef) and node.name == IMPLEMENTATION:
            continue
        if isinstance(node, ast.FunctionDef) and ast.unparse(node.args):
            for decorator in node.decorator_list:
                if last_name(decorator) in DECORATORS:
                    yield node.lineno, f"{ast.unparse(decorator)} of {node.name}"
        if isinstance(node, ast.Call) and last_name(node) in STORES:
            name = ast.unparse(node.args[0]) if node.args else "no name"
            yield node.lineno, f"{last_name(node)} of {name}"
        yield from caches(node)


def main() -> None:
    """Print the caches of the package."""
    parser = argparse.ArgumentParser(description="Count the caches of fnx.")
    parser.add_argument("--at-most", type=int, help="exit with status 1 if there are more")
    limit = parser.parse_args().at_most
    package = Path(__file__).parents[1] / "fnx"
    count = 0
    for path in sorted(package.rglob("*.py")):
        source = path.read_text()
        if not any(name in source for name in STORES | DECORATORS):
            continue  # parsing takes most of the time
        for line, text in caches(ast.parse(source)):
            count += 1
            print(f"{text:60} {path.relative_to(package)}:{line}")
    print(f"{count} caches")
    sys.exit(limit is not None and count > limit)


if __name__ == "__main__":
    main()
