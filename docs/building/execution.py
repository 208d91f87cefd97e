"""Runs a notebook: for the site, which shows what it prints, and for the tests."""

import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from traitlets.config import Config


def executed(path: Path) -> NotebookNode:
    """The notebook with the outputs of all its cells, run in an empty folder; an error in a cell is raised."""
    notebook = nbformat.read(path, as_version=4)
    settings = Config({"KernelManager": {"transport_encryption": "auto"}})  # without, the kernel warns
    with tempfile.TemporaryDirectory() as folder:
        where = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=120, kernel_name="python3", resources=where, config=settings).execute()
    return notebook
