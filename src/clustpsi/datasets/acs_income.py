"""ACSIncome: does a US worker earn more than 50,000 dollars a year? American Community Survey 2018.

Ding, Hardt, Miller, Schmidt: Retiring Adult, new datasets for fair machine learning. NeurIPS 2021 (folktables).

Layouts: the Census Bureau's person files as folktables stores them, ``2018/1-Year/psam_pXX.csv`` (any number of
states), or one Parquet file ``acs_income*.parquet`` whose rows are filtered already and whose PINCP is 0/1.

Features: folktables' ten columns as numbers (codes stay codes, as in the paper's logistic regression), missing = -1 as
in folktables, then centred by the median and divided by the interquartile range of the training rows. Rows kept:
AGEP > 16, PINCP > 100, WKHP > 0, PWGTP >= 1. Label: PINCP > 50,000. Natural clients: states.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clustpsi.datasets.base import ClientIds, Dataset
from clustpsi.datasets.cache import Arrays, cached
from clustpsi.datasets.files import check_header, csv_header, missing, reading
from clustpsi.errors import ClustPSIError
from clustpsi.features import TableFeatures, TableRows

FEATURES = ("AGEP", "COW", "SCHL", "MAR", "OCCP", "POBP", "RELP", "WKHP", "SEX", "RAC1P")
# Census code of every state that folktables uses: the fifty states and Puerto Rico.
# fmt: off
STATES = {
    "AL": "01", "AK": "02", "AZ": "04", "AR": "05", "CA": "06", "CO": "08", "CT": "09", "DE": "10",
    "FL": "12", "GA": "13", "HI": "15", "ID": "16", "IL": "17", "IN": "18", "IA": "19", "KS": "20",
    "KY": "21", "LA": "22", "ME": "23", "MD": "24", "MA": "25", "MI": "26", "MN": "27", "MS": "28",
    "MO": "29", "MT": "30", "NE": "31", "NV": "32", "NH": "33", "NJ": "34", "NM": "35", "NY": "36",
    "NC": "37", "ND": "38", "OH": "39", "OK": "40", "OR": "41", "PA": "42", "RI": "44", "SC": "45",
    "SD": "46", "TN": "47", "TX": "48", "UT": "49", "VT": "50", "VA": "51", "WA": "53", "WV": "54",
    "WI": "55", "WY": "56", "PR": "72",
}
# fmt: on
PUMS_COLUMNS = (*FEATURES, "PINCP", "PWGTP", "ST")


def load(folder: Path) -> Dataset:
    # Other years may lie beside 2018 where folktables was used.
    pums = sorted(folder.glob("2018/1-Year/psam_p*.csv")) or sorted(folder.glob("psam_p*.csv"))
    parquet = sorted(folder.glob("acs_income*.parquet"))
    if not pums and not parquet:
        raise missing(folder, "2018/1-Year/psam_pXX.csv", "acs_income*.parquet")
    sources = pums or parquet[:1]
    arrays = cached(folder, sources, 2, lambda: _parse_pums(pums) if pums else _parse_parquet(parquet[0]))

    return Dataset(
        "acs_income",
        np.asarray(arrays["labels"]),
        ("at most 50,000 dollars", "more than 50,000 dollars"),
        TableRows(arrays["features"]),
        TableFeatures(FEATURES, scaling="robust"),
        model="logistic",
        client_ids=ClientIds.from_arrays(arrays),
        model_reason="the paper's model for ACSIncome",
    )


def _parse_parquet(path: Path) -> Arrays:
    import pyarrow.parquet as pq

    with reading(path, "Parquet"):
        check_header(path, pq.read_schema(path).names, (*FEATURES, "PINCP", "STATE"))
        table = pq.read_table(path, columns=[*FEATURES, "PINCP", "STATE"])
        features = np.column_stack([_codes(path, name, table[name].to_numpy()) for name in FEATURES])
        labels = table["PINCP"].to_numpy()
        states = table["STATE"].cast("string").fill_null("unknown").combine_chunks().dictionary_encode()
        clients = ClientIds.sorted(states.indices.to_numpy(), states.dictionary.to_pylist())
    strange = np.flatnonzero((labels != 0) & (labels != 1))
    if strange.size:
        raise ClustPSIError(f"{path}, column PINCP, row {strange[0] + 1}: {labels[strange[0]]} is neither 0 nor 1")
    return {"features": features, "labels": labels.astype(np.int32), **clients.as_arrays()}


def _parse_pums(paths: list[Path]) -> Arrays:
    import pyarrow as pa
    from pyarrow import csv

    postal = {int(code): state for state, code in STATES.items()} | {11: "DC"}
    features, labels, states = [], [], list[str]()
    for path in paths:
        check_header(path, csv_header(path), PUMS_COLUMNS)
        columns = csv.ConvertOptions(
            include_columns=list(PUMS_COLUMNS), column_types=dict.fromkeys(PUMS_COLUMNS, pa.float64())
        )
        with reading(path, "CSV"), csv.open_csv(path, convert_options=columns) as reader:
            for batch in reader:
                column = {name: batch[name].to_numpy(zero_copy_only=False) for name in PUMS_COLUMNS}
                # Comparisons with a missing value are false, so rows without age, income or hours go as well.
                kept = (column["AGEP"] > 16) & (column["PINCP"] > 100) & (column["WKHP"] > 0) & (column["PWGTP"] >= 1)
                features.append(np.column_stack([_codes(path, name, column[name][kept]) for name in FEATURES]))
                labels.append((column["PINCP"][kept] > 50_000).astype(np.int32))
                codes = column["ST"][kept].astype(int)
                states += [postal.get(code, str(code)) for code in codes.tolist()]
    if not sum(map(len, labels)):
        raise ClustPSIError(f"{paths[0].parent} holds no person aged over 16 with work and an income over 100 dollars")
    clients = ClientIds.of(states).as_arrays()
    return {"features": np.concatenate(features), "labels": np.concatenate(labels), **clients}


def _codes(path: Path, name: str, values: NDArray[np.number]) -> NDArray[np.int16]:
    numbers: NDArray[np.float64] = np.nan_to_num(values.astype(np.float64), nan=-1)
    if numbers.size and not -1 <= numbers.min() <= numbers.max() < 2**15:
        raise ClustPSIError(f"{path}, column {name}: {numbers.max():g} is no code of the 2018 survey")
    return numbers.astype(np.int16)
