"""`spark-submit jobs/retry.py --conf FILE …`: the same as `lakelabel retry --conf FILE …`."""

import sys

from lakelabel.cli import main

if __name__ == "__main__":
    main(["retry", *sys.argv[1:]])
