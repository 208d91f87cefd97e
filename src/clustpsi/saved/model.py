"""A saved model: predictions for every client of a federation, and for clients that come later."""

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from numbers import Number
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clustpsi.datasets.labels import Parts, read_clients
from clustpsi.engine.architecture import Architecture
from clustpsi.engine.prediction import Predictor
from clustpsi.errors import ClustPSIError, ClustPSIWarning, unknown_name
from clustpsi.features import Fitted, FittedTable, FittedText
from clustpsi.features.columns import known_name
from clustpsi.orders import Deployment, Newcomers, joined
from clustpsi.printing import counted
from clustpsi.skew import check_counts

if TYPE_CHECKING:
    import pandas as pd

    ClientLike = str | int | ArrayLike
    CountsLike = Mapping[str, Any] | pd.DataFrame | ArrayLike

# Label counts of clients that did not take part, by name.
Counts = Mapping[str, NDArray[np.int64]]

SHOWN = 5  # most clients that a warning names


@dataclass(frozen=True, eq=False)
class SavedModel:
    """The models of a federation with everything that predictions need; plain data.

    Attributes
    ----------
    class_names, client_names
        Names of the federation's classes and clients.
    label_counts
        Each client's number of training rows of each class, (K, C).
    features
        Turns rows into the models' input; fitted on the training rows.
    parts
        Names of the label, client and text columns.
    architecture
        The network that all models share.
    deployment
        Which model each client uses, with which label prior.
    newcomers
        How clients that did not take part get a model.
    clusters
        The cluster of each client, if the method forms clusters.
    method
        The method, as on the command line.
    config
        Settings of the run.
    versions
        Versions of clustpsi and of the packages that it computed with.
    """

    class_names: tuple[str, ...]
    client_names: tuple[str, ...]
    label_counts: NDArray[np.int64]
    features: Fitted[Any]
    parts: Parts
    architecture: Architecture
    deployment: Deployment
    newcomers: Newcomers
    clusters: NDArray[np.int64] | None
    method: str
    config: Mapping[str, Any]
    versions: Mapping[str, str]

    def save(self, path: str | Path) -> None:
        """Write the file for :func:`clustpsi.load_model` and ``clustpsi predict``; a failure leaves no partial file."""
        from clustpsi.saved.file import save_model

        save_model(self, path)

    def __getstate__(self) -> dict[str, Any]:
        """For pickle: the fields, without compiled programs."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    # ------------------------------------------------------------------------------------------------------- using

    def predict(
        self, rows: Any, client: "ClientLike | None" = None, *, counts: "CountsLike | None" = None
    ) -> NDArray[Any]:
        """The class of every row.

        Parameters
        ----------
        rows
            A data frame with the columns of the training data (in any order; other columns are ignored), an array of
            rows, images, or texts.
        client
            Whose rows they are: the name or number of one client, the name of a data frame's column, or one name per
            row.  For a client that did not take part, its label counts choose the model.  None: no client of the
            federation.
        counts
            Label counts of clients that did not take part: a mapping from their names, or a data frame with one row per
            client and one column per class.  For a single client, just its counts: in the order of the classes, or by
            their names.  A client without counts is treated as if it had the federation's label mix.

        Returns
        -------
        array
            Names of classes.
        """
        return np.array(self.class_names, dtype=object)[self.predict_codes(rows, client, counts=counts)]

    def predict_codes(
        self, rows: Any, client: "ClientLike | None" = None, *, counts: "CountsLike | None" = None
    ) -> NDArray[np.int32]:
        """Like :meth:`predict`, but gives positions in ``class_names``."""
        return self.predictor.classes(*self._served(rows, client, counts))

    def predict_proba(
        self, rows: Any, client: "ClientLike | None" = None, *, counts: "CountsLike | None" = None
    ) -> NDArray[np.float32]:
        """Probabilities of the classes, (rows, classes); parameters as for :meth:`predict`."""
        return self.predictor.probabilities(*self._served(rows, client, counts))

    def assign(self, counts: "ArrayLike | pd.DataFrame") -> NDArray[np.int64]:
        """Which model new clients would use, from their label counts (clients x classes).

        The result holds positions in ``newcomers.models``; for a method that forms clusters these are the clusters.
        """
        return self.newcomers.place(self.counts_table(counts)).of_client

    def counts_table(self, counts: "ArrayLike | pd.DataFrame") -> NDArray[np.int64]:
        """Label counts (clients x classes) in the order of this model's classes.

        The columns of a data frame may be in any order.  A class without a column counts as absent.
        """
        import pandas as pd

        if isinstance(counts, pd.DataFrame):
            frame = counts.set_axis([str(name) for name in counts.columns], axis=1)
            for name in frame.columns:
                if name not in self.class_names:
                    raise unknown_name("class", name, self.class_names)
            counts = frame.reindex(columns=list(self.class_names), fill_value=0)
        table = check_counts(counts)
        if table.shape[1] != len(self.class_names):
            raise ClustPSIError(
                f"the model has {counted(len(self.class_names), 'class')}, and these label counts have "
                f"{table.shape[1]}: one number for each class is needed, in their order"
            )
        return table

    # ----------------------------------------------------------------------------------------------------- serving

    @cached_property
    def predictor(self) -> Predictor:
        """Applies the models to rows."""
        return Predictor(self.architecture.network, len(self.class_names))

    @cached_property
    def place_of(self) -> Mapping[str, int]:
        """Position of each client that took part in ``client_names``, by name."""
        return {name: place for place, name in enumerate(self.client_names)}

    def serve(self, clients: Sequence[str], counts: Counts) -> Deployment:
        """What each of these clients uses, including new ones; ``counts`` may lack some of them."""
        known = np.array([self.place_of.get(name, -1) for name in clients], np.int64)
        new = [name for name in clients if name not in self.place_of]
        if not new:
            return _of_clients(self.deployment, known)
        nothing = np.zeros(len(self.class_names), np.int64)
        placed = self.newcomers.place(np.array([counts.get(name, nothing) for name in new]))
        if len(new) == len(known):
            return placed
        both = joined([self.deployment, placed], np.repeat([0, 1], [len(self.client_names), len(new)]))
        known[known < 0] = len(self.client_names) + np.arange(len(new))
        return _of_clients(both, known)

    def say_without(self, clients: Iterable[str], counts: Counts) -> None:
        """Warn about new clients whose label counts are unknown, if the counts would make a difference."""
        without = [name for name in clients if name not in self.place_of and name not in counts]
        if not without or not self.newcomers.uses_counts:
            return
        shown = ", ".join(repr(name) for name in without[:SHOWN]) + (", ..." if len(without) > SHOWN else "")
        who = f"client {shown} was not in the federation and has"
        if without == [NOBODY]:
            who = "these are the rows of nobody in the federation, without"
        elif len(without) > 1:
            who = f"{len(without):,} clients ({shown}) were not in the federation and have"
        said = (
            f"{who} {'' if without == [NOBODY] else 'no '}label counts: the federation's label mix stands in for them"
        )
        warnings.warn(said, ClustPSIWarning, stacklevel=4)

    def _served(
        self, rows: Any, client: "ClientLike | None", counts: "CountsLike | None"
    ) -> tuple[NDArray[Any], Deployment, NDArray[np.int64]]:
        """Features of the rows, what the clients use, and the client of each row."""
        import pandas as pd

        column = None
        if isinstance(client, Number):
            client = known_name(str(client), self.place_of)
        if isinstance(client, str) and isinstance(rows, pd.DataFrame):
            column = next((name for name in rows.columns if str(name) == client), None)
        if column is not None:
            self.refuse_ambiguous(str(column))
            client = rows[column]
        features = self.read(rows, without=() if column is None else (str(column),))
        codes, names = self.clients_of(client, len(features))
        by_name = self._counts_of(counts, names)
        self.say_without(names, by_name)
        return features, self.serve(names, by_name), codes

    def refuse_ambiguous(self, column: str) -> None:
        """Raise if a column has the same name as a client."""
        if column in self.place_of:
            raise ClustPSIError(
                f"{column!r} is a column of the rows and a client of the federation: rename the column to say which is "
                "meant"
            )

    def clients_of(
        self, client: "ClientLike | None", number: int, where: str = "the data"
    ) -> tuple[NDArray[np.int64], list[str]]:
        """Every row's client, as a number, and the clients' names as the federation spells them."""
        if client is None:
            return np.zeros(number, np.int64), [NOBODY]
        if isinstance(client, str | Number):
            if not str(client).strip():
                raise ClustPSIError("the name of the client is empty: give it one, or leave it away for no client")
            return np.zeros(number, np.int64), [known_name(str(client), self.place_of)]
        codes, names = read_clients(client, "the client", where)
        if len(codes) != number:
            raise ClustPSIError(f"there are {number:,} rows but {len(codes):,} names of clients: one per row is needed")
        return codes.astype(np.int64), [known_name(name, self.place_of) for name in names]

    def _counts_of(self, counts: "CountsLike | None", names: Sequence[str]) -> Counts:
        """Label counts by the names of clients."""
        import pandas as pd

        if counts is None:
            return {}
        if isinstance(counts, pd.DataFrame):
            clients = [str(name) for name in counts.index]
            if len(set(clients)) < len(clients):
                twice = next(name for name in clients if clients.count(name) > 1)
                raise ClustPSIError(f"the label counts have client {twice!r} more than once: one row per client")
            return dict(zip(clients, self.counts_table(counts), strict=True))
        if isinstance(counts, Mapping):
            if counts and all(isinstance(own, int | np.integer) for own in counts.values()):
                return {self._only(names): self._counts_row(counts)}
            return {str(name): self._counts_row(own) for name, own in counts.items()}
        return {self._only(names): self._counts_row(counts)}

    @staticmethod
    def _only(names: Sequence[str]) -> str:
        if len(names) != 1:
            raise ClustPSIError(NAMELESS)
        return names[0]

    def _counts_row(self, own: Any) -> NDArray[np.int64]:
        import pandas as pd

        lists: tuple[type, ...] = (list, tuple, np.ndarray)
        if isinstance(own, lists) and any(isinstance(each, lists) for each in np.atleast_1d(np.asarray(own, object))):
            raise ClustPSIError(NAMELESS)
        table = self.counts_table(pd.DataFrame([own]) if isinstance(own, Mapping) else [own])
        row: NDArray[np.int64] = table[0]
        return row

    # ----------------------------------------------------------------------------------------------------- reading

    def read(
        self, rows: Any, where: str = "the data", *, without: Collection[str] = (), text: Sequence[str] = ()
    ) -> NDArray[Any]:
        """The features of rows.

        Parameters
        ----------
        rows
            As for :meth:`predict`.
        where
            How error messages name them.
        without
            Columns of a data frame that are not features, besides the label and client of the training data.
        text
            Columns of text, instead of those of the training data.
        """
        import pandas as pd

        if isinstance(rows, pd.DataFrame):
            rows = self._read_frame(
                rows, where, {*without, self.parts.label, self.parts.client}, text or self.parts.text
            )
        elif isinstance(self.features, FittedText) and isinstance(rows, str):
            raise ClustPSIError(f"{where} is a single text: a list of texts is needed")
        found = self.features.transform(self.features.read(rows, where))
        if not len(found):
            raise ClustPSIError(f"{where} has no rows")
        return found

    def _read_frame(
        self, frame: "pd.DataFrame", where: str, without: Collection[str | None], text: Sequence[str]
    ) -> Any:
        """The data from which features are made: a table, an array, or texts."""
        if isinstance(self.features, FittedTable):
            return frame
        named = {str(name): name for name in frame.columns}
        others = [named[name] for name in named if name not in without]
        if not isinstance(self.features, FittedText):
            return frame[others].to_numpy()
        for name in text:
            if name not in named:
                raise ClustPSIError(f"{where} has no column {name!r}, which is a text that the model reads")
        texts = [named[name] for name in text] or others
        if not text and len(texts) != 1:
            raise ClustPSIError(
                f"{where} has {len(texts)} columns besides label and client: name those of text with --text"
            )
        return frame[texts].astype(object).fillna("").astype(str).agg(" ".join, axis=1).tolist()


NAMELESS = (
    "label counts of several clients need the clients' names: give a data frame with one row per client, named by its "
    "index, or a mapping from names to counts"
)

# The client of rows whose client is not given; no client has an empty name.
NOBODY = ""


def _of_clients(deployment: Deployment, places: NDArray[np.int64]) -> Deployment:
    """What some of a deployment's clients use."""
    log_prior = None if deployment.log_prior is None else deployment.log_prior[places]
    scale = None if deployment.scale is None else deployment.scale[places]
    return Deployment(deployment.models, deployment.of_client[places], log_prior, scale)
