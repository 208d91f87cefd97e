"""Docstrings as this project writes them, for the site: names and formulas in Sphinx's roles, and bare doctests.

:func:`psi` becomes a link if the site has the function; formulas become $...$; a doctest that stands under no heading
becomes the section Examples.
"""

import re

import griffe

NAME = re.compile(r":(?:class|func|meth|attr|data|mod|exc):`~?([^`]+)`")
INLINE_FORMULA = re.compile(r":math:`([^`]+)`")
BLOCK_FORMULA = re.compile(r"^\.\. math:: (.+)$", re.MULTILINE)
EXAMPLES = "Examples\n--------\n"
BARE_DOCTEST = re.compile(r"^>>> ", re.MULTILINE)


class Docstrings(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **kwargs: object) -> None:
        if obj.docstring is None:
            return

        def link(role: re.Match[str]) -> str:
            name = role[1]
            path = name if "." in name else f"{obj.module.path}.{name}"
            return f'<autoref optional identifier="{path}"><code>{name.rpartition(".")[2]}</code></autoref>'

        text = NAME.sub(link, obj.docstring.value)
        text = INLINE_FORMULA.sub(r"$\1$", text)
        text = BLOCK_FORMULA.sub(r"$$\1$$", text)
        if EXAMPLES not in text:
            text = BARE_DOCTEST.sub(f"{EXAMPLES}>>> ", text, count=1)
        obj.docstring.value = text
