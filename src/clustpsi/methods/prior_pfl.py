"""prior_pfl: one model, trained and used with each client's own label prior.

This project's own method.  Under label skew clients agree in what a class looks like, P(x | y), and differ only in how
often they see it, P_k(y); so the best classifier of a client is the shared one, weighted with its own prior, and the
label counts that Clust-PSI-PFL collects are that prior.  It combines known ideas:

- a softmax shifted by the log prior, so that the model itself need not learn it: A. K. Menon et al., Long-tail learning
  via logit adjustment, ICLR 2021; J. Ren et al., Balanced meta-softmax, NeurIPS 2020;
- the same per client, with absent classes held back: J. Zhang et al., FedLC, ICML 2022; X.-C. Li and D.-C. Zhan, FedRS,
  KDD 2021;
- another prior at inference: M. Saerens, P. Latinne and C. Decaestecker, Adjusting the outputs of a classifier to new a
  priori probabilities, Neural Computation 14(1), 2002.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from clustpsi.methods.base import Setting, State, option
from clustpsi.methods.fedavg import SingleModel
from clustpsi.orders import Deployment, Model, Train, Work


@dataclass(frozen=True)
class PriorPFL(SingleModel):
    name: ClassVar[str] = "prior_pfl"
    title: ClassVar[str] = "prior-PFL"
    family: ClassVar[str] = "label prior"
    idea: ClassVar[str] = "one model, trained and used with each client's own label prior added to its logits"
    paper: ClassVar[str] = "this project"

    prior_strength: float = option(
        0.5, "a, how many samples of the federation's label mix are added to a client's own in use", least=0
    )

    def prepare(self, setting: Setting, model: Model) -> Work[State]:
        state = yield from super().prepare(setting, model)
        counts = yield from self.label_counts(setting)
        return replace(state, memory={**state.memory, "counts": counts})

    def select(self, setting: Setting, state: State, rng: np.random.Generator) -> Work[NDArray[np.int64]]:
        """FedAvg's choice without clients of a single class, who cannot teach to tell classes apart."""
        chosen = yield from super().select(setting, state, rng)
        return chosen[impurity(self._counts_of(setting, state, chosen)) > 0]

    def local(self, setting: Setting, state: State, chosen: NDArray[np.int64]) -> Train:
        counts = self._counts_of(setting, state, chosen)
        return replace(
            super().local(setting, state, chosen),
            weights=counts.sum(axis=1) * impurity(counts),
            log_prior=log_shares(counts),
        )

    def deploy(self, setting: Setting, state: State) -> Deployment:
        counts = state.memory["counts"]
        mix = counts.sum(axis=0) / counts.sum()
        return replace(super().deploy(setting, state), log_prior=log_shares(counts + self.prior_strength * mix))

    @staticmethod
    def _counts_of(setting: Setting, state: State, chosen: NDArray[np.int64]) -> NDArray[np.int64]:
        counts: NDArray[np.int64] = state.memory["counts"][np.searchsorted(setting.clients, chosen)]
        return counts


def log_shares(counts: NDArray[np.float64] | NDArray[np.int64]) -> NDArray[np.float64]:
    """log p_kc; minus infinity takes an absent class out of the softmax."""
    with np.errstate(divide="ignore"):
        log: NDArray[np.float64] = np.log(counts / counts.sum(axis=1, keepdims=True))
    return log


def impurity(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Gini impurity 1 - sum_c p_kc^2: how much a client can tell about the difference of classes.

    >>> impurity(np.array([[4, 0], [2, 2]]))
    array([0. , 0.5])
    """
    share = counts / counts.sum(axis=1, keepdims=True)
    gini: NDArray[np.float64] = 1 - (share**2).sum(axis=1)
    return gini
