"""What every package needs: errors, configuration, records, facts about targets, process state.

Its import, the first of ``import fnx``, checks what fnx needs of the system, the interpreter, NumPy
and llvmlite.
"""

from fnx.core.support.requirements import check_requirements as _check_requirements

_check_requirements()
