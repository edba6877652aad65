"""`python -m dra_agent` is the command `dra-agent`."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
