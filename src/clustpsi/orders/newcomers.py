"""Newcomers, clients that did not take part in training: their label counts alone decide which model they use."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustpsi.orders.models import Deployment, Model
from clustpsi.psi_space import PSICentres, nearest

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Newcomers:
    """How newcomers get a model: plain data, so that it can be saved and used anywhere.

    A client whose counts are not known is treated as if it had the federation's label mix.

    Attributes
    ----------
    models
        The models that newcomers may use.  If there are several, ``centres`` or ``mixes`` decide which.
    federation
        (C,), the federation's label counts.
    centres
        Centres of the models' clusters: a client uses the model of the nearest cluster.
    mixes
        (len(models), C), label counts of the clients that use each model: a newcomer uses the model whose label shares
        are nearest to its own by Hellinger distance.
    prior_counts
        (len(models), C), for models that are used with a label prior, which is the log of the client's label shares:
        what is added to the client's counts before shares are computed.
    shifts, scales
        (len(models), C) and (len(models),), for models that are read otherwise than they were trained: what is added
        to the label prior, and the factor of the logits.
    """

    models: tuple[Model, ...]
    federation: NDArray[np.int64]
    centres: PSICentres | None = None
    mixes: NDArray[np.int64] | None = None
    prior_counts: Floats | None = None
    shifts: Floats | None = None
    scales: Floats | None = None

    @property
    def uses_counts(self) -> bool:
        """Whether a client's label counts make a difference."""
        return len(self.models) > 1 or self.prior_counts is not None

    def place(self, counts: NDArray[np.int64]) -> Deployment:
        """What each of these clients uses, given their label counts (clients x classes; zeros: not known)."""
        counts = np.where(counts.any(axis=1, keepdims=True), counts, self.federation)
        of_client = self._choose(counts)
        log_prior = None if self.prior_counts is None else log_shares(counts + self.prior_counts[of_client])
        if log_prior is not None and self.shifts is not None:
            log_prior += self.shifts[of_client]
        return Deployment(self.models, of_client, log_prior, None if self.scales is None else self.scales[of_client])

    def _choose(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        if len(self.models) == 1:
            return np.zeros(len(counts), np.int64)
        if self.centres is not None:
            return self.centres.nearest(counts).astype(np.int64)
        assert self.mixes is not None
        known = np.flatnonzero(self.mixes.any(axis=1))
        chosen: NDArray[np.int64] = known[nearest(_roots(counts), _roots(self.mixes[known]))]
        return chosen


def near_users(deployment: Deployment, counts: NDArray[np.int64]) -> Newcomers:
    """A newcomer uses the model of the clients whose label mix is nearest to its own.

    Parameters
    ----------
    deployment
        What the clients that trained use.
    counts
        Their label counts.
    """
    mixes = np.zeros((len(deployment.models), counts.shape[1]), np.int64)
    np.add.at(mixes, deployment.of_client, counts)
    return Newcomers(deployment.models, counts.sum(axis=0), mixes=mixes if len(mixes) > 1 else None)


def in_clusters(parts: Sequence[Newcomers], centres: PSICentres) -> Newcomers:
    """A newcomer joins the cluster with the nearest centre; ``parts`` has one entry per cluster."""
    classes = len(parts[0].federation)
    return Newcomers(
        tuple(part.models[0] for part in parts),
        np.sum([part.federation for part in parts], axis=0),
        centres=centres,
        prior_counts=_stacked([part.prior_counts for part in parts], np.zeros((1, classes))),
        shifts=_stacked([part.shifts for part in parts], np.zeros((1, classes))),
        scales=_stacked([part.scales for part in parts], np.ones(1)),
    )


def log_shares(counts: Floats | NDArray[np.int64]) -> Floats:
    """log p_kc; minus infinity removes an absent class from the softmax.

    >>> log_shares(np.array([[1, 3]])).round(3)
    array([[-1.386, -0.288]])
    """
    with np.errstate(divide="ignore"):
        log: Floats = np.log(counts / counts.sum(axis=1, keepdims=True))
    return log


def _stacked(parts: Sequence[Floats | None], missing: Floats) -> Floats | None:
    """The values of all parts as one array, with ``missing`` for a part without any; None if no part has any."""
    if all(part is None for part in parts):
        return None
    return np.concatenate([missing if part is None else part for part in parts])


def _roots(counts: NDArray[np.int64]) -> Floats:
    """Square roots of label shares: their Euclidean distance is the Hellinger distance up to a constant factor."""
    roots: Floats = np.sqrt(counts / counts.sum(axis=1, keepdims=True))
    return roots
