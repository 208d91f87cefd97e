"""Which measure of label skew says most about how non-IID a partition is?

The paper's study: draw partitions of many data sets with known alpha or S, compute the measures, train regressors to
predict the level from them, and see which measure the regressors rely on. The measures are close to monotone functions
of each other, and importances of collinear features are shared among them in arbitrary ways; so every measure is also
scored alone, and by what is lost without it.

Partitions are drawn on class counts: with the distribution of :mod:`clustpsi.partition`, without touching any rows.
"""

import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from clustpsi import skew
from clustpsi.datasets import load_dataset
from clustpsi.errors import ClustPSIError, InfeasiblePartition, unknown_name
from clustpsi.exact import read_exact_csv
from clustpsi.experiments.study_axes import (
    CLASS_COUNTS,
    HELD_OUT,
    KNOWN_MEASURES,
    LEVELS,
    MEASURES,
    MODELS,
    NUM_CLIENTS,
    TARGETS,
)
from clustpsi.files import check_writable, make_folder
from clustpsi.runs.store import write_csv, write_json

Counts = NDArray[np.int64]

#: After so many Dirichlet passes without success a cell (data set, number of clients, alpha) counts as infeasible.
MAX_PASSES = 100_000
MIN_SAMPLES = 10
HELD_OUT_SHARE = 0.25
REPEATS = 5  # of each permutation


# ---------------------------------------------------------------------------------------------- partitions on counts


def dirichlet_counts(
    class_sizes: ArrayLike,
    num_clients: int,
    alpha: float,
    rng: np.random.Generator,
    *,
    min_samples: int = MIN_SAMPLES,
    max_passes: int = MAX_PASSES,
) -> Counts:
    """Label counts (clients x classes) of a random Dirichlet partition.

    The distribution is that of :func:`clustpsi.partition.dirichlet`: one Dirichlet draw a class, nothing more for
    clients that hold their fair share, cuts rounded down, and passes until every client has `min_samples`. Many passes
    are drawn at once and the first good one is taken.

    >>> dirichlet_counts([500, 500], num_clients=4, alpha=0.5, rng=np.random.default_rng(0)).sum(axis=0)
    array([500, 500])
    """
    sizes = np.asarray(class_sizes, dtype=np.int64)
    fair_share = sizes.sum() / num_clients
    concentration = np.full(num_clients, alpha)
    tried, batch = 0, 1
    while tried < max_passes and num_clients * min_samples <= sizes.sum():
        shares = np.zeros((batch, num_clients, len(sizes)), dtype=np.int64)
        held = np.zeros((batch, num_clients), dtype=np.int64)
        failed = np.zeros(batch, dtype=bool)
        for label, size in enumerate(sizes):
            proportions = rng.dirichlet(concentration, batch) * (held < fair_share)
            totals = proportions.sum(axis=1, keepdims=True)
            failed |= ~(totals[:, 0] > 0)
            with np.errstate(invalid="ignore", divide="ignore"):
                cuts = np.nan_to_num(np.cumsum(proportions / totals, axis=1)) * size
            ends = cuts.astype(np.int64)
            ends[:, -1] = size
            shares[:, :, label] = np.diff(ends, axis=1, prepend=0)
            held += shares[:, :, label]
        good = np.flatnonzero(~failed & (held.min(axis=1) >= min_samples))
        if good.size:
            found: Counts = shares[good[0]]
            return found
        tried += batch
        batch = min(2 * batch, 256, max(1, max_passes - tried))
    raise InfeasiblePartition(
        f"no Dirichlet partition over {num_clients} clients with alpha={alpha:g} gave every client "
        f"{min_samples} samples in {tried} passes: raise alpha or take fewer clients"
    )


