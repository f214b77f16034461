"""Automatic differentiation: the derivative rule of each op, and the walks that apply them.

Both modes read one rule per op (derivatives.py): a partial multiplies a tangent in forward mode and
a cotangent in reverse mode. forward.py visits operands first, reverse.py results first. Each
propagates masks of symbolic zeros as far as a singular partial lies ahead. What a walk needs of a
body it requests (core/ir/derivations.py): ``JvpKey`` -> the FUNCTION that also computes tangents,
``Activity`` -> a forward form with residuals and a backward form, ``TransposeKey`` -> the transpose
of a linear FUNCTION.

The linear part of a function (``linearize``) is the transpose of its pullback, not a partition of
its jvp: so it reads the residuals that reverse mode saves, loops are split where reverse mode
splits them, and no op with a body needs another rule. ``linear_transpose`` first asks linearity.py.
A Jacobian is the jvp form, or the backward form, batched over the standard basis; contractions with
basis vectors are indexing (standard_basis.py).

**Loops** (loop_rules.py, scan_rules.py, cond_rules.py, while_rules.py, revolve.py). The derivative
of a loop is that of a FUNCTION of its operands: a CALL that also returns what is saved, and a CALL
of the backward pass, which consists of loops again, so they can be differentiated to any order.
Which carries are active is a fixpoint over what each result of a body depends on (dependence.py,
carry_fixpoints.py). No mask crosses the boundary of a loop.

    loop                     the forward pass saves                          backward pass
    SCAN                     stacked: expensive values that vary; each       SCAN in the other
                             carry once; nothing that is an x, a y or        direction
                             shared by all steps
    SCAN, checkpoint=k       the carries, each k steps                       runs a segment again,
                                                                             then back through it
    COND                     residuals of the branch taken; residuals of     COND
                             equal type share a slot
    WHILE                    up to 24 states, at a stride that doubles;      WHILE over blocks of 32
                             then at most 32 states and 32 of a block:       steps: a million steps
                                                                             cost 4.86 loops
    WHILE inside a block     each state                                      WHILE

**Checkpoint.** ``checkpoint`` is a CALL with a policy (policies.py), which the split of residuals
(residuals.py) reads. Values that the policy saves inside of bodies become additional results there,
and operands where the body is recomputed (remat_partial_eval.py). All others are recomputed from
BARRIER(inputs, cotangents). A BARRIER is its first operand, after the others are available. No pass
looks through it; fusion computes it where it is read, without a buffer, gives reductions behind it
loops of their own, and makes the group wait for what the BARRIER waits for.

**Custom rules** (custom_rules.py): CUSTOM holds the rules that the user gave.

    given             forward mode        reverse mode
    "jvp"             the rule            its tangents, transposed
    "fwd", "bwd"      bwd, transposed     the rules

What is transposed has to be linear there; linearity.py reports rule, op and line if it is not.
Effects of a rule make all rules of the node take a token: those of "bwd" follow the earlier effects
of the backward walk, which follow the forward pass; in loops the token is one more carry.
"""
