"""`spark-submit jobs/classify.py --conf FILE …`: the same as `lakelabel classify --conf FILE …`."""

import sys

from lakelabel.cli import main

if __name__ == "__main__":
    main(["classify", *sys.argv[1:]])
