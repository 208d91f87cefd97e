"""The prior that clients have in common, against the likelihood that it maximizes and against mixes that were drawn."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import gammaln

from clustpsi.methods.label_prior import LARGEST_SUM, LEAST_SUM, fit_dirichlet


def log_likelihood(alpha: np.ndarray, counts: np.ndarray) -> float:
    """Of Dirichlet-multinomial counts, up to a constant."""
    total = gammaln(alpha.sum()) - gammaln(counts.sum(axis=1) + alpha.sum())
    return float((total + (gammaln(counts + alpha) - gammaln(alpha)).sum(axis=1)).sum())


@pytest.mark.parametrize(("alpha", "clients"), [((0.3, 0.5, 0.1), 60), ((2.0, 7.0), 200), ((20.0, 10.0, 5.0), 400)])
def test_the_prior_in_common_makes_the_counts_most_likely(alpha: tuple[float, ...], clients: int) -> None:
    rng = np.random.default_rng(0)
    counts = np.array([rng.multinomial(rng.integers(20, 90), rng.dirichlet(alpha)) for _ in range(clients)])
    found = fit_dirichlet(counts)
    best = minimize(lambda log: -log_likelihood(np.exp(log), counts), np.log(found), method="Nelder-Mead")
    assert log_likelihood(found, counts) >= -best.fun - 1e-3
    np.testing.assert_allclose(found, alpha, rtol=0.5)


def test_the_prior_in_common_has_bounds_where_likelihood_has_none() -> None:
    pure = fit_dirichlet(np.array([[10, 0], [0, 10], [10, 0]]))
    assert LEAST_SUM <= pure.sum() < 0.1
    equal = fit_dirichlet(np.array([[50, 50]] * 20))
    assert 100 < equal.sum() <= LARGEST_SUM
    np.testing.assert_allclose(equal[0], equal[1])
    alone = fit_dirichlet(np.array([[4, 0, 0], [9, 0, 0]]))
    assert alone[0] > 0 and alone[1:].tolist() == [0, 0]


def test_the_order_of_clients_and_classes_does_not_matter() -> None:
    counts = np.random.default_rng(2).multinomial(30, [0.5, 0.3, 0.2], 40)
    np.testing.assert_allclose(fit_dirichlet(counts[::-1, ::-1])[::-1], fit_dirichlet(counts))
