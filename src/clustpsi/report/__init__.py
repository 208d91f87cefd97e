"""What comes out of runs: tables, tests and figures."""
