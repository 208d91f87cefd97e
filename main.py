"""The paper's command line: ``python main.py --dataset=acs_income ...`` is ``clustpsi run --dataset=acs_income ...``."""

import sys

from clustpsi.cli import main

if __name__ == "__main__":
    main(["run", *sys.argv[1:]])
