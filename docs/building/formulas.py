"""Formulas become MathML, which browsers draw themselves: no script, and nothing to load."""

import html
import re

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
BLOCK = re.compile(r'<div class="arithmatex">\\\[(.*?)\\\]</div>', re.DOTALL)


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    for formulas, display in ((INLINE, "inline"), (BLOCK, "block")):
        content = formulas.sub(lambda formula: convert(html.unescape(formula[1]), display=display), content)  # noqa: B023
    return content
