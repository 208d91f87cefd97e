"""The paper's command line: ``python main.py ...`` is ``clustpsi run ...``."""

import sys

from clustpsi.cli import main

if __name__ == "__main__":
    main(["run", *sys.argv[1:]])
