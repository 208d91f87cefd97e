"""What is known about every named data set: size, licence, origin, and how to get it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """A named data set; ``rows`` and ``classes`` are those of the complete set, ``origin`` is a URL.

    ``base_url`` is where its files can be downloaded from; ``by_hand`` says what to fetch and where to put it when
    they cannot, with ``{folder}`` for the data set's folder.
    """

    title: str
    rows: int
    classes: int
    licence: str
    source: str
    origin: str
    base_url: str = ""
    by_hand: str = ""


DATASETS = {
    "acs_income": Entry(
        "ACSIncome (American Community Survey 2018)",
        1_664_500,
        2,
        "public domain",
        "Census Bureau",
        "https://www.census.gov/programs-surveys/acs/microdata.html",
        base_url="https://www2.census.gov/programs-surveys/acs/data/pums/2018/1-Year/",
    ),
    "serengeti": Entry(
        "Snapshot Serengeti",
        286_586,
        13,
        "CC0 1.0",
        "Dryad",
        "https://doi.org/10.5061/dryad.5pt92",
        by_hand="open https://doi.org/10.5061/dryad.5pt92, download consensus_data.csv and put it at "
        "{folder}/consensus_data.csv",
    ),
    "fmnist": Entry(
        "Fashion-MNIST",
        70_000,
        10,
        "MIT",
        "Zalando",
        "https://github.com/zalandoresearch/fashion-mnist",
        base_url="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    ),
    "cifar10": Entry(
        "CIFAR-10",
        60_000,
        10,
        "not stated",
        "U. of Toronto",
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        base_url="https://www.cs.toronto.edu/~kriz/",
    ),
    "sent140": Entry(
        "Sentiment140",
        1_600_000,
        2,
        "not stated",
        "Sentiment140",
        "http://help.sentiment140.com/for-students",
        by_hand="open http://help.sentiment140.com/for-students, download trainingandtestdata.zip, unpack it and put "
        "training.1600000.processed.noemoticon.csv (228 MB) at "
        "{folder}/training.1600000.processed.noemoticon.csv",
    ),
    "amazon_reviews": Entry(
        "Amazon product reviews (hierarchical text classification)",
        50_000,
        6,
        "see Kaggle",
        "Kaggle",
        "https://www.kaggle.com/datasets/kashnitsky/hierarchical-text-classification",
        by_hand="open https://www.kaggle.com/datasets/kashnitsky/hierarchical-text-classification (a Kaggle account is "
        "needed), download the archive, unpack it and put train_40k.csv and val_10k.csv into {folder}",
    ),
    "digits": Entry(
        "Optical recognition of handwritten digits",
        1_797,
        10,
        "CC BY 4.0",
        "scikit-learn",
        "https://doi.org/10.24432/C50P49",
        by_hand="nothing to fetch: the digits come with scikit-learn",
    ),
}
