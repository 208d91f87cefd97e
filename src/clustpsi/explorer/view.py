"""What the page shows of a federation: from settings to numbers, sentences and charts."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from io import StringIO

import pandas as pd

from clustpsi.diagnosis import Diagnosis, band, diagnose
from clustpsi.evaluation import constant_answers
from clustpsi.explorer.library import Clients, Library
from clustpsi.explorer.settings import CLUSTERING, TRAINING, Settings
from clustpsi.report import charts
from clustpsi.report.advice import Advice, advise
from clustpsi.report.answers import skew_answer, skew_question
from clustpsi.report.cells import two_dimensions
from clustpsi.report.charts import Chart, Silhouettes
from clustpsi.report.glossary import CONSTANT_LINES
from clustpsi.report.look import Theme

KEPT = 64  # views kept in memory


@dataclass(frozen=True, eq=False)
class View:
    """A federation as the page shows it; ``silhouettes`` has one entry per number of clusters."""

    settings: Settings
    clients: Clients
    diagnosis: Diagnosis
    silhouettes: Mapping[int, float]

    @cached_property
    def constants(self) -> dict[str, float]:
        """The accuracy of answers that need no training, as lines of a chart."""
        if self.clients.test_counts is None:
            return {}
        scores = constant_answers(self.clients.counts, self.clients.test_counts)
        return {title: scores[kind].global_accuracy for kind, title in CONSTANT_LINES.items()}

    @property
    def facts(self) -> list[tuple[str, str, str, str]]:
        """The facts at the top of the page: key of the explanation, name, value, and a remark."""
        found = self.diagnosis
        wpsi, tau = found.measures["wpsi"], found.clustering.n_clusters_
        score = found.clustering.silhouette_scores_.get(tau)
        sizes = found.counts.sum(axis=1)
        return [
            ("wpsi", "WPSI", f"{wpsi:.3g}", f"shift: {band(wpsi)}"),
            ("cluster", "clusters", f"{tau:,}", "chosen" if self.settings.tau_clusters else "by silhouette"),
            ("silhouette", "silhouette", "-" if score is None else f"{score:.2f}", "of these clusters"),
            ("client", "clients", f"{len(sizes):,}", f"{sizes.min():,} to {sizes.max():,} samples"),
            ("skew", "classes", f"{len(found.class_names):,}", f"in {found.counts.sum():,} samples"),
        ]

    @property
    def question(self) -> str:
        return skew_question(self.diagnosis)

    @cached_property
    def answer(self) -> tuple[str, str]:
        """How skewed the federation is, and whether its clients form clusters."""
        return skew_answer(self.diagnosis)

    @cached_property
    def advice(self) -> Advice:
        return advise(self.diagnosis.counts)

    @property
    def notes(self) -> list[str]:
        """What was guessed when a table was read, and cautions about the clusters."""
        return [*self.clients.notes, *self.diagnosis.cautions()[1:]]  # the first is part of the answer

    def charts(self, theme: Theme) -> dict[str, Chart]:
        """All charts of the federation, by name."""
        found = self.diagnosis
        names, classes, counts = found.client_names, found.class_names, found.counts
        clusters, sizes = found.clustering.labels_, counts.sum(axis=1)
        points, kept = two_dimensions(found)
        scores = dict(self.silhouettes) | found.clustering.silhouette_scores_
        curve = Silhouettes(scores, found.clustering.n_clusters_)
        return {
            "partition": charts.label_heat_map(counts, names, classes, clusters, theme),
            "measures": charts.skew_measures(found.measures, theme),
            "sizes": charts.client_sizes(sizes, names, theme, what="samples"),
            "psi": charts.psi_terms(found.terms, counts, names, classes, theme),
            "silhouette": charts.silhouette({found.clustering.features: curve}, theme),
            "map": charts.clients_in_two_dimensions(points, names, clusters, sizes, theme, kept=kept),
            "mix": charts.label_mix(counts, clusters, classes, theme),
        }

    def label_counts_csv(self) -> str:
        """Label counts as CSV, one row per client, as ``clustpsi diagnose`` reads them."""
        found = self.diagnosis
        table = pd.DataFrame(found.counts, columns=list(found.class_names))
        table.insert(0, "client", list(found.client_names), allow_duplicates=True)
        return _csv(table)

    def clusters_csv(self) -> str:
        """Clusters as CSV, one row per client: samples, PSI, cluster, and the classes that drive its PSI."""
        return _csv(self.diagnosis.clients())


def _csv(table: pd.DataFrame) -> str:
    text = StringIO()
    table.to_csv(text, index=False, lineterminator="\n")
    return text.getvalue()


class Views:
    """Computes what the page shows; what a control does not change is not computed again."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self._clients = lru_cache(KEPT)(library.clients)
        self._diagnosis = lru_cache(KEPT)(self._diagnose)

    def view(self, settings: Settings) -> View:
        settings = settings.plain(*TRAINING)
        best = self._diagnosis(settings.plain("tau_clusters"))
        shown = best if settings.tau_clusters is None else self._diagnosis(settings)
        clients = self._clients(settings.plain(*CLUSTERING))
        return View(settings, clients, shown, best.clustering.silhouette_scores_)

    def _diagnose(self, settings: Settings) -> Diagnosis:
        clients = self._clients(settings.plain(*CLUSTERING))
        return diagnose(
            clients.counts,
            clients.names,
            clients.classes,
            preset=settings.preset,
            **settings.clustering,
            n_clusters="auto" if settings.tau_clusters is None else settings.tau_clusters,
            random_state=settings.seed,
        )
