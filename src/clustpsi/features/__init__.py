"""Features: the input of a model.  They are fitted from summaries that each client makes of its own rows."""

from collections.abc import Mapping
from typing import Any

from clustpsi.errors import ClustPSIError
from clustpsi.features.arrays import ArrayFeatures, ArrayRows, as_they_are
from clustpsi.features.base import Features, Fitted, Rows, Summary
from clustpsi.features.table import FittedTable, Kinds, TableFeatures, TableRows
from clustpsi.features.text import FittedText, TextFeatures, TextRows

__all__ = [
    "ArrayFeatures",
    "ArrayRows",
    "Features",
    "Fitted",
    "FittedTable",
    "FittedText",
    "Kinds",
    "Rows",
    "Summary",
    "TableFeatures",
    "TableRows",
    "TextFeatures",
    "TextRows",
    "as_they_are",
    "fitted_from_dict",
]

_KINDS: dict[str, type[Fitted[Any]]] = {kind.kind: kind for kind in (ArrayFeatures, FittedTable, FittedText)}


def fitted_from_dict(values: Mapping[str, Any]) -> Fitted[Any]:
    """The fitted features from the result of their ``as_dict``.

    >>> features = ArrayFeatures((8, 8), divisor=16.0)
    >>> fitted_from_dict(features.as_dict()) == features
    True
    """
    try:
        return _KINDS[values["kind"]].from_dict(values)
    except (KeyError, TypeError, ValueError) as error:
        raise ClustPSIError(f"these are no features of clustpsi: {error!r}") from None
