"""The command `polyrank`, as `python -m polyrank`."""

import sys

from polyrank._command import main

if __name__ == "__main__":
    sys.exit(main())
