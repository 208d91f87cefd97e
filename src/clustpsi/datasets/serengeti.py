"""Snapshot Serengeti: which animal did a camera trap catch? A table about each capture event, not its images.

Swanson et al.: Snapshot Serengeti, high-frequency annotated camera trap images of 40 mammalian species. Scientific
Data 2, 2015.

Layouts: Dryad's ``consensus_data.csv``, one row per capture event with the volunteers' answers; the 13 most frequent
species are the classes. Or ``capture_events.csv``, which has the place and time of year of an event but no answers;
the column label is the class (its species counts and decision type give the class away, so they are not used).

Features: of the columns below, those that the file has. Numbers are standardized (mean 0, variance 1); season, site
and roll become one column per category. Everything is fitted on the training rows. Natural clients: camera sites.
"""

from pathlib import Path

import numpy as np

from clustpsi.datasets.base import ClientIds, Dataset
from clustpsi.datasets.cache import Arrays, cached
from clustpsi.datasets.files import check_header, csv_header, find, missing, read_csv
from clustpsi.errors import ClustPSIError
from clustpsi.features import Kinds, TableFeatures, TableRows

ANSWERS = (
    *("NumSpecies", "Count", "Standing", "Resting", "Moving", "Eating", "Interacting", "Babies"),
    *("NumClassifications", "NumVotes", "NumBlanks", "Evenness"),
)
PLACES = ("Season", "Site", "SiteID", "Roll")
COUNTS = {"11-50": "11", "51+": "51"}  # the volunteers' two open answers, by their lower bounds
NUM_SPECIES = 13
MAX_CATEGORIES = 400  # the study has 225 cameras


def load(folder: Path) -> Dataset:
    path = find(folder, "consensus_data.csv") or find(folder, "capture_events.csv")
    if path is None:
        raise missing(folder, "consensus_data.csv", "capture_events.csv")
    arrays = cached(folder, [path], 3, lambda: _parse(path))

    places = tuple(
        Kinds(np.asarray(arrays["places"][:, i]), tuple(arrays[f"kinds_{i}"].tolist()), is_ranked=True)
        for i in range(arrays["places"].shape[1])
    )
    return Dataset(
        "serengeti",
        np.asarray(arrays["labels"]),
        tuple(arrays["classes"].tolist()),
        TableRows(arrays["answers"], places),
        TableFeatures(
            tuple(arrays["answer_names"].tolist()), tuple(arrays["place_names"].tolist()), most_kinds=MAX_CATEGORIES
        ),
        model="mlp",
        client_ids=ClientIds.from_arrays(arrays) if "client_codes" in arrays else None,
        model_reason="the paper's model for Serengeti",
    )


def _parse(path: Path) -> Arrays:
    import pandas as pd

    official = path.name.startswith("consensus_data.csv")
    label = "Species" if official else "label"
    header = csv_header(path)
    check_header(path, header, [label])
    answers = [name for name in ANSWERS if official and name in header]
    places = [name for name in PLACES if name in header]
    if not answers and not places:
        known = ", ".join((*ANSWERS, *PLACES) if official else PLACES)
        raise ClustPSIError(f"{path} has none of the known feature columns ({known})")
    table = read_csv(path, usecols=[label, *answers, *places], dtype=dict.fromkeys([label, *places], str))
    if table[label].isna().any():
        row = int(table[label].isna().to_numpy().argmax()) + 1
        raise ClustPSIError(f"{path}, column {label}, row {row}: the class is missing")
    if official:
        table = table[table[label].isin(table[label].value_counts().index[:NUM_SPECIES])]
    classes, labels = np.unique(table[label].to_numpy(dtype=np.str_), return_inverse=True)
    if classes.size < 2:
        raise ClustPSIError(f"{path}, column {label}: {classes.size} classes, at least two are needed")

    numbers = np.empty((len(table), len(answers)), dtype=np.float32)
    for index, name in enumerate(answers):
        written = table[name].replace(COUNTS) if name == "Count" else table[name]
        column = pd.to_numeric(written, errors="coerce")
        wrong = (column.isna() & written.notna()) | np.isinf(column)
        if wrong.any():
            row = table.index[wrong.to_numpy()][0]
            raise ClustPSIError(f"{path}, column {name}, row {row + 1}: {table[name][row]!r} is not a finite number")
        numbers[:, index] = column.to_numpy()
    codes, kinds = [], []
    for name in places:
        numbered, different = pd.factorize(table[name])
        codes.append(numbered.astype(np.int32))
        kinds.append(np.array(different, dtype=np.str_))
    arrays: Arrays = {
        "labels": labels.astype(np.int32),
        "classes": classes,
        "answers": numbers,
        "answer_names": np.array(answers, dtype=np.str_),
        "place_names": np.array(places, dtype=np.str_),
        **{f"kinds_{i}": each for i, each in enumerate(kinds)},
        "places": np.column_stack(codes) if codes else np.empty((len(table), 0), np.int32),
    }
    site = next((name for name in ("Site", "SiteID") if name in places), None)
    if site is not None:
        arrays |= ClientIds.of(table[site].fillna("unknown")).as_arrays()
    return arrays
