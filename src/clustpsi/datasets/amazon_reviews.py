"""Amazon product reviews: which of six product categories is a review about?

Kashnitsky: Hierarchical text classification, Kaggle (Amazon product reviews). (The paper cites Zhang, Zhao,
LeCun 2015 for Amazon reviews; this is the set with its 50,000 rows and 6 classes.)

Layout: Kaggle's ``train_40k.csv`` and ``val_10k.csv``, either or both, plain or gzip, all their rows together (the
paper splits at random). Label: Cat1.

Features: Title and Text, lower case, words of letters, digits and apostrophes; the 10,000 most frequent words of the
training rows; the first 100 words (83 % of the reviews are shorter).
"""

from pathlib import Path

import numpy as np

from clustpsi.datasets.base import Dataset
from clustpsi.datasets.cache import Arrays, cached
from clustpsi.datasets.files import find, missing, read_csv
from clustpsi.errors import ClustPSIError
from clustpsi.features import TextFeatures, TextRows
from clustpsi.features.words import split_words

FILES = ("train_40k.csv", "val_10k.csv")
LENGTH = 100


def load(folder: Path) -> Dataset:
    paths = [path for name in FILES if (path := find(folder, name)) is not None]
    if not paths:
        raise missing(folder, *FILES)
    arrays = cached(folder, paths, 2, lambda: _parse(paths))
    return Dataset(
        "amazon_reviews",
        np.asarray(arrays["labels"]),
        tuple(arrays["classes"].tolist()),
        TextRows(arrays["ids"], arrays["starts"], arrays["words"], is_ranked=True),
        TextFeatures(LENGTH),
        model="embedding_mlp",
        model_reason="the paper's model for Amazon Reviews",
    )


def _parse(paths: list[Path]) -> Arrays:
    import pyarrow as pa

    columns = ["Title", "Text", "Cat1"]
    texts, categories = [], []
    for path in paths:
        # Cells stay as they are written: a title may well be "None" or "NA".
        table = read_csv(path, columns, usecols=columns, dtype=str, keep_default_na=False)
        category = table["Cat1"].to_numpy(dtype=np.str_)
        empty = np.flatnonzero(np.char.strip(category) == "")
        if empty.size:
            raise ClustPSIError(f"{path}, column Cat1, row {empty[0] + 1}: the category is missing")
        categories.append(category)
        texts.append(pa.array((table["Title"] + " " + table["Text"]).tolist(), pa.large_string()))
    classes, labels = np.unique(np.concatenate(categories), return_inverse=True)
    if classes.size < 2:
        raise ClustPSIError(f"{paths[0]}, column Cat1: {classes.size} categories, at least two are needed")
    return {"labels": labels.astype(np.int32), "classes": classes, **split_words(texts)}
