#!/usr/bin/env python3
"""The command line: `python run.py` serves, `python run.py --help` lists the commands."""

import sys

from service.commands.main import main

if __name__ == "__main__":
    main(sys.argv[1:])
