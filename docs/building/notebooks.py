"""Notebooks are pages of the site.  They are kept without outputs and run when the site is built.

So what a page shows is what this code prints, and a notebook that fails stops the build.
"""

import re
from pathlib import Path

from execution import executed
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from nbformat import NotebookNode


class NotebookFile(File):
    def is_documentation_page(self) -> bool:
        return True


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for file in list(files):
        if file.src_uri.endswith(".ipynb"):
            files.remove(file)
            files.append(NotebookFile(file.src_uri, config.docs_dir, config.site_dir, config.use_directory_urls))
    return files


def on_page_read_source(page: Page, config: MkDocsConfig) -> str | None:
    path = Path(page.file.abs_src_path or "")
    return as_markdown(executed(path)) if path.suffix == ".ipynb" else None


def as_markdown(notebook: NotebookNode) -> str:
    parts = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
        else:
            parts.append(f"```python\n{cell.source}\n```")
            parts += [_shown(output) for output in cell.outputs]
    return "\n\n".join(parts) + "\n"


def _shown(output: NotebookNode) -> str:
    if output.output_type == "stream":
        return f"```text\n{output.text.rstrip()}\n```"
    if "image/png" in output.data:
        return f"![A figure](data:image/png;base64,{output.data['image/png'].strip()})"
    if "text/html" in output.data:  # a data frame, which takes the site's style instead of its own
        table = re.sub(r"<style.*?</style>", "", output.data["text/html"], flags=re.DOTALL)
        return re.sub(r"<table[^>]*>", "<table>", table)
    return f"```text\n{output.data['text/plain']}\n```"
