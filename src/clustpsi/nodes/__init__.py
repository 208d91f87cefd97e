"""Federations whose clients are on other machines: what a node does with its own rows, and the server that asks it.

Nothing here knows how messages travel.  A transport brings the server's envelopes to the nodes and their answers back.
"""
