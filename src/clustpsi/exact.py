"""Numbers read from text to the last bit: what was written as a float comes back as the same float.

pandas does this by default from version 3.1 on.  Earlier versions are sometimes off by one bit unless told otherwise.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd


def read_exact_csv(source: "Path | IO[Any]", **options: Any) -> "pd.DataFrame":
    r""":func:`pandas.read_csv`, exact.

    >>> import io
    >>> read_exact_csv(io.StringIO("x\n0.33611111111111114"))["x"].tolist()
    [0.33611111111111114]
    """
    import pandas as pd

    if not _pandas_is_exact():
        options["float_precision"] = "round_trip"  # deprecated where it is not needed
    frame: pd.DataFrame = pd.read_csv(source, **options)
    return frame


def exact_numbers(texts: Sequence[str]) -> NDArray[np.float64]:
    """Read texts as numbers; texts that are not numbers become NaN.

    >>> exact_numbers(["0.33611111111111114", "about 3"]).tolist()
    [0.33611111111111114, nan]
    """
    import pandas as pd

    numbers = pd.to_numeric(pd.Series(texts, dtype="str"), errors="coerce").to_numpy(np.float64, na_value=np.nan)
    if not _pandas_is_exact():
        places = np.flatnonzero(~np.isnan(numbers))
        numbers = numbers.copy()
        numbers[places] = [float(texts[place]) for place in places.tolist()]
    return numbers


def _pandas_is_exact() -> bool:
    import pandas as pd

    major, minor, *_ = pd.__version__.split(".")
    return (int(major), int(minor)) >= (3, 1)
