"""Federations whose clients are elsewhere: what a node does on its own rows, and the server that nodes answer to.

Nothing here knows how messages travel: a transport brings a server's envelopes to nodes and their answers back.
"""
