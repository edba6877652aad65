"""python -m checkpoint_verify"""

import sys

from .cli import main

sys.exit(main())
