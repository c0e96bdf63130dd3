"""`python tests/failing.py NAME …`: run.py in this process, which ends as by power loss when it first passes the failpoint."""

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import run  # noqa: E402
from service import failpoints  # noqa: E402

if __name__ == "__main__":
    failpoints.put(sys.argv[1], lambda: os.kill(os.getpid(), signal.SIGKILL))
    sys.exit(run.main(sys.argv[2:]))