def similarity_counts(class_sizes: ArrayLike, num_clients: int, s: float, rng: np.random.Generator) -> Counts:
    """Label counts (clients x classes) of a random Similarity partition, distributed as :func:`~.partition.similarity`.

    >>> similarity_counts([50, 50], num_clients=4, s=0.0, rng=np.random.default_rng(0)).tolist()
    [[25, 0], [25, 0], [0, 25], [0, 25]]
    """
    sizes = np.asarray(class_sizes, dtype=np.int64)
    mixed = rng.multivariate_hypergeometric(sizes, round(s * int(sizes.sum())))
    from_mixed, from_sorted = (int(part.sum()) // num_clients for part in (mixed, sizes - mixed))
    if from_mixed + from_sorted == 0:
        raise InfeasiblePartition(
            f"{sizes.sum()} samples are too few for {num_clients} clients with S={s:g}: take fewer clients"
        )
    # Client i takes the sorted rows from i to i + 1 times `from_sorted`; class c lies between its two borders.
    borders = np.concatenate([[0], np.cumsum(sizes - mixed)])
    before = np.minimum(np.arange(num_clients + 1)[:, None] * from_sorted, borders)  # rows before a cut or a border
    counts: Counts = np.diff(np.diff(before, axis=1), axis=0)
    for client in counts:
        drawn = rng.multivariate_hypergeometric(mixed, from_mixed)
        client += drawn
        mixed = mixed - drawn
    return counts


def class_counts(dataset: str, data_dir: Path | None = None) -> tuple[int, ...]:
    """Samples of each class: of the paper's data sets by table, of others, or with a `data_dir`, from the data."""
    if data_dir is None and dataset in CLASS_COUNTS:
        return CLASS_COUNTS[dataset]
    loaded = load_dataset(dataset, data_dir=data_dir)
    return tuple(np.bincount(loaded.labels, minlength=loaded.num_classes).tolist())


def draw_counts(dataset: str, sizes: Sequence[int], protocol: str, num_clients: int, level: float, seed: int) -> Counts:
    """The partition that these settings stand for: whatever else is drawn, it is always the same."""
    cell = zlib.crc32(f"{dataset}/{protocol}/{num_clients}/{level:g}".encode())
    rng = np.random.default_rng((seed, cell))
    if protocol == "dirichlet":
        return dirichlet_counts(sizes, num_clients, level, rng)
    return similarity_counts(sizes, num_clients, level, rng)


# -------------------------------------------------------------------------------------------------------- the study


@dataclass(frozen=True)
class StudySettings:
    """Which partitions are drawn."""

    class_counts: dict[str, tuple[int, ...]]
    num_clients: tuple[int, ...] = NUM_CLIENTS
    alphas: tuple[float, ...] = LEVELS["dirichlet"]
    similarities: tuple[float, ...] = LEVELS["similarity"]
    seeds: int = 20

    def __post_init__(self) -> None:
        if self.seeds < 4:
            raise ClustPSIError(f"the study needs at least 4 seeds, a quarter of them held out, not {self.seeds}")
        for name, levels, right in (
            ("alpha", self.alphas, all(0 < each < np.inf for each in self.alphas)),
            ("S", self.similarities, all(0 <= each <= 1 for each in self.similarities)),
        ):
            bounds = "above 0" if name == "alpha" else "from 0 to 1"
            if not right or len(set(levels)) < max(len(levels), 2):
                raise ClustPSIError(f"the values of {name} must be two or more different numbers {bounds}: {levels}")
        if not self.num_clients or min(self.num_clients) < 2:
            raise ClustPSIError(f"numbers of clients must be at least 2, not {self.num_clients}")

    def levels(self, protocol: str) -> tuple[float, ...]:
        return self.alphas if protocol == "dirichlet" else self.similarities


def draw_partitions(
    settings: StudySettings, folder: Path, *, fresh: bool = False, watch: Callable[[str], None] | None = None
) -> pd.DataFrame:
    """All measures of all partitions, one row each; what the folder's ``partitions.csv`` has is not drawn again.

    A cell in which one partition is infeasible is left out as a whole.
    """
    make_folder(folder)
    settings_file, file = folder / "settings.json", folder / "partitions.csv"
    check_writable(file)
    described = {key: _plain(value) for key, value in asdict(settings).items()}
    rows: list[dict[str, Any]] = []
    drawn: list[str] = []
    if settings_file.exists() and not fresh:
        try:
            known = json.loads(settings_file.read_text())
        except ValueError as error:
            raise ClustPSIError(f"{settings_file} cannot be read ({error}): start again with --fresh") from None
        drawn = known.pop("drawn", [])
        if known != described:
            raise ClustPSIError(f"{folder} holds a study with other settings: choose another --output, or add --fresh")
        if drawn:
            table = read_exact_csv(file)
            rows = [{str(key): value for key, value in row.items()} for row in table.to_dict("records")]
    for dataset, sizes in settings.class_counts.items():
        if dataset in drawn:
            continue
        if watch is not None:
            watch(dataset)
        rows += _partitions_of(dataset, sizes, settings)
        drawn.append(dataset)
        if rows:
            write_csv(file, {key: [row[key] for row in rows] for key in rows[0]})
        write_json(settings_file, {**described, "drawn": drawn})
    if not rows:
        raise ClustPSIError("no partition of the study is feasible: take larger alphas or fewer clients")
    return pd.DataFrame(rows)


def _plain(value: Any) -> Any:
    """A value as JSON gives it back."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _partitions_of(dataset: str, sizes: Sequence[int], settings: StudySettings) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for protocol in LEVELS:
        for num_clients in settings.num_clients:
            for level in settings.levels(protocol):
                cell: list[dict[str, Any]] = []
                try:
                    for seed in range(settings.seeds):
                        counts = draw_counts(dataset, sizes, protocol, num_clients, level, seed)
                        where = {"dataset": dataset, "protocol": protocol, "num_clients": num_clients}
                        cell.append(where | {"level": float(level), "seed": seed} | skew.measures(counts))
                except InfeasiblePartition:
                    continue
                rows += cell
    return rows


@dataclass(frozen=True)
class Study:
    """What the study found, as tables.

    Attributes
    ----------
    partitions
        One row for each partition: where it comes from and its measures.
    scores
        One row for each protocol, target, model and set of features (all measures, one alone, all without one): R2 and
        mean absolute error on held-out partitions.
    importances
        One row for each protocol, target, model and measure: the model's own importance (trees only), and the
        permutation importance on held-out partitions, each as shares of one.
    associations
        One row for each protocol and measure: Spearman's correlation with the level, over all partitions, and as a mean
        over data sets and numbers of clients of the correlation within.
    """

    partitions: pd.DataFrame
    scores: pd.DataFrame
    importances: pd.DataFrame
    associations: pd.DataFrame

    def write(self, folder: Path) -> None:
        for name in ("scores", "importances", "associations"):
            table: pd.DataFrame = getattr(self, name)
            write_csv(folder / f"{name}.csv", {str(key): table[key].tolist() for key in table})

    def ranking(self) -> pd.DataFrame:
        """One row for each protocol, target and measure: means over the models, the highest importance first."""
        keys = ["protocol", "target", "measure"]
        table = self.importances.groupby(keys, sort=False)["permutation"].mean().to_frame()
        r2 = self.scores.groupby(["protocol", "target", "features", "measure"], sort=False)["r2"].mean()
        for index in table.index:
            protocol, target, measure = index
            table.loc[index, "alone"] = r2[protocol, target, "alone", measure]
            table.loc[index, "loss_without"] = (
                r2[protocol, target, "all", ""] - r2[protocol, target, "without", measure]
            )
        table = table.reset_index().merge(self.associations, on=["protocol", "measure"])
        order = {pair: i for i, pair in enumerate(dict.fromkeys(zip(table["protocol"], table["target"], strict=True)))}
        place = [order[pair] for pair in zip(table["protocol"], table["target"], strict=True)]
        return (
            table.assign(place=place)
            .sort_values(["place", "permutation"], ascending=[True, False], kind="stable")
            .drop(columns="place")
            .reset_index(drop=True)
        )


def check_analysis(models: Sequence[str], measures: Sequence[str], held_out: str, num_datasets: int) -> None:
    """Raise, before any partition is drawn, where :func:`analyse` could not do with these what it is asked to."""
    for model in models:
        if model not in MODELS:
            raise unknown_name("model", model, MODELS)
    if not models:
        raise ClustPSIError(f"name at least one model: {', '.join(MODELS)}")
    if "lightgbm" in models and find_spec("lightgbm") is None:
        raise ClustPSIError(
            "LightGBM is not installed: pip install 'clustpsi[study]', or leave it out with --models svm,mlp,tree"
        )
    for measure in measures:
        if measure not in KNOWN_MEASURES:
            raise unknown_name("measure", measure, KNOWN_MEASURES)
    if len(set(measures)) < max(len(measures), 2):
        raise ClustPSIError("the study compares at least two different measures")
    if held_out not in HELD_OUT:
        raise unknown_name("way of holding out", held_out, HELD_OUT)
    if held_out == "dataset" and num_datasets < 2:
        raise ClustPSIError("holding out a data set needs at least two of them")


def analyse(
    partitions: pd.DataFrame,
    *,
    models: Sequence[str] = MODELS,
    measures: Sequence[str] = MEASURES,
    held_out: str = "seed",
    watch: Callable[[str], None] | None = None,
) -> Study:
    """Train the models on some of the partitions and ask them, on the others, what each measure tells.

    Parameters
    ----------
    partitions
        What :func:`draw_partitions` gives.
    models
        Of `MODELS`.
    measures
        The features. Number of clients and data set are none: a measure should tell the level without knowing them.
    held_out
        ``"seed"``: the last quarter of the seeds, so that the models know every data set; ``"dataset"``: one data set
        after the other, so that they have to do with one they have never seen.
    """
    check_analysis(models, measures, held_out, partitions["dataset"].nunique())
    scores: list[dict[str, Any]] = []
    importances: list[dict[str, Any]] = []
    associations: list[dict[str, Any]] = []
    for protocol, targets in TARGETS.items():
        part = partitions[partitions["protocol"] == protocol].reset_index(drop=True)
        if part["level"].nunique() < 2:
            continue
        splits = list(_splits(part, held_out))
        for target in targets:
            level = part["level"].to_numpy(np.float64)
            wanted = np.log(level) if target == "log_alpha" else level
            for model in models:
                if watch is not None:
                    watch(f"{protocol}, {target}, {model}")
                where = {"protocol": protocol, "target": target, "model": model}
                found, shares = _analyse_model(model, part, wanted, list(measures), splits)
                scores += [{**where, **row} for row in found]
                importances += [{**where, **row} for row in shares]
        associations += [{"protocol": protocol, **_association(part, measure)} for measure in measures]
    return Study(partitions, pd.DataFrame(scores), pd.DataFrame(importances), pd.DataFrame(associations))


Split = tuple[NDArray[np.bool_], NDArray[np.bool_]]


def _splits(part: pd.DataFrame, held_out: str) -> Iterator[Split]:
    """Which rows to train on and which to hold out."""
    if held_out == "seed":
        seeds = part["seed"].to_numpy()
        out = seeds >= seeds.max() + 1 - max(1, round(HELD_OUT_SHARE * (seeds.max() + 1)))
        yield ~out, out
    else:
        datasets = part["dataset"].to_numpy()
        if len(set(datasets)) < 2:  # the others had no feasible partition
            raise ClustPSIError("holding out a data set needs at least two of them")
        for dataset in dict.fromkeys(datasets):
            yield datasets != dataset, datasets == dataset


def _analyse_model(
    model: str, part: pd.DataFrame, wanted: NDArray[np.float64], measures: list[str], splits: list[Split]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Scores of one model with all, single and left-out measures; importances of the measures."""
    from sklearn.inspection import permutation_importance
    from sklearn.metrics import mean_absolute_error, r2_score

    def held_out_scores(features: list[str]) -> tuple[dict[str, float], list[Any]]:
        predicted, actual, fitted = [], [], []
        for train, test in splits:
            regressor = _regressor(model).fit(part.loc[train, features].to_numpy(), wanted[train])
            predicted.append(regressor.predict(part.loc[test, features].to_numpy()))
            actual.append(wanted[test])
            fitted.append(regressor)
        pair = np.concatenate(actual), np.concatenate(predicted)
        return {"r2": float(r2_score(*pair)), "mae": float(mean_absolute_error(*pair))}, fitted

    full, regressors = held_out_scores(measures)
    scores: list[dict[str, Any]] = [{"features": "all", "measure": "", **full}]
    for measure in measures:
        scores.append({"features": "alone", "measure": measure, **held_out_scores([measure])[0]})
    for measure in measures:
        others = [each for each in measures if each != measure]
        scores.append({"features": "without", "measure": measure, **held_out_scores(others)[0]})

    permuted, own = [], []
    for regressor, (_, test) in zip(regressors, splits, strict=True):
        features = part.loc[test, measures].to_numpy()
        drops = permutation_importance(
            regressor, features, wanted[test], scoring="neg_mean_squared_error", n_repeats=REPEATS, random_state=0
        ).importances_mean
        permuted.append(_shares(drops))
        inner = regressor.regressor_[-1]
        own.append(_shares(getattr(inner, "feature_importances_", np.full(len(measures), np.nan))))
    shares = zip(measures, np.mean(own, axis=0).tolist(), np.mean(permuted, axis=0).tolist(), strict=True)
    return scores, [{"measure": measure, "own": a, "permutation": b} for measure, a, b in shares]


def _shares(importances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Importances as shares of one; those below zero are chance."""
    positive = np.maximum(importances, 0)
    total = positive.sum()
    return positive / total if total > 0 else np.full(len(positive), np.nan if np.isnan(total) else 1 / len(positive))


def _regressor(model: str) -> Any:
    """A model on standardized measures and a standardized target."""
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if model == "lightgbm":
        from lightgbm import LGBMRegressor

        inner: Any = LGBMRegressor(
            n_estimators=200, learning_rate=0.05, importance_type="gain", random_state=0, n_jobs=1, verbosity=-1
        )
    elif model == "svm":
        from sklearn.svm import SVR

        inner = SVR(kernel="rbf", C=10.0)
    elif model == "mlp":
        from sklearn.neural_network import MLPRegressor

        inner = MLPRegressor(hidden_layer_sizes=(32, 32), max_iter=1000, random_state=0)
    else:
        from sklearn.tree import DecisionTreeRegressor

        inner = DecisionTreeRegressor(min_samples_leaf=10, random_state=0)
    pipeline = make_pipeline(StandardScaler(), inner)
    return TransformedTargetRegressor(pipeline, transformer=StandardScaler())


def _association(part: pd.DataFrame, measure: str) -> dict[str, Any]:
    from scipy.stats import spearmanr  # here, because it takes its time to load

    within = [
        float(spearmanr(group[measure], group["level"]).statistic)
        for _, group in part.groupby(["dataset", "num_clients"], sort=False)
        if group["level"].nunique() > 1 and group[measure].nunique() > 1
    ]
    overall = float(spearmanr(part[measure], part["level"]).statistic) if part[measure].nunique() > 1 else float("nan")
    return {
        "measure": measure,
        "spearman": overall,
        "spearman_within": float(np.mean(within)) if within else float("nan"),
        "weakest_within": float(max(within)) if within else float("nan"),
    }
