"""Results of runs: tables, tests, figures and reports."""
