"""The base class of methods: a start, a round, and the model that each client uses in the end."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from clustpsi.errors import ClustPSIError
from clustpsi.limits import LARGEST
from clustpsi.orders import Deployment, LabelCounts, LabelPresence, Model, Newcomers, Work, mean_model, near_users


@dataclass(frozen=True)
class Setting:
    """What the server knows before it asks any client.

    Attributes
    ----------
    clients
        Ids of the clients that take part (a cluster's members, where a method runs inside a cluster).
    sizes
        Training samples of every client of the federation, indexed by client id.
    num_classes
        C.
    fraction, num_rounds, local_epochs
        q, T and E.
    initial
        ``initial(i)`` is the i-th random initial model; all methods of a cell share ``initial(0)``.
    seed
        Seed for draws that a method makes once per run.
    before
        What every client of the federation used before, where training goes on from models that are there.
    head
        Which parameters are those of the model's last layer, if that is known.
    """

    clients: NDArray[np.int64]
    sizes: NDArray[np.int64]
    num_classes: int
    fraction: float
    num_rounds: int
    local_epochs: int
    initial: Callable[[int], Model]
    seed: int
    before: Deployment | None = None
    head: NDArray[np.bool_] | None = None

    @property
    def common_start(self) -> Model:
        """The model that the clients start from together: the first initial one or, where training goes on, their mean.

        It is weighted by their numbers of samples; a model that all of them use already is taken as it is.
        """
        if self.before is None:
            return self.initial(0)
        used = np.unique(self.before.of_client[self.clients])
        if len(used) == 1:
            only: Model = self.before.models[used[0]]
            return only
        sizes = np.bincount(self.before.of_client[self.clients], self.sizes[self.clients])[used]
        return mean_model([self.before.models[each] for each in used], sizes)

    @property
    def own_starts(self) -> tuple[Model, ...]:
        """The model that each of the clients starts from alone: the first initial one, or the one it uses already."""
        if self.before is None:
            return (self.initial(0),) * len(self.clients)
        return tuple(self.before.models[each] for each in self.before.of_client[self.clients])

    @property
    def num_chosen(self) -> int:
        """m: how many of the clients a round trains."""
        return num_chosen(len(self.clients), self.fraction)


def num_chosen(num_clients: int, fraction: float) -> int:
    """m(K) = min(K, max(2, floor(q K))): Flower's rule, with its minimum of two clients.

    >>> [num_chosen(k, 0.5) for k in (1, 2, 3, 10, 100)]
    [1, 2, 2, 5, 50]
    """
    # q K in floating point may fall a hair below the whole number it stands for (0.29 * 100 = 28.999...).
    return min(num_clients, max(2, int(fraction * num_clients + 1e-9)))


@dataclass(frozen=True)
class State:
    """What the server keeps from one round to the next: only models and arrays, so that it can be saved.

    Attributes
    ----------
    models
        The models that the server keeps.
    memory
        Named arrays: momentum, cluster of each client, last losses, ...
    parts
        States of methods that run inside this one.
    """

    models: tuple[Model, ...] = ()
    memory: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    parts: tuple["State", ...] = ()


def option(
    default: Any,
    help: str,
    *,
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    below: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """A method's parameter: its default, what it means, and which values are allowed."""
    allowed = {"least": least, "most": most, "above": above, "below": below, "choices": choices}
    return field(default=default, metadata={"help": help, **allowed})


@dataclass(frozen=True)
class Method(ABC):
    """A federated method: the server's side, written once for the simulator and for a real federation.

    The fields of a subclass are its parameters; a parameter has the same name on the command line, in a run's
    configuration and here.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    family: ClassVar[str]
    idea: ClassVar[str]
    paper: ClassVar[str]
    # Whether it trains on all data in one place, so that it does not matter who holds which.
    is_centralized: ClassVar[bool] = False
    # Parameters whose defaults have changed, and what they were: a run on record that does not say them had these
    # values, and a record always says them.
    before: ClassVar[Mapping[str, Any]] = {}
    # Named sets of parameters other than the defaults, which are the paper's.
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    # Of a method that runs another one inside it, its field `inner`: the kind that is taken unless one is named.
    inner_default: ClassVar["type[Method] | None"] = None

    def __post_init__(self) -> None:
        for key, parameter in self.__dataclass_fields__.items():
            check_option(f"{self.name}: {key}", getattr(self, key), parameter.metadata)

    @abstractmethod
    def start(self, setting: Setting) -> Work[State]:
        """Everything before the first round."""

    @abstractmethod
    def round(self, setting: Setting, state: State, t: int, rng: np.random.Generator) -> Work[State]:
        """Round t = 1, 2, ..., T.  ``rng`` is the round's own stream, the same for every method with the same seed."""

    @abstractmethod
    def deploy(self, setting: Setting, state: State) -> Deployment:
        """The model that each of the setting's clients uses after this round."""

    def newcomers(self, setting: Setting, state: State, counts: NDArray[np.int64]) -> Newcomers:
        """How clients are served that come after this round; ``counts`` are the label counts of the setting's clients.

        By default a newcomer uses the model of the clients whose label mix is nearest to its own.
        """
        return near_users(self.deploy(setting, state), counts)

    def label_counts(self, setting: Setting) -> Work[NDArray[np.int64]]:
        """Ask the clients how many training samples they have of each class: (len(clients), C)."""
        counts: NDArray[np.int64] = yield from self._labels(LabelCounts(setting.clients), "label counts")
        silent = setting.clients[counts.sum(axis=1) == 0]
        if len(silent):
            raise ClustPSIError(
                f"{self.name} needs every client's label counts, and {len(silent)} of {len(setting.clients)} clients "
                f"did not send any (client {silent[0]}, for one): leave them out of the federation"
            )
        return counts

    def label_presence(self, setting: Setting) -> Work[NDArray[np.bool_]]:
        """Ask the clients which classes they hold: (len(clients), C)."""
        present: NDArray[np.bool_] = yield from self._labels(LabelPresence(setting.clients), "labels")
        return present

    def _labels(self, order: LabelCounts | LabelPresence, what: str) -> Work[Any]:
        told = yield order
        if told is None:
            raise ClustPSIError(f"{self.name} needs to know the clients' {what}, which this federation does not tell")
        return told

    def server_deployments(self, setting: Setting, state: State) -> tuple[Deployment, ...]:
        """Other deployments by which the literature scores this method (mostly none); accuracy is their mean."""
        return ()

    def clusters(self, setting: Setting, state: State) -> NDArray[np.int64] | None:
        """The cluster of each of the setting's clients, for methods that form clusters."""
        return None

    def tables(self, setting: Setting, state: State) -> dict[str, dict[str, NDArray[Any]]]:
        """The method's own tables for the run's folder: for each file name, columns by name."""
        return {}


def check_option(what: str, value: Any, metadata: Mapping[str, Any]) -> None:
    """Raise if a parameter's value is not among those its :func:`option` allows."""
    choices = metadata.get("choices") or ()
    if choices and value not in choices:
        raise ClustPSIError(f"{what} must be one of {', '.join(choices)}, not {value!r}")
    if value == "":
        raise ClustPSIError(f"{what} is empty: give it a value, or leave it away")
    if not isinstance(value, int | float) or isinstance(value, bool):
        return
    if isinstance(value, int) and value > LARGEST and metadata.get("most") is None:
        metadata = {**metadata, "most": LARGEST}
    least, most, above, below = (metadata.get(bound) for bound in ("least", "most", "above", "below"))
    low = (least is None or value >= least) and (above is None or value > above)
    high = (most is None or value <= most) and (below is None or value < below)
    if low and high and (isinstance(value, int) or math.isfinite(value)):
        return
    raise ClustPSIError(f"{what} must be a number {bounds(metadata)}".rstrip() + f", not {value}")


def bounds(metadata: Mapping[str, Any]) -> str:
    """Which numbers an :func:`option` allows, in words.

    >>> bounds({"least": 1, "most": 1_000_000}), bounds({"above": 0.0})
    ('at least 1 and at most 1,000,000', 'above 0')
    """
    words = {"least": "at least", "above": "above", "most": "at most", "below": "below"}
    return " and ".join(f"{words[key]} {metadata[key]:,.10g}" for key in words if metadata.get(key) is not None)
