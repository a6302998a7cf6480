"""`python -m milepost` is the command `milepost`."""

import sys

from milepost.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
