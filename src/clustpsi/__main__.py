"""``python -m clustpsi`` is the command ``clustpsi``."""

from clustpsi.cli import main

main()
