"""Runs: their settings and data, their folders, and running them."""
