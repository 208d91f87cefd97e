"""Which measure of label skew says most about how non-IID a partition is?

The paper's study: draw partitions of many data sets with known alpha or S, compute the measures, train regressors to
predict the level from them, and see which measure the regressors rely on. The measures are close to monotone functions
of each other, and collinear features share their importance in arbitrary ways. So every measure is also scored alone,
and by what is lost without it.

:mod:`clustpsi.experiments.study_partitions` draws the partitions.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clustpsi.errors import ClustPSIError, unknown_name
from clustpsi.experiments.study_axes import (
    HELD_OUT,
    KNOWN_MEASURES,
    MEASURES,
    MODELS,
    TARGETS,
)
from clustpsi.runs.store import write_csv

Counts = NDArray[np.int64]

HELD_OUT_SHARE = 0.25
REPEATS = 5  # of each permutation


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
    """Raise, before any partition is drawn, if :func:`analyse` could not use these settings."""
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
    """Train the models on some of the partitions and find out, on the others, what each measure tells.

    Parameters
    ----------
    partitions
        The result of :func:`draw_partitions`.
    models
        Names from `MODELS`.
    measures
        The features. The number of clients and the data set are not features: a measure should tell the level without
        them.
    held_out
        ``"seed"`` holds out the last quarter of the seeds, so that the models know every data set. ``"dataset"`` holds
        out one data set after the other, so that the models have never seen it.
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
    """Scores of one model with all measures, with each alone and without each; importances of the measures."""
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
