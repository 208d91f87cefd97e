"""A federation behind scikit-learn's interface: rows, labels and whose rows they are go in, a classifier comes out."""

from collections.abc import Mapping
from numbers import Integral, Number
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from clustpsi.datasets.base import Dataset
from clustpsi.datasets.tables import from_arrays, from_table
from clustpsi.errors import ClustPSIError, in_python
from clustpsi.runs.cell import open_cell
from clustpsi.runs.config import Config
from clustpsi.runs.course import Course
from clustpsi.runs.sources import identified, settled
from clustpsi.saved.model import SavedModel


class FederatedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Train a federated method on rows that belong to clients, and predict each client's rows with the model it uses.

    It computes what ``clustpsi run`` computes, in memory.  All rows train, unless `split` says otherwise.

    Parameters
    ----------
    method
        As on the command line: ``"clust_psi_pfl"``, ``"prior_pfl"``, ``"fedprox:mu=0.1"``, ...
    model
        Name of the model; by default the one that suits the data.
    comm_rounds, local_epochs, fraction
        Communication rounds, epochs of local training in each, and the share of the clients that a round trains.
    optimizer, lr, batch_size
        Settings of local training.
    word_vectors
        File of word vectors, for models of text.
    partitioner, non_iid_param, num_clients
        How rows are dealt out to clients if :meth:`fit` gets no clients, as in :func:`clustpsi.build_federation`.
        None: a value that suits the data.
    split
        ``"none"``: all rows train.  ``"client_80_20"``: a fifth of every client's rows is for testing, as in ``clustpsi
        run``, and `history_` has the scores.
    eval_every
        Rounds between two evaluations on those test rows.
    workers
        Clients (or chunks of small ones) trained at once; by default one per core.
    random_state
        Decides how rows are dealt out, initial models, sampling and batches.  A whole number is the seed that
        ``clustpsi run`` takes.

    Attributes
    ----------
    classes_ : (C,) array
        The classes, sorted.
    clients_ : list
        The clients that :meth:`fit` got, or ``"0"``, ``"1"``, ... if it dealt the rows out.
    cluster_of_client_ : dict or None
        The cluster of each client; None if the method forms no clusters.
    history_ : DataFrame
        One row per round: its cost and, if there are test rows, its scores.
    model_ : SavedModel
        The fitted model.  ``model_.save(path)`` writes the file that ``clustpsi predict`` and ``clustpsi export`` read.
    n_features_in_, feature_names_in_
        As in every estimator of scikit-learn.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> sites = np.where(y + X["sepal width (cm)"] > 4, "north", "south")
    >>> classifier = FederatedClassifier("fedavg", comm_rounds=2, random_state=0).fit(X, y, clients=sites)
    >>> classifier.clients_, classifier.predict_proba(X[:2], clients=sites[:2]).shape
    (['north', 'south'], (2, 3))
    """

    def __init__(
        self,
        method: str = "clust_psi_pfl",
        model: str | None = None,
        *,
        comm_rounds: int = 40,
        local_epochs: int = 5,
        fraction: float = 0.5,
        optimizer: str = "adam",
        lr: float = 0.001,
        batch_size: int = 32,
        word_vectors: str | None = None,
        partitioner: str = "iid",
        non_iid_param: float | None = None,
        num_clients: int | None = None,
        split: str = "none",
        eval_every: int = 1,
        workers: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.method = method
        self.model = model
        self.comm_rounds = comm_rounds
        self.local_epochs = local_epochs
        self.fraction = fraction
        self.optimizer = optimizer
        self.lr = lr
        self.batch_size = batch_size
        self.word_vectors = word_vectors
        self.partitioner = partitioner
        self.non_iid_param = non_iid_param
        self.num_clients = num_clients
        self.split = split
        self.eval_every = eval_every
        self.workers = workers
        self.random_state = random_state

    def fit(self, X: Any, y: ArrayLike, clients: ArrayLike | None = None) -> Self:
        """Train.

        Parameters
        ----------
        X
            A data frame, numbers (rows, columns), images (rows, height, width[, channels]) as bytes, or texts.
        y
            The class of every row.
        clients
            The name or number of each row's client; by default rows are dealt out.
        """
        labels = self._check_labels(y)
        rows = self._check_rows(X, reset=True)
        check_consistent_length(rows, labels, clients)
        dataset = _dataset(rows, pd.Series(labels, name=getattr(y, "name", None)), clients)
        if len(self.classes_) != dataset.num_classes:
            raise ClustPSIError("two classes have the same name: those that are written alike must be one")
        with in_python(agg_method="method", seed="random_state"):
            course = self._train(dataset)
        self.model_: SavedModel = course.saved()
        names, clusters = self.model_.client_names, self.model_.clusters
        given = {} if clients is None else {str(client): client for client in pd.unique(np.asarray(clients)).tolist()}
        self.clients_: list[Any] = [given.get(name, name) for name in names]
        self.cluster_of_client_: dict[Any, int] | None = (
            None if clusters is None else dict(zip(self.clients_, clusters.tolist(), strict=True))
        )
        self.history_: pd.DataFrame = pd.DataFrame(course.history.rounds()).dropna(axis="columns", how="all")
        return self

    def predict(
        self, X: Any, clients: ArrayLike | None = None, counts: Mapping[Any, Any] | pd.DataFrame | None = None
    ) -> NDArray[Any]:
        """The class of every row.

        Parameters
        ----------
        X
            As for :meth:`fit`.
        clients
            Each row's client, or the name or number of one client for all rows.  By default, rows are predicted as
            those of a client with the federation's label mix.
        counts
            Label counts of clients that :meth:`fit` did not see: a data frame with one row per client, named by its
            index, and one column per class, or a mapping from names to counts.  They decide which model such a client
            uses.  Without them it is taken for a client with the federation's label mix, with a warning.
        """
        codes: NDArray[Any] = self._use("predict_codes", X, clients, counts)
        classes: NDArray[Any] = self.classes_[codes]
        return classes

    def predict_proba(
        self, X: Any, clients: ArrayLike | None = None, counts: Mapping[Any, Any] | pd.DataFrame | None = None
    ) -> NDArray[np.float32]:
        """Probabilities of the classes, in the order of `classes_`; parameters as for :meth:`predict`."""
        probabilities: NDArray[np.float32] = self._use("predict_proba", X, clients, counts)
        return probabilities

    def score(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        clients: ArrayLike | None = None,
        counts: Mapping[Any, Any] | pd.DataFrame | None = None,
    ) -> float:
        """The share of the rows whose class is predicted; parameters as for :meth:`predict`."""
        predicted = self.predict(X, clients=clients, counts=counts)
        return float(accuracy_score(y, predicted, sample_weight=sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True  # gaps of a table
        tags.input_tags.three_d_array = True  # images
        return tags

    def _use(self, what: str, X: Any, clients: ArrayLike | None, counts: Any) -> Any:
        """Ask the saved model."""
        check_is_fitted(self)
        rows = self._check_rows(X, reset=False)
        if clients is None:
            counts = self.model_.newcomers.federation
        elif isinstance(clients, str | Number):  # never the name of a column
            clients = np.full(len(rows), clients, dtype=object)
        return getattr(self.model_, what)(rows, clients, counts=counts)

    def _check_labels(self, y: ArrayLike) -> NDArray[Any]:
        labels: NDArray[Any] = validate_data(self, y=y)
        check_classification_targets(labels)
        self.classes_: NDArray[Any] = np.unique(labels)
        if len(self.classes_) < 2:
            raise ClustPSIError("y has a single class: at least two classes are needed (n_samples=1, or all alike?)")
        return labels

    def _check_rows(self, X: Any, reset: bool) -> Any:
        """Rows as a data set takes them; with `reset` they decide what later rows must look like."""
        if isinstance(X, pd.DataFrame):
            return validate_data(self, X, reset=reset, skip_check_array=True)
        if isinstance(X, list | tuple | np.ndarray | pd.Series) and len(X) and isinstance(next(iter(X)), str):
            return np.array(X, dtype=object)
        return validate_data(self, X, reset=reset, allow_nd=True, ensure_all_finite="allow-nan")

    def _train(self, dataset: Dataset) -> Course:
        config = self._config(dataset)
        cell = open_cell(config, dataset=dataset, workers=self.workers)
        try:
            course = Course(config, cell)
            course.start()
            while not course.is_over:
                course.round()
        finally:
            cell.server.close()
        return course

    def _config(self, dataset: Dataset) -> Config:
        state = self.random_state
        seed = int(state) if isinstance(state, Integral) else int(check_random_state(state).randint(2**31 - 1))
        dealt: dict[str, Any] = {"partitioner": "natural"}
        if dataset.client_ids is None:
            dealt = {name: getattr(self, name) for name in ("partitioner", "non_iid_param", "num_clients")}
        alike = ("model", "comm_rounds", "local_epochs", "fraction", "optimizer", "lr", "batch_size", "word_vectors")
        config = Config(
            dataset=dataset.name,
            agg_method=self.method,
            **{name: getattr(self, name) for name in (*alike, "split", "eval_every")},
            **dealt,
            seed=seed,
        )
        return identified(settled(config, dataset, [seed]).checked(), dataset)


def _dataset(X: Any, y: "pd.Series[Any]", clients: ArrayLike | None) -> Dataset:
    """The data set that a file with these rows, labels and clients would be."""
    if not isinstance(X, pd.DataFrame):
        return from_arrays(X, y, clients)
    table, taken = X.reset_index(drop=True), {str(name) for name in X.columns}
    named = {}
    for part, values in (("label", y), ("client", clients)):
        if values is not None:
            name = getattr(values, "name", None)
            name = part if name is None or str(name) in taken else str(name)
            while name in taken:
                name += "_"
            taken.add(name)
            table[name], named[part] = np.asarray(values), name
    return from_table(table, label=named["label"], client=named.get("client"))
