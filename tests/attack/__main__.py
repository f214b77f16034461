"""All attacks, or the named ones, with the same options: what ``make attack`` runs.

    python -m tests.attack interrupts forks --seconds 600 --seed 3
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def main() -> None:
    known = sorted(path.stem for path in Path(__file__).parent.glob("*.py")
                   if "def main(" in path.read_text() and path.stem != "__main__")
    named = [word for word in sys.argv[1:] if word in known]
    options = [word for word in sys.argv[1:] if word not in known]
    failed = 0
    for name in named or known:
        print(f"{name}: ", end="", flush=True)
        failed += subprocess.run([sys.executable, "-m", f"tests.attack.{name}", *options]
                                 ).returncode != 0
    sys.exit(failed)


if __name__ == "__main__":
    main()
