"""Pytrees under the names of ``jax.tree_util``, with registration of further types."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from fnx.core.array import containers, tree
from fnx.core.array.containers import Key, Path
from fnx.core.array.refusal import checked
from fnx.core.array.tree import TreeDef
from fnx.core.errors import module_face
from fnx.tree import all as tree_all
from fnx.tree import flatten as tree_flatten
from fnx.tree import flatten_with_path as tree_flatten_with_path
from fnx.tree import leaves as tree_leaves
from fnx.tree import leaves_with_path as tree_leaves_with_path
from fnx.tree import map as tree_map
from fnx.tree import map_with_path as tree_map_with_path
from fnx.tree import reduce as tree_reduce
from fnx.tree import structure as tree_structure
from fnx.tree import transpose as tree_transpose
from fnx.tree import unflatten as tree_unflatten

__all__ = [
    "Key", "Partial", "Path", "PyTreeDef", "keystr", "register_dataclass",
    "register_pytree_node", "register_pytree_node_class", "tree_all", "tree_flatten",
    "tree_flatten_with_path", "tree_leaves", "tree_leaves_with_path", "tree_map",
    "tree_map_with_path", "tree_reduce", "tree_structure", "tree_transpose", "tree_unflatten",
]

PyTreeDef = TreeDef
keystr = checked(tree.keystr)
register_dataclass = checked(containers.register_dataclass)
register_pytree_node = checked(containers.register_pytree_node)
register_pytree_node_class = checked(containers.register_pytree_node_class)


class Partial(functools.partial[Any]):
    """``functools.partial`` as a container: its arguments are children, its function is data.

    Args:
        func: the function.
        args, keywords: pytrees, its first arguments.

    >>> tree_leaves(Partial(print, 1, sep=2))
    [1, 2]
    """


register_pytree_node(Partial, lambda p: ((p.args, p.keywords), p.func),
                     lambda func, children: Partial(func, *children[0], **children[1]))

if not TYPE_CHECKING:
    __getattr__, __dir__ = module_face(__name__, __all__)
