"""The site loads no script, style, font or image from another server, so that it can be read without a network."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError

LOADED = re.compile(r'<(?:script|img|iframe|source)\b[^>]*\bsrc="?((?:https?:)?//[^"\s>]*)')
LINKED = re.compile(r'<link\b(?![^>]*rel="?canonical)[^>]*\bhref="?((?:https?:)?//[^"\s>]*)')


def on_post_build(config: MkDocsConfig) -> None:
    for page in sorted(Path(config.site_dir).rglob("*.html")):
        text = page.read_text()
        if outside := LOADED.findall(text) + LINKED.findall(text):
            raise PluginError(f"{page} loads {outside[0]}: the site must work without a network")
