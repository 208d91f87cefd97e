"""Links are written for the repository, so that its pages can be read there; here they find their place on the site.

Two pages come from outside docs/: how to contribute, and what changed.  A link to a folder leads to its README.
"""

import os
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT_PAGES = ("CONTRIBUTING.md", "CHANGELOG.md")
LINK = re.compile(r"(?<=\]\()([^)\s:#]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    root = Path(config.config_file_path).parent
    for name in ROOT_PAGES:
        files.append(File.generated(config, name, abs_src_path=str(root / name)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    places = {file.abs_src_path: file.src_uri for file in files}
    folder = Path(page.file.abs_src_path or "").parent

    def on_site(link: re.Match[str]) -> str:
        target = Path(os.path.normpath(folder / link[1]))
        place = places.get(str(target / "README.md" if target.is_dir() else target))
        return link[1] if place is None else posixpath.relpath(place, posixpath.dirname(page.file.src_uri))

    return LINK.sub(on_site, markdown)
