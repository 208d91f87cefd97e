"""The settings of the page: they come from its controls or its address, and are written back there.

They have the names of the command-line options.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any
from urllib.parse import parse_qsl, urlencode

from clustpsi.datasets.catalogue import DATASETS
from clustpsi.errors import ClustPSIError, unknown_name
from clustpsi.limits import LARGEST
from clustpsi.methods import MethodSpec
from clustpsi.methods.clust_psi_pfl import ClustPSIPFL
from clustpsi.partition import DEFAULT_CLIENTS, DEFAULT_LEVELS
from clustpsi.presets import CLUSTERING as PRESETS
from clustpsi.presets import DEFAULT_CLUSTERING
from clustpsi.runs.config import Config

MOST_CLIENTS = 2_000  # on one screen; up to this number the clustering uses all clients, not a sample
LONGEST_ADDRESS = 4_000

#: The name of a dropped table is this prefix and a hash of its content.
TABLE = "table:"
_TABLE = re.compile(r"table:[0-9a-f]{16}")

# The settings that decide PSI and the clusters.
CLUSTERING = ("tau_clusters", "preset", "psi_features", "psi_smoothing")
NUMBERS = ("non_iid_param", "num_clients", "seed", "tau_clusters", "comm_rounds", "local_epochs")
TRAINING = ("agg_method", "comm_rounds", "local_epochs")


@dataclass(frozen=True)
class Settings:
    """Everything that decides what the page shows and what it trains.

    Attributes
    ----------
    dataset
        A named data set, or :data:`TABLE` and the hash of a dropped table.
    label, client
        Columns of such a table; without a label column it is a table of label counts.
    non_iid_param
        alpha or S; None for partitioners without one.
    preset
        Preset of PSI and of the clustering, as in ``clustpsi diagnose``.
    psi_smoothing, psi_features
        Replace the values of the preset.
    tau_clusters
        Number of clusters; None lets the silhouette decide.
    agg_method
        Methods to train, comma-separated.
    """

    dataset: str = "digits"
    label: str | None = None
    client: str | None = None
    partitioner: str = "dirichlet"
    non_iid_param: float | None = DEFAULT_LEVELS["dirichlet"]
    num_clients: int | None = DEFAULT_CLIENTS
    seed: int = 42
    preset: str = DEFAULT_CLUSTERING
    psi_smoothing: str | None = None
    psi_features: str | None = None
    tau_clusters: int | None = None
    agg_method: str = "fedavg,local,clust_psi_pfl"
    comm_rounds: int = 40
    local_epochs: int = 5

    def __post_init__(self) -> None:
        if self.dataset not in DATASETS and not _TABLE.fullmatch(self.dataset):  # no other file may be opened
            raise unknown_name("dataset", self.dataset, DATASETS)
        if (self.label is not None or self.client is not None) and not is_table(self.dataset):
            raise ClustPSIError(f"label and client are columns of a table, and {self.dataset} has its own")
        if self.num_clients is not None and not 2 <= self.num_clients <= MOST_CLIENTS:
            raise ClustPSIError(
                f"the page shows from 2 to {MOST_CLIENTS:,} clients, not {self.num_clients:,}: for more, use the "
                "command line"
            )
        if self.preset not in PRESETS:
            raise unknown_name("preset", self.preset, PRESETS)
        self.clust_psi_pfl(MethodSpec.parse(ClustPSIPFL.name))  # the same limits and messages as on the command line
        self.methods  # noqa: B018 (likewise)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Settings":
        """Settings from texts or numbers by name; missing settings keep their defaults.

        >>> Settings.of({"num_clients": "50", "non_iid_param": "0.3"}).num_clients
        50
        """
        given: dict[str, Any] = {}
        for each in fields(cls):
            value = values.get(each.name)
            if each.name in values and value not in (None, ""):
                given[each.name] = _parsed(each.name, value)
        how = given.get("partitioner", cls.partitioner)
        if given.get("client") is not None or (is_table(given.get("dataset", "")) and given.get("label") is None):
            how = "natural"  # the table names its clients
        if how == "natural":
            given |= {"num_clients": None, "non_iid_param": None}
        elif how not in DEFAULT_LEVELS:
            given["non_iid_param"] = None
        else:
            given.setdefault("non_iid_param", DEFAULT_LEVELS[how])
        return cls(**given | {"partitioner": how})

    @classmethod
    def from_address(cls, query: str) -> "Settings":
        """Settings from the query of an address (after the question mark); unknown names are ignored."""
        if len(query) > LONGEST_ADDRESS:
            raise ClustPSIError(f"the address of this page is longer than {LONGEST_ADDRESS:,} characters")
        return cls.of(dict(parse_qsl(query.removeprefix("?"), max_num_fields=100)))

    def as_address(self) -> str:
        """The query of the page's address: all settings that have a value."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return urlencode({key: _written(value) for key, value in values.items() if value is not None}, safe=",:")

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods to train; Clust-PSI-PFL gets the clusters that the page shows."""
        specs = [MethodSpec.parse(each) for each in self.agg_method.split(",") if each.strip()]
        full = [
            self.clust_psi_pfl(spec) if spec.name == ClustPSIPFL.name else self.config(str(spec)).checked().agg_method
            for spec in specs
        ]
        return tuple(dict.fromkeys(full))

    def clust_psi_pfl(self, spec: MethodSpec) -> str:
        """Clust-PSI-PFL with the preset and the clusters that the page shows, unless ``spec`` sets others."""
        said = {key: getattr(self, key) for key in ("tau_clusters", "psi_features", "psi_smoothing")}
        given = {
            **ClustPSIPFL.presets.get(self.preset, {}),
            **{k: each for k, each in said.items() if each is not None},
        }
        full = spec.with_defaults({key: str(value) for key, value in given.items()})
        return self.config(str(full)).checked().agg_method

    @property
    def clustering(self) -> dict[str, Any]:
        """Parameters of :class:`clustpsi.PSIClustering`: the values of the preset, or those that replace them."""
        said = {"features": self.psi_features, "smoothing": self.psi_smoothing}
        return {**PRESETS[self.preset], **{key: value for key, value in said.items() if value is not None}}

    def config(self, method: str, dataset: str | None = None) -> Config:
        """The run of a method; ``dataset`` is the file of a table."""
        return Config(
            dataset=dataset or self.dataset,
            label=self.label,
            client=self.client,
            partitioner=self.partitioner,
            non_iid_param=self.non_iid_param,
            num_clients=self.num_clients,
            agg_method=method,
            comm_rounds=self.comm_rounds,
            local_epochs=self.local_epochs,
            seed=self.seed,
        )

    def plain(self, *names: str) -> "Settings":
        """The same settings with these at their defaults, for results that do not depend on them."""
        return replace(self, **{name: getattr(Settings, name) for name in names})

    @property
    def is_counts(self) -> bool:
        """Whether the data is a table of label counts, on which nothing can be trained."""
        return is_table(self.dataset) and self.label is None


def is_table(dataset: str) -> bool:
    return dataset.startswith(TABLE)


def _parsed(name: str, value: Any) -> Any:
    if name not in NUMBERS:
        return str(value)
    is_whole = name != "non_iid_param"
    try:
        number = float(value)
        if is_whole and number != int(number):
            raise ValueError
    except (ValueError, OverflowError):
        needed = "a whole number" if is_whole else "a number"
        raise ClustPSIError(f"{name.replace('_', ' ')} must be {needed}, not {value!r}") from None
    if is_whole and abs(number) > LARGEST:
        bound = f"at most {LARGEST:,}" if number > 0 else "at least 0"
        raise ClustPSIError(f"{name.replace('_', ' ')} must be {bound}, not {value!r}")
    return int(number) if is_whole else number


def _written(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
