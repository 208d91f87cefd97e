"""The same federated averaging in several frameworks, side by side.

``cases.py`` prepares the data, each framework has a small program of its own (a *peer*) that trains a round whenever it
is told to (``protocol.py``), and ``compare.py`` has them take turns and reports.
"""
