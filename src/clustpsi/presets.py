"""Named settings of the clustering: the paper's, and those that hold up where clients are small or nearly alike."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

#: What :class:`clustpsi.PSIClustering` is given.  ``robust``: descriptors that tell too much of a class from too
#: little, smoothing that knows how few labels a client has, and no clusters where there is no significant shift or
#: where clients differ within clusters by much more than chance.
CLUSTERING: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "paper": {},
        "robust": {"features": "signed", "smoothing": "laplace", "min_wpsi": 0.1, "min_clarity": 0.75},
    }
)

#: What ``clustpsi diagnose`` and the explorer take unless they are told otherwise; methods have the paper's.
DEFAULT_CLUSTERING = "robust"
