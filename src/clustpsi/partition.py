"""Partitions: ways to spread labelled data over clients, and to set aside each client's test rows.

Every partitioner returns the row numbers of each client. The paper uses Dirichlet and Similarity.
"""

import logging
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import SupportsIndex, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clustpsi.errors import ClustPSIError, ClustPSIWarning, InfeasiblePartition, unknown_name

Rows = NDArray[np.int64]
Sizes = tuple[int, ...]  # rows of each class

#: Names on the command line.
PARTITIONERS = ("dirichlet", "similarity", "iid", "natural")

#: A Dirichlet pass shuffles all rows once. Shuffling this many rows in all takes about 12 seconds. The paper's seeds
#: need up to 3.4e9 (CIFAR-10's official training part, 100 clients, alpha 0.05).
MAX_SHUFFLED_ROWS = 4_000_000_000
MAX_PASSES = 100_000

#: The default partition: strongly skewed, over a few clients.
DEFAULT_LEVELS = {"dirichlet": 0.1, "similarity": 0.03}
DEFAULT_CLIENTS = 20

#: Where the defaults do not work, others are tried in this order: these alphas, then fewer clients, then more alphas.
SKEWED_ALPHAS = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
MILD_ALPHAS = (2.0, 5.0, 10.0, 50.0)
FEWER_CLIENTS = (20, 15, 10, 8, 6, 5, 4, 3, 2)

#: Fewest samples per client: FedArtML's minimum for Dirichlet partitions, and one sample each to train and test.
MIN_DIRICHLET_SAMPLES = 10
MIN_SAMPLES = 2

#: Settings count as workable if a good pass comes soon: within 100 to 1,000 passes that shuffle this many rows in all.
QUICK_ROWS = 20_000_000
FEWEST_QUICK_PASSES, MOST_QUICK_PASSES = 100, 1_000

#: NumPy makes the first Dirichlet passes; compiled loops, which take a moment to load, make the others.
FIRST_PASSES = 8

_log = logging.getLogger(__name__)


class RowLists(Sequence[Rows]):
    """Row numbers of every client, all in one array: a million clients are not a million arrays.

    Attributes
    ----------
    rows
        The clients' rows, one client after the other.
    sizes
        How many each client has.

    >>> lists = RowLists.of([np.array([4, 2]), np.array([7])])
    >>> lists.rows.tolist(), lists.sizes.tolist(), lists[1].tolist(), len(lists)
    ([4, 2, 7], [2, 1], [7], 2)
    """

    def __init__(self, rows: Rows, sizes: Rows) -> None:
        self.rows, self.sizes = rows, sizes
        self._ends = np.cumsum(sizes)

    @classmethod
    def of(cls, lists: Sequence[Rows]) -> "RowLists":
        """The same from an array for each client."""
        if isinstance(lists, RowLists):
            return lists
        sizes = np.fromiter(map(len, lists), np.int64, len(lists))
        return cls(np.concatenate(lists) if len(lists) else np.empty(0, np.int64), sizes)

    def __len__(self) -> int:
        return len(self.sizes)

    def __iter__(self) -> Iterator[Rows]:
        begin = 0
        for end in self._ends.tolist():
            yield self.rows[begin:end]
            begin = end

    @overload
    def __getitem__(self, client: SupportsIndex) -> Rows: ...

    @overload
    def __getitem__(self, client: slice) -> Sequence[Rows]: ...

    def __getitem__(self, client: SupportsIndex | slice) -> Rows | Sequence[Rows]:
        if isinstance(client, slice):
            return [self[each] for each in range(len(self))[client]]
        end = self._ends[client]
        return self.rows[end - self.sizes[client] : end]

    @property
    def owners(self) -> Rows:
        """The client of every row."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def chosen(self, clients: Rows) -> "RowLists":
        """The lists of some clients, in the order in which they are named."""
        sizes = self.sizes[clients]
        begins = self._ends[clients] - sizes
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return RowLists(self.rows[np.repeat(begins, sizes) + within], sizes)


def dirichlet(
    labels: ArrayLike,
    num_clients: int,
    alpha: float,
    seed: int,
    *,
    min_samples: int = MIN_DIRICHLET_SAMPLES,
    max_passes: int = MAX_PASSES,
) -> RowLists:
    """Spread every class over the clients in proportions drawn from a symmetric Dirichlet distribution.

    The result equals that of FedArtML 0.1.33 "without class completion" for the same seed, index for index. Classes are
    dealt out one by one, and clients that already hold their fair share N/K get nothing more. Passes over all classes
    are repeated with new draws until every client has `min_samples` (FedArtML: 10, with no limit on passes).

    Parameters
    ----------
    labels
        Class of every row, integers from 0.
    num_clients
        At least 2, and at most the number of rows.
    alpha
        Concentration, above 0: the smaller, the fewer classes a client has.
    seed
        0 to 2**31 - 1. Seeds that differ by a multiple of 100 share some of their draws, as in FedArtML.
    min_samples
        Fewest samples per client.
    max_passes
        Give up after this many passes, or earlier once they have shuffled `MAX_SHUFFLED_ROWS` rows in all.

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
    _check_alpha(alpha)
    if min_samples < 1 or max_passes < 1:
        raise ClustPSIError(f"min_samples and max_passes must be at least 1, not {min_samples} and {max_passes}")
    sizes = tuple(np.bincount(classes).tolist())
    good = _require(sizes, num_clients, alpha, seed, [seed], min_samples, max_passes)
    return _deal(classes, _dirichlet_pass(sizes, num_clients, alpha, seed, good), _first_seed(sizes, seed, good), seed)


