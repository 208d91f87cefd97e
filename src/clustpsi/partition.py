"""Who holds which rows: ways to spread labelled data over clients, and to set aside each client's test rows.

Every partitioner gives one array of row numbers a client. The paper's are Dirichlet and Similarity.
"""

import itertools
import logging
import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clustpsi.errors import ClustPSIError, InfeasiblePartition

Rows = NDArray[np.int64]

#: Names on the command line.
PARTITIONERS = ("dirichlet", "similarity", "iid", "natural")

#: A Dirichlet pass costs about as much as shuffling all rows once: so many rows take about a minute. The paper's seeds
#: need up to 3.4e9 (CIFAR-10's official training part, 100 clients, alpha 0.05).
MAX_SHUFFLED_ROWS = 4_000_000_000

_log = logging.getLogger(__name__)


def dirichlet(
    labels: ArrayLike,
    num_clients: int,
    alpha: float,
    seed: int,
    *,
    min_samples: int = 10,
    max_passes: int = 100_000,
) -> list[Rows]:
    """Spread every class over the clients in proportions drawn from a symmetric Dirichlet distribution.

    Index for index what FedArtML 0.1.33 gives "without class completion" for the same seed. Class by class, clients
    that already hold their fair share N/K get nothing more; whole passes over the classes are repeated, with fresh
    draws, until every client has `min_samples` (FedArtML: 10, and no end to the passes).

    Parameters
    ----------
    labels
        Class of every row, integers from 0.
    num_clients
        At least 2, at most one a row.
    alpha
        Concentration, above 0: the smaller, the fewer classes a client has.
    seed
        0 to 2**31 - 1. Seeds that differ by a multiple of 100 share some of their draws, as in FedArtML.
    min_samples
        Fewest samples of a client.
    max_passes
        Give up after so many passes, or earlier once they have shuffled `MAX_SHUFFLED_ROWS` rows in all.

    Raises
    ------
    InfeasiblePartition
        When no pass gave every client enough samples.

    Examples
    --------
    >>> clients = dirichlet(np.repeat([0, 1], 500), num_clients=4, alpha=0.5, seed=42)
    >>> [len(rows) for rows in clients]
    [275, 181, 122, 422]
    """
    classes = _check(labels, num_clients, seed)
    if not (math.isfinite(alpha) and alpha > 0):
        raise ClustPSIError(f"alpha must be a finite number above 0, not {alpha}")
    if min_samples < 1 or max_passes < 1:
        raise ClustPSIError(f"min_samples and max_passes must be at least 1, not {min_samples} and {max_passes}")
    class_sizes = np.bincount(classes)
    rows = len(classes)
    settings = f"{rows} samples of {len(class_sizes)} classes over {num_clients} clients"
    if num_clients * min_samples > rows:
        raise InfeasiblePartition(
            f"{settings} cannot give every client {min_samples} samples: take at most {rows // min_samples} clients"
        )

    passes = max(1, min(max_passes, MAX_SHUFFLED_ROWS // rows))
    smallest = 0
    for first_seed, shares in itertools.islice(_dirichlet_passes(class_sizes, num_clients, alpha, seed), passes):
        smallest = max(smallest, int(shares.sum(axis=0).min()))
        if smallest >= min_samples:
            return _deal(classes, shares, first_seed, seed)
    raise InfeasiblePartition(
        f"no Dirichlet partition of {settings} with alpha={alpha:g} and seed {seed} gave every client "
        f"{min_samples} samples in {passes} passes (the smallest client never had more than {smallest}): "
        "raise alpha or take fewer clients"
    )


def _dirichlet_passes(class_sizes: Rows, num_clients: int, alpha: float, seed: int) -> Iterator[tuple[int, Rows]]:
    """Passes without end: the seed each starts from and the samples of every class for every client (C x K)."""
    random = np.random.RandomState(0)
    concentration = np.full(num_clients, alpha)
    fair_share = class_sizes.sum() / num_clients
    # FedArtML draws the proportions after shuffling the class. Only the random numbers which that takes matter here, so
    # one number stands in for all rows of a class: the same draws without the memory traffic.
    stand_ins = [np.lib.stride_tricks.as_strided(np.zeros(1, dtype=np.int64), (size,), (0,)) for size in class_sizes]
    for first_seed in itertools.count(seed, 100 * len(class_sizes)):
        shares = np.zeros((len(class_sizes), num_clients), dtype=np.int64)
        held = np.zeros(num_clients, dtype=np.int64)
        for label, stand_in in enumerate(stand_ins):
            random.seed(first_seed + 100 * label)
            random.shuffle(stand_in)
            proportions = random.dirichlet(concentration) * (held < fair_share)
            total = proportions.sum()
            if not total > 0:  # tiny alpha: all clients with room drew 0, or all clients did (NaN); the pass has failed
                shares[:] = 0
                break
            ends = (np.cumsum(proportions / total) * len(stand_in)).astype(np.int64)
            ends[-1] = len(stand_in)
            shares[label] = ends
            shares[label, 1:] -= ends[:-1]
            held += shares[label]
        yield first_seed, shares


def _deal(classes: Rows, shares: Rows, first_seed: int, seed: int) -> list[Rows]:
    """The rows behind the shares of a pass: deal out every shuffled class, then shuffle every client."""
    random = np.random.RandomState(0)
    hands: list[list[Rows]] = [[] for _ in range(shares.shape[1])]
    for label, of_class in enumerate(_rows_by_label(classes, len(shares))):
        random.seed(first_seed + 100 * label)
        random.shuffle(of_class)
        for hand, dealt in zip(hands, np.split(of_class, np.cumsum(shares[label])[:-1]), strict=True):
            hand.append(dealt)
    clients = [np.concatenate(hand) for hand in hands]
    for client, rows in enumerate(clients):
        random.seed(seed + 100 * client)
        random.shuffle(rows)
    return clients


def similarity(labels: ArrayLike, num_clients: int, s: float, seed: int) -> list[Rows]:
    """Give every client the same number of rows, a fraction `s` of them drawn at random and the rest sorted by label.

    With s = 0 clients have one class, or two at a class border; with s = 1 they are IID. What is left after dealing
    equal numbers, fewer than 2 K rows, belongs to no client.

    >>> labels = np.repeat([0, 1], 50)
    >>> [np.bincount(labels[rows], minlength=2).tolist() for rows in similarity(labels, num_clients=4, s=0.0, seed=42)]
    [[25, 0], [25, 0], [0, 25], [0, 25]]
    """
    classes = _check(labels, num_clients, seed)
    if not 0 <= s <= 1:
        raise ClustPSIError(f"the similarity S must be from 0 (sorted by label) to 1 (IID), not {s}")
    shuffled = np.random.default_rng(seed).permutation(len(classes))
    mixed, rest = np.split(shuffled, [round(s * len(classes))])
    by_label = rest[_stable_argsort(classes[rest])]
    from_mixed, from_sorted = len(mixed) // num_clients, len(rest) // num_clients
    if from_mixed + from_sorted == 0:
        raise InfeasiblePartition(
            f"{len(classes)} samples are too few for {num_clients} clients with S={s:g}: take fewer clients"
        )
    _log.info("similarity: %d rows left over", len(classes) - num_clients * (from_mixed + from_sorted))
    return [
        np.concatenate(
            [mixed[i * from_mixed : (i + 1) * from_mixed], by_label[i * from_sorted : (i + 1) * from_sorted]]
        )
        for i in range(num_clients)
    ]


def iid(labels: ArrayLike, num_clients: int, seed: int) -> list[Rows]:
    """Deal the rows out at random; sizes differ by one at most.

    >>> [len(rows) for rows in iid(np.zeros(10, dtype=int), num_clients=3, seed=42)]
    [4, 3, 3]
    """
    classes = _check(labels, num_clients, seed)
    return np.array_split(np.random.default_rng(seed).permutation(len(classes)), num_clients)


def natural(client_ids: ArrayLike) -> tuple[list[Rows], tuple[str, ...]]:
    """Group the rows by the client they come from; gives rows and names of the clients, in the order of the names.

    >>> natural(["rome", "oslo", "rome"])
    ([array([1]), array([0, 2])], ('oslo', 'rome'))
    """
    ids = np.asarray(client_ids)
    if ids.ndim != 1 or ids.size == 0:
        raise ClustPSIError(f"client ids must be a non-empty list with one id a row, but their shape is {ids.shape}")
    names, client = np.unique(ids, return_inverse=True)
    return _rows_by_label(client, len(names)), tuple(map(str, names))


def client_80_20(clients: Sequence[Rows], seed: int) -> tuple[list[Rows], list[Rows]]:
    """Set a random fifth (rounded up) of every client's rows aside for testing; gives (train, test).

    >>> train, test = client_80_20([np.arange(10), np.arange(10, 16)], seed=42)
    >>> [len(rows) for rows in train], [len(rows) for rows in test]
    ([8, 4], [2, 2])
    """
    random = _split_stream(seed)
    train, test = [], []
    for rows in clients:
        if len(rows) < 2:
            raise ClustPSIError("a client needs at least 2 samples, one to train and one to test on")
        shuffled = random.permutation(rows)
        held_out = -(-len(rows) // 5)
        train.append(shuffled[held_out:])
        test.append(shuffled[:held_out])
    return train, test


def official_matched(clients: Sequence[Rows], labels: ArrayLike, test_rows: Rows, seed: int) -> list[Rows]:
    """Deal the official test rows out so that every client's test labels follow its training labels.

    Each class goes to the clients in proportion to their training rows of that class, by largest remainders (ties at
    random), so every test row is used exactly once. A class that nobody trains on goes by the clients' sizes.

    >>> labels = np.array([0, 0, 1, 1, 0, 1, 0, 1])
    >>> clients = [np.array([0, 1]), np.array([2, 3])]
    >>> [sorted(rows.tolist()) for rows in official_matched(clients, labels, np.arange(4, 8), seed=42)]
    [[4, 6], [5, 7]]
    """
    classes = np.asarray(labels)
    random = _split_stream(seed)
    num_classes = int(classes.max()) + 1
    counts = label_counts(clients, classes, num_classes)
    hands: list[list[Rows]] = [[] for _ in clients]
    for label, of_class in enumerate(_rows_by_label(classes[test_rows], num_classes)):
        weights = counts[:, label] if counts[:, label].any() else counts.sum(axis=1)
        shares, remainders = np.divmod(len(of_class) * weights, weights.sum())
        left = len(of_class) - shares.sum()
        shares[np.lexsort((random.random(len(clients)), -remainders))[:left]] += 1
        dealt = np.split(random.permutation(test_rows[of_class]), np.cumsum(shares)[:-1])
        for hand, rows in zip(hands, dealt, strict=True):
            hand.append(rows)
    return [np.concatenate(hand) for hand in hands]


def label_counts(clients: Sequence[Rows], labels: NDArray[np.integer], num_classes: int) -> Rows:
    """How many rows of each class every client has (clients x classes)."""
    owner = np.repeat(np.arange(len(clients)), [len(rows) for rows in clients])
    cells = owner * num_classes + labels[np.concatenate(clients)]
    return np.bincount(cells, minlength=len(clients) * num_classes).reshape(len(clients), num_classes)


def _split_stream(seed: int) -> np.random.Generator:
    """Random numbers of the train/test split, independent of those of the partition with the same seed."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))


def _check(labels: ArrayLike, num_clients: int, seed: int) -> Rows:
    classes = np.asarray(labels)
    if classes.ndim != 1 or classes.size == 0:
        raise ClustPSIError(f"labels must be a non-empty list with one class a row, but their shape is {classes.shape}")
    if not np.issubdtype(classes.dtype, np.integer) or classes.min() < 0:
        raise ClustPSIError("labels must be integers from 0 to the number of classes less one")
    if not 2 <= num_clients <= len(classes):
        raise ClustPSIError(f"the number of clients must be from 2 to the {len(classes)} samples, not {num_clients}")
    if not 0 <= seed < 2**31:
        raise ClustPSIError(f"the seed must be from 0 to 2**31 - 1, not {seed}")
    return classes.astype(np.int64)


def _rows_by_label(classes: Rows, num_classes: int) -> list[Rows]:
    """Row numbers of every class, ascending."""
    return np.split(_stable_argsort(classes), np.cumsum(np.bincount(classes, minlength=num_classes))[:-1])


def _stable_argsort(classes: Rows) -> Rows:
    # NumPy sorts 16-bit integers stably in linear time, wider ones several times slower.
    narrow = classes.astype(np.uint16) if classes.size and classes.max() < 2**16 else classes
    return np.argsort(narrow, kind="stable")
