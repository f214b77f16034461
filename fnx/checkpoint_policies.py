"""Rematerialization policies of ``fnx.checkpoint``, under the names of ``jax.checkpoint_policies``.

There is a single memory, so values that a policy would offload are saved in place.
"""

from typing import TYPE_CHECKING

from fnx.core.support.errors import ArgumentError, lazy_module
from fnx.transforms.autodiff.policies import Policy

__all__ = [
    "checkpoint_dots", "checkpoint_dots_with_no_batch_dims", "dots_saveable",
    "dots_with_no_batch_dims_saveable", "everything_saveable", "nothing_saveable",
    "offload_dot_with_no_batch_dims", "save_and_offload_only_these_names",
    "save_any_names_but_these", "save_anything_except_these_names", "save_from_both_policies",
    "save_only_these_names",
]

everything_saveable = Policy("everything")
nothing_saveable = Policy("nothing")
dots_saveable = checkpoint_dots = Policy("dots")
dots_with_no_batch_dims_saveable = checkpoint_dots_with_no_batch_dims = Policy("plain_dots")


def _check_names(names: tuple[str, ...] | list[str]) -> tuple[str, ...]:
    for name in names:
        if not isinstance(name, str):
            raise ArgumentError(f"expected names, got {type(name).__name__}",
                                hint="write save_only_these_names('a', 'b')")
    return tuple(names)


def save_only_these_names(*names_which_can_be_saved: str) -> Policy:
    """Save values that ``checkpoint_name`` gave one of these names, and nothing else.

    Args:
        names_which_can_be_saved: the names.

    Returns:
        A policy for ``fnx.checkpoint``.

    >>> import fnx
    >>> policy = fnx.checkpoint_policies.save_only_these_names("hidden")
    >>> f = fnx.checkpoint(fnx.numpy.sin, policy=policy)
    """
    return Policy("names", _check_names(names_which_can_be_saved))


def save_any_names_but_these(*names_not_to_save: str) -> Policy:
    """Save values that have a name other than these.

    Args:
        names_not_to_save: the names.

    Returns:
        A policy for ``fnx.checkpoint``.

    >>> import fnx
    >>> policy = fnx.checkpoint_policies.save_any_names_but_these("scratch")
    >>> f = fnx.checkpoint(fnx.numpy.sin, policy=policy)
    """
    return Policy("other_names", _check_names(names_not_to_save))


def save_anything_except_these_names(*names_not_to_save: str) -> Policy:
    """Save all that is saved without a checkpoint, except values that have one of these names.

    Args:
        names_not_to_save: the names.

    Returns:
        A policy for ``fnx.checkpoint``.

    >>> import fnx
    >>> policy = fnx.checkpoint_policies.save_anything_except_these_names("scratch")
    >>> f = fnx.checkpoint(fnx.numpy.sin, policy=policy)
    """
    return Policy("unnamed", _check_names(names_not_to_save))


def save_from_both_policies(policy_1: Policy, policy_2: Policy) -> Policy:
    """Save values that either of two policies saves.

    Args:
        policy_1, policy_2: the policies.

    Returns:
        A policy for ``fnx.checkpoint``.

    >>> import fnx
    >>> some = fnx.checkpoint_policies
    >>> policy = some.save_from_both_policies(some.dots_saveable, some.save_only_these_names("a"))
    >>> f = fnx.checkpoint(fnx.numpy.sin, policy=policy)
    """
    return Policy(policy_1.kind, policy_1.names, others=(*policy_1.others, policy_2))


def save_and_offload_only_these_names(*, names_which_can_be_saved: list[str] | tuple[str, ...],
                                      names_which_can_be_offloaded: list[str] | tuple[str, ...],
                                      offload_src: str = "device", offload_dst: str = "pinned_host"
                                      ) -> Policy:
    """Save values that have one of these names. There is no other memory to offload to.

    Args:
        names_which_can_be_saved, names_which_can_be_offloaded: the names.
        offload_src, offload_dst: accepted for compatibility with JAX; there is a single memory.

    Returns:
        A policy for ``fnx.checkpoint``.

    >>> import fnx
    >>> policy = fnx.checkpoint_policies.save_and_offload_only_these_names(
    ...     names_which_can_be_saved=["a"], names_which_can_be_offloaded=["b"])
    >>> f = fnx.checkpoint(fnx.numpy.sin, policy=policy)
    """
    return save_only_these_names(*names_which_can_be_saved, *names_which_can_be_offloaded)


def offload_dot_with_no_batch_dims(offload_src: str = "device", offload_dst: str = "pinned_host"
                                   ) -> Policy:
    """Save matrix products without a batch axis. There is no other memory to offload to.

    Args:
        offload_src, offload_dst: accepted for compatibility with JAX; there is a single memory.

    Returns:
        A policy for ``fnx.checkpoint``.

    >>> import fnx
    >>> f = fnx.checkpoint(fnx.numpy.sin,
    ...                    policy=fnx.checkpoint_policies.offload_dot_with_no_batch_dims())
    """
    return dots_with_no_batch_dims_saveable


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