def _require(
    class_sizes: Sizes,
    num_clients: int,
    alpha: float,
    seed: int,
    seeds: Sequence[int],
    min_samples: int = MIN_DIRICHLET_SAMPLES,
    max_passes: int = MAX_PASSES,
) -> int:
    """The first pass that gives every client enough samples; else an error names settings that work for all seeds."""
    rows = sum(class_sizes)
    settings = f"{rows} samples of {len(class_sizes)} classes over {num_clients} clients"
    if num_clients * min_samples > rows:
        problem = f"{settings} cannot give every client {min_samples} samples"
    else:
        passes = max(1, min(max_passes, MAX_SHUFFLED_ROWS // rows))
        good, smallest = _good_pass(class_sizes, num_clients, alpha, seed, min_samples, passes)
        if good is not None:
            return good
        problem = (
            f"no Dirichlet partition of {settings} with alpha={alpha:g} and seed {seed} gave every client "
            f"{min_samples} samples in {passes} passes (the smallest client never had more than {smallest})"
        )
    raise InfeasiblePartition(f"{problem}: {_what_works(class_sizes, num_clients, alpha, seeds, min_samples)}")


@lru_cache(maxsize=256)
def _good_pass(
    class_sizes: Sizes, num_clients: int, alpha: float, seed: int, min_samples: int, passes: int
) -> tuple[int | None, int]:
    """The first pass that gives every client enough samples, and the largest size that the smallest client ever had."""
    passes = min(passes, (2**32 - seed) // (100 * len(class_sizes)))  # NumPy has no seeds beyond
    most = 0
    for number in range(min(passes, FIRST_PASSES)):
        shares = _dirichlet_pass(class_sizes, num_clients, alpha, seed, number)
        most = max(most, int(shares.sum(axis=0).min()))
        if most >= min_samples:
            return number, most
    begin = FIRST_PASSES
    while begin < passes:
        from clustpsi.dirichlet_loops import first_good_pass  # here, because Numba takes its time to load

        found, smallest = first_good_pass(np.array(class_sizes), num_clients, alpha, seed, begin, passes, min_samples)
        if found < 0:
            return None, max(most, smallest)
        # NumPy has the last word: its logarithm may differ from the compiled one in the last bit.
        shares = _dirichlet_pass(class_sizes, num_clients, alpha, seed, found)
        if shares.sum(axis=0).min() >= min_samples:
            return found, smallest
        begin = found + 1
    return None, most


def _dirichlet_pass(class_sizes: Sizes, num_clients: int, alpha: float, seed: int, number: int) -> Rows:
    """Samples of every class for every client (C x K) in one pass.

    :mod:`clustpsi.dirichlet_loops` has a compiled version.
    """
    random = np.random.RandomState(0)
    concentration = np.full(num_clients, alpha)
    fair_share = sum(class_sizes) / num_clients
    first_seed = _first_seed(class_sizes, seed, number)
    shares = np.zeros((len(class_sizes), num_clients), dtype=np.int64)
    held = np.zeros(num_clients, dtype=np.int64)
    for label, size in enumerate(class_sizes):
        random.seed(first_seed + 100 * label)
        # FedArtML draws the proportions after shuffling the class. Only the random numbers which that takes matter
        # here, so one number stands in for all rows of a class: the same draws without the memory traffic.
        random.shuffle(np.lib.stride_tricks.as_strided(np.zeros(1, dtype=np.int64), (size,), (0,)))
        proportions = random.dirichlet(concentration) * (held < fair_share)
        total = proportions.sum()
        if not total > 0:  # tiny alpha: all clients with room drew 0, or all clients did (NaN); the pass has failed
            shares[:] = 0
            break
        ends = (np.cumsum(proportions / total) * size).astype(np.int64)
        ends[-1] = size
        shares[label] = ends
        shares[label, 1:] -= ends[:-1]
        held += shares[label]
    return shares


def _first_seed(class_sizes: Sizes, seed: int, number: int) -> int:
    """The seed of a pass's first class; those of the others follow in steps of 100."""
    return seed + 100 * len(class_sizes) * number


def _deal(classes: Rows, shares: Rows, first_seed: int, seed: int) -> RowLists:
    """Turn the shares of a pass into rows: deal out every shuffled class, then shuffle every client's rows."""
    random = np.random.RandomState(0)
    by_label = _rows_by_label(classes, len(shares))
    for label, of_class in enumerate(by_label):
        random.seed(first_seed + 100 * label)
        random.shuffle(of_class)
    clients = _hand_out(by_label, shares)
    for client, rows in enumerate(clients):
        random.seed(seed + 100 * client)
        random.shuffle(rows)
    return clients


def _hand_out(by_label: Sequence[Rows], shares: Rows) -> RowLists:
    """Give every client its share (C x K) of the rows of each class, class by class."""
    owners = np.concatenate([np.repeat(np.arange(shares.shape[1]), of_class) for of_class in shares])
    return RowLists(np.concatenate(by_label)[_stable_argsort(owners)], shares.sum(axis=0))


def similarity(labels: ArrayLike, num_clients: int, s: float, seed: int) -> RowLists:
    """Give every client the same number of rows, a fraction `s` of them drawn at random and the rest sorted by label.

    With s = 0 clients have one class, or two at a class border; with s = 1 they are IID. The fewer than 2 K rows that
    remain after dealing out equal numbers belong to no client.

    >>> labels = np.repeat([0, 1], 50)
    >>> [np.bincount(labels[rows], minlength=2).tolist() for rows in similarity(labels, num_clients=4, s=0.0, seed=42)]
    [[25, 0], [25, 0], [0, 25], [0, 25]]
    """
    classes = _check(labels, num_clients, seed)
    _check_similarity(s)
    shuffled = np.random.default_rng(seed).permutation(len(classes))
    mixed, rest = np.split(shuffled, [round(s * len(classes))])
    by_label = rest[_stable_argsort(classes[rest])]
    from_mixed, from_sorted = len(mixed) // num_clients, len(rest) // num_clients
    if from_mixed + from_sorted == 0:
        raise InfeasiblePartition(
            f"{len(classes)} samples are too few for {num_clients} clients with S={s:g}: take fewer clients"
        )
    _log.info("similarity: %d rows left over", len(classes) - num_clients * (from_mixed + from_sorted))
    parts = [
        source[: num_clients * each].reshape(num_clients, each)
        for source, each in ((mixed, from_mixed), (by_label, from_sorted))
    ]
    return RowLists(np.concatenate(parts, axis=1).ravel(), np.full(num_clients, from_mixed + from_sorted))


def iid(labels: ArrayLike, num_clients: int, seed: int) -> RowLists:
    """Deal the rows out at random; sizes differ by at most one.

    >>> [len(rows) for rows in iid(np.zeros(10, dtype=int), num_clients=3, seed=42)]
    [4, 3, 3]
    """
    classes = _check(labels, num_clients, seed)
    fewest, more = divmod(len(classes), num_clients)
    sizes = fewest + (np.arange(num_clients) < more)
    return RowLists(np.random.default_rng(seed).permutation(len(classes)), sizes)


def natural(client_ids: ArrayLike) -> tuple[RowLists, tuple[str, ...]]:
    """Group the rows by the client they come from; gives rows and names of the clients, in the order of the names.

    >>> clients, names = natural(["rome", "oslo", "rome"])
    >>> [rows.tolist() for rows in clients], names
    ([[1], [0, 2]], ('oslo', 'rome'))
    """
    ids = np.asarray(client_ids)
    if ids.ndim != 1 or ids.size == 0:
        raise ClustPSIError(f"client ids must be a non-empty list with one id per row, but their shape is {ids.shape}")
    names, client = np.unique(ids, return_inverse=True)
    return RowLists(_stable_argsort(client), np.bincount(client)), tuple(map(str, names))


def client_80_20(clients: Sequence[Rows], seed: int) -> tuple[RowLists, RowLists]:
    """Set a random fifth (rounded up) of every client's rows aside for testing; gives (train, test).

    >>> train, test = client_80_20([np.arange(10), np.arange(10, 16)], seed=42)
    >>> [len(rows) for rows in train], [len(rows) for rows in test]
    ([8, 4], [2, 2])
    """
    random = _split_stream(seed)
    lists = RowLists.of(clients)
    if (lists.sizes < 2).any():
        raise ClustPSIError("a client needs at least 2 samples, one to train and one to test on")
    shuffled = RowLists(lists.rows.copy(), lists.sizes)
    for rows in shuffled:
        random.shuffle(rows)
    held_out = -(-lists.sizes // 5)
    first = np.cumsum(lists.sizes) - lists.sizes
    is_test = np.arange(len(lists.rows)) < np.repeat(first + held_out, lists.sizes)
    return (
        RowLists(shuffled.rows[~is_test], lists.sizes - held_out),
        RowLists(shuffled.rows[is_test], held_out),
    )


def official_matched(clients: Sequence[Rows], labels: ArrayLike, test_rows: Rows, seed: int) -> RowLists:
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
    dealt, shares = [], np.empty((num_classes, len(counts)), np.int64)
    for label, of_class in enumerate(_rows_by_label(classes[test_rows], num_classes)):
        weights = counts[:, label] if counts[:, label].any() else counts.sum(axis=1)
        shares[label], remainders = np.divmod(len(of_class) * weights, weights.sum())
        left = len(of_class) - shares[label].sum()
        shares[label, np.lexsort((random.random(len(counts)), -remainders))[:left]] += 1
        dealt.append(random.permutation(test_rows[of_class]))
    return _hand_out(dealt, shares)


def workable(
    labels: ArrayLike,
    partitioner: str,
    seeds: Sequence[int],
    non_iid_param: float | None = None,
    num_clients: int | None = None,
) -> tuple[float | None, int | None]:
    """Non-IID parameter and number of clients for which every seed has a partition.

    Values that are given stay. The others are the defaults (alpha 0.1, S 0.03, 20 clients). If these labels have no
    such partition, or none is found at once, the nearest values that work are taken: first a larger alpha, then fewer
    clients. A :class:`ClustPSIWarning` says so. The answer depends on the set of seeds, not on their order.

    Parameters
    ----------
    labels
        Class of every row that is to be spread.
    partitioner
        One of `PARTITIONERS`; natural clients have neither parameter nor number.
    seeds
        Seeds of all partitions that will be made with these settings.
    non_iid_param, num_clients
        What the user asked for, None for the rest.

    Raises
    ------
    InfeasiblePartition
        When there is no such partition; the message names similar settings that work.

    Examples
    --------
    >>> workable(np.repeat(np.arange(10), 180), "dirichlet", seeds=[42, 0, 1])
    (0.1, 20)
    """
    if partitioner not in PARTITIONERS:
        raise unknown_name("partitioner", partitioner, PARTITIONERS)
    if partitioner == "natural":
        return non_iid_param, num_clients
    if not seeds:
        raise ClustPSIError("at least one seed is needed")
    for seed in seeds:
        classes = _check(labels, 2 if num_clients is None else num_clients, seed)
    if partitioner == "dirichlet":
        sizes = tuple(np.bincount(classes).tolist())
        return _workable_dirichlet(sizes, sorted(set(seeds)), non_iid_param, num_clients)
    mixed = 0
    if partitioner == "similarity":
        non_iid_param = DEFAULT_LEVELS[partitioner] if non_iid_param is None else non_iid_param
        _check_similarity(non_iid_param)
        mixed = round(non_iid_param * len(classes))
    if num_clients is None:
        num_clients = DEFAULT_CLIENTS
        while num_clients > 2 and mixed // num_clients + (len(classes) - mixed) // num_clients < MIN_SAMPLES:
            num_clients -= 1
        if num_clients < DEFAULT_CLIENTS:
            _note(f"{len(classes)} samples are too few for {DEFAULT_CLIENTS} clients, so there are {num_clients}")
    return non_iid_param, num_clients


def _workable_dirichlet(
    sizes: Sizes, seeds: Sequence[int], alpha: float | None, num_clients: int | None
) -> tuple[float, int]:
    if alpha is not None:
        _check_alpha(alpha)
    if alpha is not None and num_clients is not None:
        for seed in seeds:
            _require(sizes, num_clients, alpha, seed, seeds)
        return alpha, num_clients
    default = alpha or DEFAULT_LEVELS["dirichlet"], num_clients or DEFAULT_CLIENTS
    found = _first_workable(sizes, _candidates(alpha, num_clients), seeds)
    nothing = (
        f"no Dirichlet partition of {sum(sizes)} samples of {len(sizes)} classes over {default[1]} clients with "
        f"alpha={default[0]:g} was found"
    )
    if found is None:
        raise InfeasiblePartition(f"{nothing}: {_what_works(sizes, default[1], default[0], seeds)}")
    if found != default:
        _note(f"{nothing} at once, so there are {found[1]} clients with alpha={found[0]:g}")
    return found


def _candidates(alpha: float | None, num_clients: int | None) -> Iterator[tuple[float, int]]:
    """Settings to try where something is left open, the best first."""
    clients = FEWER_CLIENTS if num_clients is None else (num_clients,)
    for alphas in (SKEWED_ALPHAS, MILD_ALPHAS) if alpha is None else ((alpha,),):
        yield from ((each, number) for number in clients for each in alphas)


def _first_workable(
    sizes: Sizes,
    candidates: Iterable[tuple[float, int]],
    seeds: Sequence[int],
    min_samples: int = MIN_DIRICHLET_SAMPLES,
) -> tuple[float, int] | None:
    """The first alpha and number of clients with which a good pass comes soon for every seed."""
    for alpha, num_clients in candidates:
        if num_clients * min_samples > sum(sizes):
            continue
        # A pass shuffles all rows and draws a number for each class and client, which costs as much as thirty rows.
        passes = QUICK_ROWS // (sum(sizes) + 30 * len(sizes) * num_clients)
        passes = min(max(passes, FEWEST_QUICK_PASSES), MOST_QUICK_PASSES)
        if all(_good_pass(sizes, num_clients, alpha, seed, min_samples, passes)[0] is not None for seed in seeds):
            return alpha, num_clients
    return None


def _what_works(
    sizes: Sizes, num_clients: int, alpha: float, seeds: Sequence[int], min_samples: int = MIN_DIRICHLET_SAMPLES
) -> str:
    """Settings that work, near those that do not: a larger alpha, fewer clients, or other values of both."""
    larger = [(each, num_clients) for each in (*SKEWED_ALPHAS, *MILD_ALPHAS) if each > alpha]
    found = [_first_workable(sizes, larger, seeds, min_samples)]
    low, high = 1, min(num_clients, sum(sizes) // min_samples + 1)  # one client is no federation; `high` does not work
    while high - low > 1:
        middle = (low + high) // 2
        if _first_workable(sizes, [(alpha, middle)], seeds, min_samples):
            low = middle
        else:
            high = middle
    found.append((alpha, low) if low > 1 else None)
    if not any(found):
        found.append(_first_workable(sizes, _candidates(None, None), seeds, min_samples))
    names = [_text(*each) for each in found if each is not None]
    if not names:
        return "no other alpha or number of clients that was tried works either"
    of = f"seed {seeds[0]}" if len(seeds) == 1 else "these seeds"
    return f"{' or '.join(names)} {'works' if len(names) == 1 else 'work'} for {of}"


def _text(alpha: float, num_clients: int) -> str:
    return f"alpha={alpha:g} with {num_clients} clients"


def _note(message: str) -> None:
    warnings.warn(message, ClustPSIWarning, stacklevel=3)


def label_counts(clients: Sequence[Rows], labels: NDArray[np.integer], num_classes: int) -> Rows:
    """How many rows of each class every client has (clients x classes)."""
    lists = RowLists.of(clients)
    cells = lists.owners * num_classes + labels[lists.rows]
    return np.bincount(cells, minlength=len(clients) * num_classes).reshape(len(clients), num_classes)


def _split_stream(seed: int) -> np.random.Generator:
    """Random numbers of the train/test split, independent of those of the partition with the same seed."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))


def _check(labels: ArrayLike, num_clients: int, seed: int) -> Rows:
    classes = np.asarray(labels)
    if classes.ndim != 1 or classes.size == 0:
        raise ClustPSIError(f"labels must be a non-empty list, one class per row, but their shape is {classes.shape}")
    if not np.issubdtype(classes.dtype, np.integer) or classes.min() < 0:
        raise ClustPSIError("labels must be integers from 0 to the number of classes less one")
    if not 2 <= num_clients <= len(classes):
        raise ClustPSIError(f"the number of clients must be from 2 to the {len(classes)} samples, not {num_clients}")
    if not 0 <= seed < 2**31:
        raise ClustPSIError(f"the seed must be from 0 to 2**31 - 1, not {seed}")
    return classes.astype(np.int64)


def _check_alpha(alpha: float) -> None:
    if not (math.isfinite(alpha) and alpha > 0):
        raise ClustPSIError(f"alpha must be a finite number above 0, not {alpha}")


def _check_similarity(s: float) -> None:
    if not 0 <= s <= 1:
        raise ClustPSIError(f"the similarity S must be from 0 (sorted by label) to 1 (IID), not {s}")


def _rows_by_label(classes: Rows, num_classes: int) -> list[Rows]:
    """Row numbers of every class, ascending."""
    return np.split(_stable_argsort(classes), np.cumsum(np.bincount(classes, minlength=num_classes))[:-1])


def _stable_argsort(classes: Rows) -> Rows:
    # NumPy sorts 16-bit integers stably in linear time, wider ones several times slower.
    narrow = classes.astype(np.uint16) if classes.size and classes.max() < 2**16 else classes
    return np.argsort(narrow, kind="stable")
