"""The faults, and the tests that should notice each of them.

A fault is a short text of the source, there once, and what it is replaced by.  A change of the source that touches such
a text must change the list too: `test_faults.py` sees to it.  Where a fault changes nothing that anybody can observe,
``equivalent`` says why.
"""

import ast
from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    name: str
    file: str  # below src/clustpsi
    old: str
    new: str
    tests: tuple[str, ...]  # arguments of pytest
    equivalent: str = ""

    def put_into(self, source: str) -> str:
        """The source with the fault; ValueError if the old text is not there once, SyntaxError if it is not Python."""
        number = source.count(self.old)
        if number != 1:
            raise ValueError(f"{self.file} has {self.old!r} {number} times, and it should be there once")
        faulty = source.replace(self.old, self.new)
        ast.parse(faulty)
        return faulty


FAULTS: list[Fault] = []


def faults(file: str, tests: str, *listed: tuple[str, str, str] | tuple[str, str, str, str]) -> None:
    """Add faults of a file as (name, old, new), or (name, old, new, why it is equivalent)."""
    files, dash_k, expression = tests.partition(" -k ")
    selection = (*files.split(), *(("-k", expression) if dash_k else ()))
    FAULTS.extend(Fault(name, file, old, new, selection, *why) for name, old, new, *why in listed)


faults(
    "streams.py",
    "tests/test_streams.py",
    (
        "streams-generator-ignores-position",
        "default_rng((seed, int(stream), *position))",
        "default_rng((seed, int(stream)))",
    ),
    (
        "streams-generator-ignores-purpose",
        "default_rng((seed, int(stream), *position))",
        "default_rng((seed, *position))",
    ),
    (
        "streams-key-ignores-position",
        "SeedSequence((seed, int(stream), *position))",
        "SeedSequence((seed, int(stream)))",
    ),
    (
        "streams-key-ignores-seed",
        "SeedSequence((seed, int(stream), *position))",
        "SeedSequence((0, int(stream), *position))",
    ),
    ("streams-renumbered", "METHOD = 4", "METHOD = 5"),
)

faults(
    "engine/training.py",
    "tests/engine/test_training.py tests/engine/test_simulator.py",
    ("training-dropout-same-in-every-step", "jax.random.fold_in(key, i)", "key"),
    ("training-lone-row-normalized", "(last == 1) & (job.size > 1) & (network.num_buffers > 0)", "(last < 0)"),
    ("training-lone-row-always-dropped", "(job.size > 1) & (network.num_buffers > 0)", "(job.size > 1)"),
)

faults(
    "engine/local.py",
    "tests/engine/test_training.py tests/engine/test_simulator.py",
    ("local-work-dropout-same-for-all-clients", "keys[lane] = raw_key(*stream)", "keys[lane] = raw_key(*stream[:3])"),
    (
        "local-work-dropout-same-in-all-rounds",
        "keys[lane] = raw_key(*stream)",
        "keys[lane] = raw_key(*stream[:2], 0, task.client)",
    ),
    ("local-work-dropout-same-always", "keys[lane] = raw_key(*stream)", "keys[lane] = raw_key(*stream[:2])"),
    (
        "local-work-pooled-order-same-in-all-rounds",
        "(self.seed, Stream.TRAINING, t, client)",
        "(self.seed, Stream.TRAINING, 0, client)",
    ),
)
faults(
    "engine/simulator.py",
    "tests/engine/test_training.py tests/engine/test_simulator.py",
    (
        "simulator-nearest-of-equals-is-the-last",
        "losses.argmin(axis=0)",
        "len(models) - 1 - losses[::-1].argmin(axis=0)",
    ),
)
faults(
    "orders/answers.py",
    "tests/engine/test_training.py tests/engine/test_simulator.py -k not words and not texts",
    ("answers-buffers-not-checked", ".all()) for vector in model)", ".all()) for vector in model[:1])"),
    (
        "answers-mean-over-all",
        "if not is_finite(model):\n            return",
        "if not is_finite(model):\n            self.mean._weights.append(self.weights[position])\n            return",
    ),
    (
        "answers-broken-client-in-the-mean",
        "if not is_finite(model):\n            return",
        "if False:\n            return",
    ),
)

faults(
    "methods/ifca.py",
    "tests/runs/test_going_on.py tests/methods/test_rules.py -k ifca",
    ("ifca-forgets-what-is-used", "if setting.before is not None:", "if False:"),
    ("ifca-goes-on-with-the-least-used", "np.argsort(-users", "np.argsort(users"),
)
faults(
    "methods/ditto.py",
    "tests/runs/test_going_on.py tests/methods/test_rules.py -k ditto or personal",
    ("ditto-own-models-forgotten", "*setting.own_starts", "*(setting.common_start,) * len(setting.clients)"),
    ("ditto-own-models-unused-at-first", "len(setting.clients), goes_on", "len(setting.clients), False"),
)
faults(
    "methods/heads.py",
    "tests/runs/test_going_on.py -k personal",
    (
        "heads-all-the-common-one",
        "for model in setting.own_starts",
        "for model in [setting.common_start] * len(setting.clients)",
    ),
)
faults(
    "engine/simulator.py",
    "tests/test_privacy.py",
    (
        "simulator-untold-classes-ruled-out",
        "return np.where(held & ~told, log_prior[told].min(), log_prior)",
        "return log_prior",
    ),
)
faults(
    "privacy.py",
    "tests/test_privacy.py",
    ("privacy-no-row-at-all", '(what == "train" or counts.any())', "counts.any()"),
)
faults(
    "report/best.py",
    "tests/report/test_best.py",
    ("best-untested-cells-count", 'int(cells["p"].notna().sum())', "len(cells)"),
    ("best-any-number-of-seeds", "if len(both) == most)", "if len(both))"),
    ("best-nobody-with-fewer-named", "len(both) < most and ahead[name] > ahead[best]", "len(both) < 0"),
)
faults(
    "experiments/advice.py",
    "tests/experiments/test_advice.py",
    ("advice-from-validation-rows", '& ~runs["validation"].eq(True)', ""),
    ("advice-from-different-settings", 'check_comparable(group, f"the runs on {dataset}")', "pass"),
)
faults(
    "engine/own_words.py",
    "tests/engine/test_training.py tests/engine/test_simulator.py -k word",
    ("own-words-without-padding", "has[PADDING] = True", "has[PADDING] |= False"),
)
faults(
    "models/winograd.py",
    "tests/models/test_models.py -k convolution",
    ("winograd-result-transform", "0.5 * odd_near + 2 * odd_far + f", "0.5 * odd_near + 2 * odd_far"),
    ("winograd-kernel-back", "1 / 3 * (far - near) + f", "1 / 3 * (far + near) + f"),
    ("winograd-cotangent", "a + 0.5 * c, a + 2 * c", "a + 0.5 * c, a + c"),
    ("winograd-edge-of-images", "if 0 <= line < height and", "if 0 <= line and"),
    ("winograd-last-squares", "(number + ROWS - 1) // ROWS * ROWS", "number // ROWS * ROWS"),
    ("winograd-kernel-not-turned", "kernel[::-1, ::-1].swapaxes(2, 3)", "kernel.swapaxes(2, 3)"),
    ("winograd-gradient-of-the-last-squares", "inputs, outputs, number, first)", "inputs, outputs, number, 0)"),
    ("winograd-channels-not-filled", "filled(kernel, CHANNELS, CHANNELS)", "filled(kernel, 1, 1)"),
)
faults(
    "models/direct.py",
    "tests/models/test_direct.py",
    ("direct-place-of-the-line-above", "(line, i + a), (pixel, j + b)", "(line, i), (pixel, j + b)"),
    ("direct-second-pair-forgotten", 'largest = nan.where(unknown, a.where(a.compared(">", b), b))', "largest = a"),
    ("direct-what-is-no-number-lost", "nan.where(unknown, a.where(", "b.where(unknown, a.where("),
    ("direct-without-relu", 'zero.where(zero.compared(">", result), result)', "result"),
    (
        "direct-gradient-below-zero",
        'positive = result.compared(">", zero)',
        'positive = largest.compared("==", largest)',
    ),
    ("direct-whole-gradient-to-each", "number = number + one.where(each, zero)", "number = one"),
    (
        "direct-marks-of-the-first-map",
        "pooled + to, marks + to // MARKED",
        "pooled + to, marks + results[square] // MARKED",
    ),
    (
        "direct-maps-not-filled",
        "cotangent, whole = filled(cotangent, MAPS, 1)",
        "cotangent, whole = filled(cotangent, 1, 1)",
    ),
    ("direct-frame-as-it-comes", "    lines[-1] = 0\n", ""),
    ("direct-lines-of-windows", "2 * i * line + 2 * j * pixel", "i * line + 2 * j * pixel"),
    ("direct-gradient-on-top-of-another", "    floats(given[0])[:] = 0\n", ""),
    ("direct-half-of-the-kernels", "range(0, maps, KERNELS)", "range(0, maps, 2 * KERNELS)"),
)
faults(
    "models/layers.py",
    "tests/models/test_direct.py",
    ("layers-rows-fill-no-register", "return filled(x, LANES)", "return x"),
    ("layers-frame-kept", "x[1:-1, 1:-1, :, :rows]", "x[:-2, :-2, :, :rows]"),
    ("layers-elsewhere-without-bias", "nn.relu(max_pool(y) + bias)", "nn.relu(max_pool(y))"),
)
faults(
    "models/recurrence.py",
    "tests/models/test_models.py -k lstm or tangent",
    ("recurrence-padding-changes-the-cell", "after if there[i] > 0 else cell_before[i]", "after"),
    ("recurrence-padding-changes-the-state", "squashed[i] if there[i] > 0 else before[i]", "squashed[i]"),
    ("recurrence-without-dropout", "dropped[i] = hidden[i] * kept[i]", "dropped[i] = hidden[i]"),
    ("recurrence-gradient-of-padding", "passed = ZERO if there[i] > 0 else to_hidden[i]", "passed = ZERO"),
    ("recurrence-gradient-of-cells-lost", "own = to_cell[i] + to_hidden[i]", "own = to_hidden[i]"),
    ("recurrence-gradient-of-dropout", "kept[i] * from_gates[i] + passed", "from_gates[i] + passed"),
    (
        "recurrence-states-one-word-late",
        "hidden[:-1], ((1, 0), (0, 0), (0, 0))",
        "hidden[1:], ((0, 1), (0, 0), (0, 0))",
    ),
    ("recurrence-rows-not-filled", "filled(each, COLUMNS) for", "filled(each, 1) for"),
)
faults(
    "models/vectors.py",
    "tests/engine/test_simulator.py tests/models/test_models.py tests/models/test_direct.py "
    "-k plain_loop or convolution or native",
    ("vectors-half-of-a-total", "for start in (0, width)", "for start in (0, 0)"),
    ("vectors-product-of-the-first-columns", "b + column, steps, total", "b, steps, total"),
    ("vectors-one-step-too-few", 'icmp_signed("<", counted, steps)', 'icmp_signed("<", count, steps)'),
)
faults(
    "engine/shuffling.py",
    "tests/engine/test_shuffling.py tests/engine/test_simulator.py -k plain_loop or shuffling",
    (
        "shuffling-forgets-half-a-word",
        "for epoch in range(epochs):",
        "for epoch in range(epochs):\n        is_left = False",
    ),
    ("shuffling-one-number-less", "np.int64(number & mask <= last)", "np.int64(number & mask < last)"),
    ("shuffling-fewer-bits", "np.int64(word >> HALF) & mask", "np.int64(word >> HALF) & (mask >> 1)"),
    ("shuffling-one-half-too-many", "if is_left or last - 1 == mask >> 1:", "if is_left:"),
    ("shuffling-carry", "high += np.uint64(low < low_step)", "high += np.uint64(0)"),
    (
        "shuffling-the-lower-half-twice",
        "upper = np.int64(word & LOW_HALF), np.int64(word >> HALF)",
        "upper = np.int64(word & LOW_HALF), np.int64(word & LOW_HALF)",
    ),
)
faults(
    "engine/softmax_regression.py",
    "tests/engine/test_training.py tests/engine/test_simulator.py",
    ("softmax-of-equals-the-last", "if logits[c] > logits[best]:", "if logits[c] >= logits[best]:"),
)

# -------------------------------------------------------------------------------------------------------------- methods

faults(
    "methods/centralized.py",
    "tests/methods/test_rules.py -k centralized",
    ("centralized-without-fraction", "setting.fraction * setting.num_rounds", "setting.num_rounds"),
    ("centralized-without-epochs", "* setting.num_rounds * setting.local_epochs", "* setting.num_rounds"),
    ("centralized-forgets-its-optimizer", 'state.memory.get("optimizer")', "None"),
    (
        "centralized-all-epochs-every-round",
        "total * t // setting.num_rounds - total * (t - 1) // setting.num_rounds",
        "total",
    ),
    ("centralized-ignores-cl-epochs", "self.cl_epochs or max(", "max("),
    ("centralized-trains-nothing-at-all", "max(1, round(", "max(0, round("),
)
faults(
    "methods/fedsoft.py",
    "tests/methods/test_rules.py -k fedsoft",
    ("fedsoft-weighted-means", "np.ones(len(kept))", "size[kept]"),
    ("fedsoft-importance-not-by-size", "explained / size[:, None]", "explained / explained.sum()"),
    (
        "fedsoft-no-least-importance",
        "np.where(explained == 0, self.sigma_fedsoft, explained / size[:, None])",
        "explained / size[:, None] + 1e-12",
    ),
    ("fedsoft-draws-without-sizes", "importance * size[:, None], rng", "importance, rng"),
    (
        "fedsoft-half-the-pull",
        "proximal=self.lambda_fedsoft * importance[union].sum(axis=1)",
        "proximal=self.lambda_fedsoft",
    ),
    (
        "fedsoft-anchors-of-others",
        "anchors=mixtures(centres, importance[union])",
        "anchors=mixtures(centres, importance[: len(union)])",
    ),
    ("fedsoft-estimates-every-round", "(t - 1) % self.tau_est == 0", "True"),
    ("fedsoft-estimates-one-round-late", "(t - 1) % self.tau_est == 0", "t % self.tau_est == 0"),
    ("fedsoft-clusters-start-alike", "setting.initial(1 + s)", "setting.initial(1)"),
    (
        "fedsoft-fewer-clients-per-cluster",
        "int(setting.fraction * len(weight) / self.n_fedsoft + 1e-9)",
        "int(setting.fraction * len(weight) / self.n_fedsoft**2 + 1e-9)",
    ),
    (
        "fedsoft-untrained-use-their-start",
        "untrained = np.flatnonzero(~state.memory",
        "untrained = np.flatnonzero(state.memory",
    ),
    ("fedsoft-mixtures-not-normalized", "(weights / weights.sum(axis=1, keepdims=True))", "(weights / weights.sum())"),
    ("fedsoft-downloads-one-model", "mixed_of=centres", "mixed_of=centres[:1]"),
    (
        "fedsoft-broken-client-counts-as-trained",
        "if model is not None:\n                personal[k], ever_trained[k] = model, True",
        "ever_trained[k] = True\n            if model is not None:\n                personal[k] = model",
    ),
    ("fedsoft-broken-client-in-the-mean", "kept = own[np.isin(own, finite)]", "kept = own"),
)
faults(
    "methods/cfl.py",
    "tests/methods/test_rules.py -k cfl or cosines",
    (
        "cfl-children-plain-means",
        "for client in half], setting.sizes[half])",
        "for client in half], np.ones(len(half)))",
    ),
    (
        "cfl-broken-always-first-half",
        "halves[1] if len(halves[1]) <= len(halves[0]) else np.setdiff1d(members, halves[0])",
        "halves[1]",
    ),
    ("cfl-broken-always-second-half", "halves[1] if len(halves[1]) <= len(halves[0]) else np", "np"),
    ("cfl-splits-pairs", "if len(members) <= 2 or not", "if len(members) < 2 or not"),
    (
        "cfl-splits-at-the-bound",
        "> self.gamma:",
        ">= self.gamma:",
    ),
    ("cfl-gamma-ignored", "if not distance_across(similarity, second) > self.gamma:", "if False:"),
    ("cfl-ratio-to-nothing", "eps1 * (max_norm if relative else 1)", "eps1"),
    ("cfl-no-warm-up", "and t >= warmup", ""),
    ("cfl-warm-up-one-late", "t >= warmup", "t > warmup"),
    ("cfl-split-without-the-absent", "if len(absent):", "if False:"),
    ("cfl-all-train-again-to-split", "np.setdiff1d(members, chosen)", "members"),
    ("cfl-eps2-ignored", "and max_norm > eps2 and", "and"),
    ("cfl-norm-of-models", "np.linalg.norm(new.parameters - old.parameters)", "np.linalg.norm(new.parameters)"),
    (
        "cfl-cosines-not-normalized",
        "updates /= np.maximum(length, 1e-12)[:, None]",
        "updates /= np.maximum(length.max(), 1e-12)",
    ),
    ("cfl-distance-of-the-farthest", "[:, second].max()", "[:, second].min()"),
    ("cfl-split-not-recorded", "len(leaf.models) == 2)", "len(leaf.models) == 3)"),
    ("cfl-smallest-norm-for-largest", "max_norm = max(norm", "max_norm = min(norm"),
)
faults(
    "methods/haccs.py",
    "tests/methods/test_rules.py -k haccs or latencies",
    (
        "haccs-devices-change-with-the-cluster",
        "draw_latencies(rng, everybody)[setting.clients]",
        "draw_latencies(rng, len(setting.clients))",
    ),
    ("haccs-same-devices-for-all-seeds", "generator(setting.seed, Stream.METHOD)", "generator(0, Stream.METHOD)"),
    (
        "haccs-losses-at-client-numbers",
        "loss[np.searchsorted(setting.clients, chosen[trained.kept])]",
        "loss[np.minimum(chosen[trained.kept], len(loss) - 1)]",
    ),
    (
        "haccs-losses-of-broken-clients",
        "loss[np.searchsorted(setting.clients, chosen[trained.kept])] = trained.losses[trained.kept]",
        "loss[np.searchsorted(setting.clients, chosen)] = trained.losses",
    ),
    ("haccs-learns-nothing", 'memory={**state.memory, "loss": loss}', "memory=state.memory"),
    ("haccs-slowest-clients", 'np.argsort(latency, kind="stable")', 'np.argsort(-latency, kind="stable")'),
    (
        "haccs-favours-slow-groups",
        "rho * (1 - mean_latency / mean_latency.max())",
        "rho * (mean_latency / mean_latency.max())",
    ),
    ("haccs-loss-without-weight", "+ (1 - rho) * mean_loss", "+ mean_loss"),
    ("haccs-unknown-losses-count", "np.maximum(np.bincount(group, known), 1)", "size"),
    (
        "haccs-all-slots-drawn",
        "np.minimum((theta * number + 1e-9).astype(np.int64), size)",
        "np.zeros(len(theta), np.int64)",
    ),
    ("haccs-more-slots-than-members", "p=_normalized(theta, slots < size)", "p=_normalized(theta, slots >= 0)"),
    ("haccs-noise-ignored", "noisy = counts if self.dp_eps is None else", "noisy = counts if True else"),
    ("haccs-more-noise-for-a-larger-budget", "noise / self.dp_eps", "noise * self.dp_eps"),
    ("haccs-other-threshold", "SAME_GROUP = 0.25", "SAME_GROUP = 0.5"),
    ("haccs-uniform-ignored", 'if self.haccs_weights == "uniform":', "if False:"),
    ("haccs-downloads-twice", "replace(order, holds_start=True)", "order"),
    ("haccs-processors-all-fast", "10 * (0.5 * processor + rng", "10 * (0 * processor + rng"),
)
faults(
    "methods/fedcls.py",
    "tests/methods/test_rules.py -k fedcls",
    ("fedcls-order-of-the-cluster-alone", "permutation(len(setting.sizes))", "permutation(len(setting.clients))"),
    (
        "fedcls-order-not-drawn",
        "generator(setting.seed, Stream.METHOD).permutation(len(setting.sizes))",
        "np.arange(len(setting.sizes))",
    ),
    (
        "fedcls-used-members-offer-theirs",
        "present[members].any(axis=0) for members in unused",
        "present[group == g].any(axis=0) for g in range(len(unused))",
    ),
    ("fedcls-covered-is-the-last-alone", "covered |= present[chosen[-1]]", "covered = present[chosen[-1]].copy()"),
    ("fedcls-covered-is-the-whole-group", "covered |= present[chosen[-1]]", "covered |= offered[best]"),
    ("fedcls-never-begins-anew", "covered[:] = False", "pass"),
    ("fedcls-nearer-groups-first", "-distance, -added, ~left", "distance, -added, ~left"),
    ("fedcls-distance-before-labels", "-distance, -added, ~left", "-added, -distance, ~left"),
    ("fedcls-tau-excluded", "<= tau + 1e-9", "< tau - 1e-9"),
    ("fedcls-last-group-that-fits", "near[0] if len(near)", "near[-1] if len(near)"),
    (
        "fedcls-members-in-fixed-order",
        "list(rng.permutation(np.flatnonzero(group == g)))",
        "list(np.flatnonzero(group == g))",
    ),
)
faults(
    "methods/clust_psi_pfl.py",
    "tests/methods/test_rules.py tests/methods/test_runs.py -k clust or special_cases",
    ("clust-epsilon-ignored", "epsilon=self.psi_epsilon", "epsilon=None"),
    ("clust-seed-ignored", "random_state=setting.seed", "random_state=0"),
    ("clust-smoothing-ignored", "smoothing=self.psi_smoothing", 'smoothing="additive"'),
    ("clust-guard-ignored", "min_wpsi=self.min_wpsi", "min_wpsi=0.0"),
    ("clust-clear-groups-ignored", "min_clarity=self.min_clarity", "min_clarity=0.0"),
    ("clust-features-ignored", "features=self.psi_features", 'features="psi"'),
    ("clust-first-clusters-model-for-all", "joined(inner, cluster)", "joined(inner[:1] * len(inner), cluster * 0)"),
    (
        "clust-more-clusters-than-clients",
        "self.tau_clusters > len(setting.clients)",
        "self.tau_clusters > 1 + len(setting.clients)",
    ),
)
faults(
    "methods/fedavg.py",
    "tests/methods/test_rules.py",
    ("fedavg-draws-with-replacement", "size=number, replace=False", "size=number, replace=True"),
    ("fedavg-does-not-learn", "return replace(state, models=(mean,))", "return state"),
    ("fedavg-trains-without-anybody", "if len(chosen) == 0:\n            return state", "pass"),
    ("fedavg-starts-elsewhere", "setting.common_start))", "setting.initial(1)))"),
    (
        "fedavg-does-not-remember",
        "state = self.learn(setting, state, chosen, trained)",
        "self.learn(setting, state, chosen, trained)",
    ),
)
faults(
    "methods/fedavgm.py",
    "tests/methods/test_rules.py -k server_optimizers",
    ("fedavgm-velocity-not-kept", 'self.momentum * memory["velocity"]', '0 * memory["velocity"]'),
    ("fedavgm-wrong-way", "(mean - kept)", "(mean + kept)"),
    ("fedavgm-velocity-without-past", "kept + (theta - mean)", "theta - mean"),
    (
        "fedavgm-rate-ignored",
        "moved = (1 - self.server_lr) * theta + self.server_lr * (mean - kept)",
        "moved = mean - kept",
    ),
)
faults(
    "methods/fedopt.py",
    "tests/methods/test_rules.py -k server_optimizers or adaptive or buffers",
    ("fedopt-textbook-bias-correction", "self.beta2 ** (t + 1)", "self.beta2**t"),
    ("fedopt-first-moment-bias", "self.beta1 ** (t + 1)", "self.beta1**t"),
    ("fedopt-yogi-sign", "np.sign(v - squared)", "np.sign(squared - v)"),
    ("fedopt-yogi-is-adam", "squared * np.sign(v - squared)", "(v - squared)"),
    ("fedopt-adagrad-forgets", "return v + squared", "return 0.99 * v + squared"),
    ("fedopt-adam-second-moment", "self.beta2 * v + (1 - self.beta2) * squared", "self.beta2 * v + squared"),
    ("fedopt-tau-inside-the-root", "(np.sqrt(v) + self.tau_adaptivity)", "np.sqrt(v + self.tau_adaptivity)"),
    ("fedopt-v0-is-tau", "self.tau_adaptivity**2 if", "self.tau_adaptivity if"),
    ("fedopt-eta-l-ignored", "self.eta_l * (mean - theta)", "mean - theta"),
    ("fedopt-gradient-not-weighted", "(1 - self.beta1) * delta", "delta"),
    ("fedopt-buffers-kept", "else mean.buffers", "else old.buffers"),
    (
        "fedopt-optimizes-buffers",
        "np.concatenate(model) if self.server_opt_on_buffers",
        "np.concatenate(model) if not self.server_opt_on_buffers",
    ),
    ("fedopt-bias-always-corrected", 'if self.bias_correction == "none":', "if False:"),
)
faults(
    "methods/fedprox.py",
    "tests/methods/test_rules.py tests/methods/test_runs.py -k special_cases or parameters_change or combine",
    ("fedprox-without-its-term", "proximal=self.mu)", "proximal=0.0)"),
    ("fedprox-half-its-term", "proximal=self.mu)", "proximal=self.mu / 2)"),
)
faults(
    "methods/local.py",
    "tests/methods/test_rules.py tests/methods/test_runs.py -k test_local",
    ("local-sends-models", "holds_start=True, keeps_model=True", "keeps_model=True"),
    ("local-loses-a-model", "new or old for new", "new or state.models[0] for new"),
    ("local-one-model-for-all", "np.arange(len(setting.clients))", "np.zeros(len(setting.clients), int)"),
    (
        "local-starts-over",
        "yield Train(setting.clients, state.models,",
        "yield Train(setting.clients, setting.initial(0),",
    ),
)
faults(
    "methods/poc.py",
    "tests/methods/test_rules.py -k poc or combine",
    ("poc-candidates-not-by-size", "p=size / size.sum()", "p=None"),
    ("poc-least-loss", "-losses))", "losses))"),
    ("poc-ties-in-order", "rng.random(candidates)", "np.arange(candidates)"),
    ("poc-weighted-by-size", "weights=np.ones(len(chosen)), holds_start=True", "holds_start=True"),
    ("poc-downloads-twice", "weights=np.ones(len(chosen)), holds_start=True", "weights=np.ones(len(chosen))"),
    ("poc-all-candidates-train", "return d, max(1, int(setting.fraction * d + 1e-9))", "return d, d"),
    ("poc-trains-nobody", "max(1, int(setting.fraction * d", "max(0, int(setting.fraction * d"),
    ("poc-scaled-too-far", "round(0.8 * everybody)", "round(0.9 * everybody)"),
    ("poc-more-than-all", "min(self.d_poc, everybody)", "self.d_poc"),
)
faults(
    "methods/prior_pfl.py",
    "tests/methods/test_rules.py tests/methods/test_runs.py -k prior or reading or calibration",
    ("prior-single-class-clients-train", "setting, state, drawn)) > 0]", "setting, state, drawn)) >= 0]"),
    ("prior-weights-without-impurity", "counts.sum(axis=1) * impurity(counts)", "counts.sum(axis=1)"),
    ("prior-weights-without-size", "counts.sum(axis=1) * impurity(counts)", "impurity(counts)"),
    ("prior-not-in-training", "log_prior=log_shares(counts),", ""),
    ("prior-trains-on-held-out-rows", "hold_out=self._held_out(setting),", ""),
    ("prior-strength-ignored", "self.prior_strength * label_mix(counts)", "0 * label_mix(counts)"),
    (
        "prior-counts-of-others",
        'state.memory["kept"][np.searchsorted(setting.clients, clients)]',
        'state.memory["kept"][: len(clients)]',
    ),
    ("prior-untrained-model-speaks", "or impurity(kept).any() else", "or True else"),
    ("prior-never-goes-back", "                taken = before\n", "                taken = now\n"),
    ("prior-goes-back-to-the-first", "worse = np.nansum(now.memory", "worse = True or np.nansum(now.memory"),
    ("prior-personal-whatever-it-loses", "if not clearly_better(losses[:, best], least, self.evidence):", "if False:"),
    ("prior-alone-never", "while better is not None and", "while False and"),
    ("prior-alone-for-too-long", "2 * rounds <= setting.num_rounds", "rounds <= setting.num_rounds"),
    ("prior-personal-all-the-way", "between(shared, model, share)", "between(shared, model, 1.0)"),
    ("prior-mix-not-in-use", "log_prior += shifts", "log_prior += 0 * shifts"),
    ("prior-calibrates-once", "due = last or t % self.calibrate_every == 0", "due = last"),
)
faults(
    "methods/label_prior.py",
    "tests/methods/test_label_prior.py tests/methods/test_rules.py -k prior",
    ("prior-uniform-mix", "counts.sum(axis=0) / counts.sum()", "np.ones(counts.shape[1]) / counts.shape[1]"),
    ("prior-entropy-of-first-order", "(share**2).sum(axis=1)", "share.max(axis=1)"),
    ("prior-clients-in-common-without-size", "digamma(sizes + total)", "digamma(1 + total)"),
    ("prior-in-common-without-bounds", "np.clip(found.sum(), LEAST_SUM, LARGEST_SUM)", "found.sum() * 2"),
)
faults(
    "methods/readings.py",
    "tests/methods/test_rules.py -k prior or reading or calibration",
    ("readings-by-any-gain", "evidence * np.sqrt", "0 * np.sqrt"),
    ("readings-poisoned-by-silence", "gain[np.isfinite(gain)]", "gain"),
    ("readings-without-the-mix", "u * (scale - 1)", "0 * (scale - 1)"),
)
faults(
    "methods/base.py",
    "tests/methods/test_rules.py tests/methods/test_interface.py -k participants or bad_specs or bounds or labels",
    ("base-rounding-of-participants", "int(fraction * num_clients + 1e-9)", "int(fraction * num_clients)"),
    ("base-participants-rounded-up", "int(fraction * num_clients + 1e-9)", "int(fraction * num_clients + 0.999)"),
    ("base-least-one-participant", "max(2, int(fraction", "max(1, int(fraction"),
    ("base-above-includes-the-bound", "value > above", "value >= above"),
    ("base-most-excludes-the-bound", "value <= most", "value < most"),
    ("base-not-a-number-allowed", "and (isinstance(value, int) or math.isfinite(value)):", ":"),
    ("base-choices-not-checked", "if choices and value not in choices:", "if False:"),
)
faults(
    "orders/work.py",
    "tests/orders/test_orders.py",
    ("orders-replies-to-the-first", "advance(i, reply)\n    return", "advance(asked[0], reply)\n    return"),
    ("orders-results-in-order-of-ending", "[results[i] for i in range(len(works))]", "list(results.values())"),
)
faults(
    "orders/models.py",
    "tests/orders/test_orders.py",
    ("orders-plain-mean", "self._weights.append(weight)", "weight = 1.0\n        self._weights.append(weight)"),
    ("orders-weights-add-up-to-more", "math.fsum(self._weights)", "max(self._weights, default=0.0)"),
    ("orders-bytes-without-buffers", "self.parameters.nbytes + self.buffers.nbytes", "self.parameters.nbytes"),
    (
        "orders-mean-in-single-precision",
        "np.zeros(model.parameters.size), np",
        "np.zeros(model.parameters.size, np.float32), np",
    ),
    ("orders-mean-of-weightless-models", " or total <= 0:", ":"),
    ("orders-models-without-weight-poison-the-mean", "if weight > 0:", "if True:"),
    ("orders-movers-are-all", "* (change != 0)", "* (change == change)"),
    ("orders-weightless-movers-count", "if weight <= 0:", "if weight < 0:"),
    ("orders-joined-models-of-the-first", "first + part.of_client", "part.of_client"),
    (
        "orders-joined-priors-of-the-first",
        "column[own] = getattr(part, name)",
        "column[own] = getattr(parts[-1], name)[:1]",
    ),
    ("orders-mean-forgets-the-buffers", "zip(self._sums, model, strict=True)", "zip(self._sums[:1], model)"),
)
faults(
    "orders/cost.py",
    "tests/orders/test_orders.py",
    ("cost-start-sent-again", "sent = 0 if order.holds_start else size", "sent = size"),
    ("cost-start-never-sent", "sent = 0 if order.holds_start else size", "sent = 0"),
    ("cost-kept-models-come-back", "0 if order.keeps_model else size * clients", "size * clients"),
    ("cost-one-of-the-mixed-models", "sum(model.num_bytes for model in order.mixed_of)", "order.mixed_of[0].num_bytes"),
    ("cost-anchors-besides-what-they-mix", "    elif order.anchors", "    if order.anchors"),
    ("cost-anchors-not-sent", "is not None:\n        sent += size", "is not None:\n        sent += 0"),
    ("cost-one-model-for-the-nearest", "sum(model.num_bytes for model in models)", "models[0].num_bytes"),
    ("cost-labels-take-a-byte-each", "-(-num_classes // 8)", "num_classes"),
    ("cost-labels-rounded-down", "-(-num_classes // 8)", "num_classes // 8"),
    ("cost-together-the-first-alone", "for each in orders]", "for each in orders[:1]]"),
)

# ------------------------------------------------------------------------------------------------ skew, clients, scores

faults(
    "skew.py",
    "tests/test_skew.py tests/test_partition_edges.py",
    (
        "skew-psi-without-reference",
        "(p_all - p_client) * np.log(p_all / p_client)",
        "p_client * np.log(p_client / p_all)",
    ),
    ("skew-psi-log-of-two", "np.log(p_all / p_client)", "np.log2(p_all / p_client)"),
    ("skew-additive-only-clients", "p_all + strength, p_client + strength", "p_all, p_client + strength"),
    (
        "skew-clip-only-clients",
        "np.maximum(p_all, strength), np",
        "p_all, np",
    ),
    ("skew-laplace-not-normalized", "(sizes + strength * known.sum())", "sizes"),
    ("skew-laplace-counts-absent-classes", "strength * known.sum()", "strength * table.shape[1]"),
    ("skew-terms-of-the-first-clients-again", "_terms_of(table[own]", "_terms_of(table[: len(terms[own])]"),
    ("skew-unknown-classes-count", "known = pooled > 0", "known = pooled >= 0"),
    ("skew-epsilon-ignored", "SMOOTHINGS[smoothing] if epsilon is None else epsilon", "SMOOTHINGS[smoothing]"),
    ("skew-other-default", '"clip": 1e-4', '"clip": 1e-3'),
    ("skew-wpsi-unweighted", "weights=table.sum(axis=1)))", "weights=np.ones(len(table))))"),
    ("skew-hellinger-population", "var(axis=0, ddof=1)", "var(axis=0)"),
    ("skew-jsd-natural-logarithm", ".mean() / np.log(2))", ".mean())"),
    ("skew-jsd-bound-for-two-clients", "if len(shares) > 2:", "if len(shares) > 3:"),
    ("skew-jsd-not-a-root", "min(float(np.sqrt(max(divergence, 0.0))), 1.0)", "min(float(max(divergence, 0.0)), 1.0)"),
    (
        "skew-emd-not-sorted",
        "np.sort(_distributions(check_counts(counts)), axis=1)",
        "_distributions(check_counts(counts))",
    ),
    ("skew-emd-of-all-not-halved", ".sum() / 2)", ".sum())"),
    ("skew-pairs-with-themselves", "rows * (rows - 1) / 2", "rows * rows / 2"),
    ("skew-spans-one-off", "np.arange(1, rows)", "np.arange(0, rows - 1)"),
    ("skew-reference-any-sum", "abs(pooled.sum() - 1) < 1e-6", "abs(pooled.sum() - 1) < 1e-2"),
    ("skew-reference-no-zero", "(pooled >= 0).all()", "(pooled > 0).all()"),
    ("skew-fractions-as-counts", "(values != np.floor(values), ", "(values != values, "),
    ("skew-clients-without-samples", "if without.size:", "if False:"),
)
faults(
    "partition.py",
    "tests/test_partition.py tests/test_partition_edges.py",
    ("partition-fair-share-inclusive", "held < fair_share", "held <= fair_share"),
    (
        "partition-one-seed-for-all-classes",
        "random.seed(first_seed + 100 * label)\n        # FedArtML",
        "random.seed(first_seed)\n        # FedArtML",
    ),
    (
        "partition-classes-shuffled-alike",
        "random.seed(first_seed + 100 * label)\n        random.shuffle(of_class)",
        "random.seed(first_seed)\n        random.shuffle(of_class)",
    ),
    ("partition-last-client-short", "ends[-1] = size", "pass"),
    (
        "partition-reports-the-last-pass",
        "most = max(most, int(shares.sum(axis=0).min()))",
        "most = int(shares.sum(axis=0).min())",
    ),
    ("partition-minimum-not-enough", "if most >= min_samples:", "if most > min_samples:"),
    (
        "partition-compiled-passes-begin-anew",
        "begin = FIRST_PASSES\n",
        "begin = 0\n",
        "the passes before have failed, and fail again",
    ),
    (
        "partition-level-for-the-first-seed-alone",
        "is not None for seed in seeds):",
        "is not None for seed in seeds[:1]):",
    ),
    (
        "partition-clients-not-shuffled",
        "random.seed(seed + 100 * client)\n        random.shuffle(rows)",
        "random.seed(seed + 100 * client)",
    ),
    ("partition-failed-pass-kept", "shares[:] = 0\n            break", "break"),
    ("partition-similarity-truncates", "round(s * len(classes))", "int(s * len(classes))"),
    ("partition-similarity-sorts-nothing", "rest[_stable_argsort(classes[rest])]", "rest"),
    (
        "partition-similarity-same-order",
        "shuffled = np.random.default_rng(seed).permutation(len(classes))",
        "shuffled = np.arange(len(classes))",
    ),
    (
        "partition-iid-in-order",
        "RowLists(np.random.default_rng(seed).permutation(len(classes)), sizes)",
        "RowLists(np.arange(len(classes)), sizes)",
    ),
    ("partition-chosen-lists-from-the-first-row", "np.repeat(begins, sizes) + within", "within"),
    ("partition-a-quarter-held-out", "-(-lists.sizes // 5)", "-(-lists.sizes // 4)"),
    ("partition-fifth-rounded-down", "-(-lists.sizes // 5)", "np.maximum(1, lists.sizes // 5)"),
    ("partition-split-with-the-partitions-stream", "SeedSequence(seed, spawn_key=(1,))", "SeedSequence(seed)"),
    (
        "partition-ties-to-the-first",
        "np.lexsort((random.random(len(counts)), -remainders))",
        'np.argsort(-remainders, kind="stable")',
    ),
    ("partition-smallest-remainders", "-remainders))[:left]", "remainders))[:left]"),
    (
        "partition-untrained-class-to-nobody",
        "if counts[:, label].any() else counts.sum(axis=1)",
        "if counts[:, label].any() else np.eye(len(counts), dtype=int)[0]",
    ),
    ("partition-16-bits-and-one", "classes.max() < 2**16", "classes.max() <= 2**16"),
    ("partition-17-bits", "classes.max() < 2**16", "classes.max() < 2**17"),
    ("partition-one-client", "if not 2 <= num_clients", "if not 1 <= num_clients"),
    ("partition-passes-not-bounded", "min(max_passes, MAX_SHUFFLED_ROWS // rows)", "max_passes"),
)
faults(
    "partition.py",
    "tests/runs/test_run_details.py tests/runs/test_config.py -k partitions or default",
    ("partition-other-default-alpha", '"dirichlet": 0.1', '"dirichlet": 0.3'),
    ("partition-other-default-similarity", '"similarity": 0.03', '"similarity": 0.0'),
)
faults(
    "dirichlet_loops.py",
    "tests/test_partition.py -k compiled or index_for_index",
    ("loops-fair-share-inclusive", "if held[client] >= fair_share:", "if held[client] > fair_share:"),
    ("loops-minimum-not-enough", "if most >= min_samples:", "if most > min_samples:"),
    ("loops-one-seed-for-all-classes", "seed + 100 * (number * classes + label)", "seed + 100 * number * classes"),
    ("loops-last-client-short", "class_sizes[label] if client == num_clients - 1 else int", "int"),
    ("loops-failed-pass-kept", "smallest = 0\n                break", "break"),
    ("loops-normal-not-kept", "spare[0] = factor * first", "spare[0] = np.nan"),
    ("loops-plain-sum", "elif number <= 128:", "elif number <= 2**20:"),
)
faults(
    "federation.py",
    "tests/test_federation.py tests/test_federation_details.py",
    ("federation-trains-on-the-official-test", "rows = np.delete(rows, dataset.official_test)", "pass"),
    ("federation-split-seed", "partition.client_80_20(clients, seed)", "partition.client_80_20(clients, 0)"),
    (
        "federation-validation-seed",
        "self.train.chosen(np.flatnonzero(large)), seed)",
        "self.train.chosen(np.flatnonzero(large)), 0)",
    ),
    (
        "federation-features-from-all-rows",
        "dataset.rows.take(self.train_rows)",
        "dataset.rows",
    ),
    ("federation-single-samples-kept", "parts.sizes >= least)", "parts.sizes >= 1)"),
    ("federation-rows-of-two-clients", "minlength=total).max() > 1:", "minlength=total).max() > 2:"),
    (
        "federation-counts-test-rows",
        "partition.label_counts(self.train, self",
        "partition.label_counts(self.test, self",
    ),
    ("federation-names-of-others", "tuple(names[client] for client in kept)", "tuple(names[: len(kept)])"),
    ("federation-rows-not-mapped", "RowLists(rows[parts.rows]", "RowLists(parts.rows"),
    (
        "federation-natural-rows-not-mapped",
        "RowLists(rows[chosen.rows]",
        "RowLists(chosen.rows",
    ),
    ("federation-auto-is-always-own-split", 'else "official_matched"', 'else "client_80_20"'),
)
faults(
    "evaluation.py",
    "tests/test_evaluation.py",
    ("evaluation-mean-of-clients", "right.sum() / sizes.sum()", "np.nanmean(accuracy)"),
    ("evaluation-sample-deviation", "distance.std()", "distance.std(ddof=1)"),
    ("evaluation-best-tenth", "np.sort(accuracy[tested])[:", "-np.sort(-accuracy[tested])[:"),
    ("evaluation-tenth-rounded-down", "-(-len(distance) // 10)", "len(distance) // 10"),
    ("evaluation-untested-count", "tested = sizes > 0", "tested = sizes >= 0"),
    ("evaluation-loss-not-by-sample", "losses.sum() / sizes.sum()", "losses.mean()"),
    ("evaluation-local-loss-summed", "losses[tested] / sizes[tested]", "losses[tested]"),
    ("evaluation-ad-weighted", "ad=float(distance.mean())", "ad=float(1 - right.sum() / sizes.sum())"),
)
faults(
    "experiments/grid.py",
    "tests/experiments/test_grid.py tests/experiments/test_sweep.py "
    "-k grid or centralized or partitions or values or commas or vary or run_of",
    ("grid-centralized-on-natural-clients", 'and base.client is None and partitioner != "natural"', ""),
    (
        "grid-centralized-leaves-a-client-column",
        "base.client is None and partitioner",
        "partitioner",
        "a run with a client column is on natural clients in any case",
    ),
    ("grid-centralized-leaves-natural", 'base.client is None and partitioner != "natural"', "base.client is None"),
    ("grid-centralized-on-every-partition", "make_method(method).is_centralized", "False"),
    ("grid-centralized-fewest-clients", "most_clients = max(", "most_clients = min("),
    (
        "grid-seeds-vary-fast",
        '("dataset", "seed", "partition", "num_clients")',
        '("dataset", "partition", "num_clients", "seed")',
    ),
    ("grid-twice-is-allowed", "if len(set(parsed)) < len(parsed):", "if False:"),
    ("grid-truncates-numbers", "if plain(value) == float(value):", "if True:"),
    ("grid-partitions-added", "if any(key in _PARTITIONS for key in new):", "if False:"),
    ("grid-infeasible-cells-run", "not in INFEASIBLE", "is not INFEASIBLE"),
    ("grid-columns-split", 'and key not in ("text", "drop", "sep"):', ":"),
    ("grid-natural-clients-numbered", 'settings["num_clients"] = level = None', "pass"),
    ("grid-both-ways", 'if {"partitioner", "non_iid_param"} & set(values):', "if False:"),
)

# --------------------------------------------------------------------------------------------------------------- engine

faults(
    "engine/training.py",
    "tests/engine/test_training.py tests/engine/test_simulator.py -k not words and not texts",
    ("training-missing-rows-count", "jnp.where(mask, losses, 0).sum() / count", "losses.sum() / count"),
    (
        "training-last-batch-as-if-full",
        "jnp.where(mask, losses, 0).sum() / count",
        "jnp.where(mask, losses, 0).sum() / batch_size",
    ),
    ("training-last-batch-dropped", "jnp.where((last == 0) | alone, 0, 1)", "0"),
    ("training-every-epoch-the-first", "(epoch * job.size + batch * batch_size,)", "(batch * batch_size,)"),
    ("training-prior-not-in-the-loss", "cross_entropy(logits + job.log_prior, y)", "cross_entropy(logits, y)"),
    ("training-proximal-doubled", "g + job.proximal * (p - a)", "g + 2 * job.proximal * (p - a)"),
    ("training-proximal-away", "(p - a), gradient", "(a - p), gradient"),
    (
        "training-optimizer-not-kept",
        "(job.optimizer_state) if keep_optimizer else fresh",
        "(job.optimizer_state) if False else fresh",
    ),
    (
        "training-buffers-not-updated",
        "i + 1, parameters, updated, state",
        "i + 1, parameters, buffers, state",
    ),
    ("training-loss-of-batches", "loss_sum + loss * count, seen + count", "loss_sum + loss, seen + 1"),
    ("training-loss-of-rows-summed", "loss_sum / jnp.maximum(seen, 1)", "loss_sum"),
    (
        "training-empty-lanes-train",
        "jnp.where(job.size > 0, job.epochs * batches, 0)",
        "job.epochs * batches",
        "nobody looks at the model of an empty lane, and it is done no later than the others",
    ),
)
faults(
    "engine/adam.py",
    "tests/models/test_models.py -k adam",
    ("adam-other-epsilon", '"eps": 1e-8', '"eps": 1e-3'),
    ("adam-first-moment", "B1 * first[i] + REST1 * g", "B1 * first[i] + g"),
    ("adam-without-bias-correction", 'root / (1 - ADAM["b1"] ** steps)', "root"),
    ("adam-counts-from-zero", "steps = state.steps + 1", "steps = state.steps + 2"),
    ("adam-side-by-side-the-first-slope", "slope[j], eps[j]", "slope[0], eps[0]"),
)
faults(
    "engine/softmax_regression.py",
    "tests/engine/test_training.py tests/engine/test_simulator.py -k not words and not texts",
    ("softmax-prior-not-in-training", "same(scaled[c] + log_prior[c])", "same(scaled[c])"),
    ("softmax-trains-everything", "g * load(trains, i)", "g * same(ONE)"),
    ("softmax-gradient-not-scaled", "load(gradient, i) * load(factors, i)", "load(gradient, i) * same(ONE)"),
    ("softmax-model-not-scaled", "load(model, i) * load(factors, i)", "load(model, i) * same(ONE)"),
    ("softmax-prior-not-in-scores", "logits[c] = log_prior[i, c]", "logits[c] = np.float32(0)"),
    ("softmax-last-batch-as-if-full", "total * same(np.float32(n))", "total * same(np.float32(layout.rows))"),
    ("softmax-proximal-away", "load(model, i) - load(anchor, i)", "load(anchor, i) - load(model, i)"),
    ("softmax-proximal-never", "if proximal > 0:", "if proximal > 1:"),
    ("softmax-optimizer-starts-anew", "state[:] = given", "state[1:] = given[1:]"),
    ("softmax-steps-not-counted", "state[0] += np.float32(epochs", "state[0] += np.float32(0 * epochs"),
    ("softmax-epsilon-inside-the-root", "(root(v * unbias2) + same(EPS))", "root(v * unbias2 + same(EPS))"),
    ("softmax-every-epoch-the-first", "at = epoch * size + start + j", "at = start + j"),
    ("softmax-of-two-the-larger-twice", "exponential(smaller(load(p, j)", "exponential(larger(load(p, j)"),
    ("softmax-columns-of-the-first-rows", "x, f * layout.rows + j, layout.rows)", "x, f * layout.rows, layout.rows)"),
    ("softmax-labels-of-others", "own[i, width] = labels[row]", "own[i, width] = labels[i]"),
    ("softmax-rows-from-before-count", "counted = min(n - j, ROWS)", "counted = ROWS"),
    ("softmax-rest-of-a-batch-lost", "for j in range(whole, n):  # what", "for j in range(whole, whole):  # what"),
    (
        "softmax-largest-is-the-first",
        "logit if c == 0 else larger(largest, logit)",
        "logit if c == 0 else largest",
    ),
    (
        "softmax-loss-of-the-other-class",
        "where_equal(label, same(np.float32(c)), logit",
        "where_equal(label, same(ZERO), logit",
    ),
    ("softmax-loss-without-a-logarithm", "loss += log(product)", "loss += 0"),
    ("softmax-scores-shifted", "losses[i] = log(total) + logits[best] - logits[labels[row]]", "losses[i] = log(total)"),
    ("softmax-for-models-of-any-size", "and network.num_parameters <= MOST_PARAMETERS", ""),
    ("softmax-mean-loss-of-batches", "loss / max(size * epochs, 1)", "loss / max(epochs, 1)"),
)
faults(
    "engine/registers.py",
    "tests/engine/test_registers.py",
    ("registers-exp-of-the-least-not-zero", 'builder.select(builder.fcmp_ordered("<", x, least), least, x)', "x"),
    ("registers-exp-rough", "builder.fmul(_all(double, R3), r)", "builder.fmul(_all(double, 0.0), r)"),
    ("registers-halves-of-the-table", "builder.select(upper, high, low)", "builder.select(upper, low, high)"),
    ("registers-smaller-forgets-what-is-no-number", 'fcmp_ordered("<", a, b), a, b', 'fcmp_ordered("<", b, a), b, a'),
    ("registers-sums-of-other-columns", "[0, 4, 2, 6]", "[0, 2, 4, 6]"),
    (
        "registers-columns-of-other-rows",
        "range(first + i, first + sixteen, COPIED)",
        "range(first, first + sixteen, COPIED)",
    ),
)
faults(
    "engine/own_words.py",
    "tests/engine/test_training.py tests/engine/test_simulator.py -k word",
    (
        "own-words-first-rows-of-the-table",
        "own[: len(self._words[client])] = table[self._words[client]]",
        "own[: len(self._words[client])] = table[: len(self._words[client])]",
    ),
    ("own-words-put-back-at-the-start", "table[words] = trained", "table[: len(words)] = trained"),
    (
        "own-words-rest-not-trained",
        "np.concatenate([trained[: self._table.start], table.ravel(), trained[end:]])",
        "np.concatenate([trained[: self._table.start], table.ravel(), parameters[self._table.stop :]])",
    ),
    ("own-words-of-another-client", "place[own] = np.arange(len(own))", "place[words[0]] = np.arange(len(words[0]))"),
)
faults(
    "engine/scoring.py",
    "tests/engine/test_training.py tests/engine/test_simulator.py -k scores or equally_likely or same_loss",
    ("scoring-without-prior", "logits * scale[:, None]) + log_prior", "logits * scale[:, None])"),
    ("scoring-least-likely", "jnp.argmax(logits, axis=-1)", "jnp.argmin(logits, axis=-1)"),
)
faults(
    "engine/sizes.py",
    "tests/engine/test_training.py tests/engine/test_simulator.py -k few_rows or sizes or side_by_side or program",
    ("sizes-power-too-large", "1 << (number - 1).bit_length()", "1 << number.bit_length()"),
    ("sizes-three-quarters-too-small", "if length <= power * 3 // 4", "if length <= power"),
)
faults(
    "engine/simulator.py",
    "tests/engine/test_training.py tests/engine/test_simulator.py -k not words and not texts",
    (
        "simulator-plain-mean",
        "sizes[order.clients] if order.weights is None",
        "np.ones(len(order.clients)) if order.weights is None",
    ),
    ("simulator-anchor-is-always-the-start", "starts if order.anchors is None else list(order.anchors)", "starts"),
    ("simulator-prior-not-in-training", "if order.log_prior is None", "if True"),
    ("simulator-scores-by-position", "np.repeat(by_model, sizes", "np.repeat(np.arange(len(sizes)), sizes"),
    ("simulator-losses-summed", " / np.maximum(own.sizes, 1)", ""),
    (
        "simulator-losses-on-test-rows",
        "own = self._train_rows.chosen(clients)\n        _, losses",
        "own = self._test_rows.chosen(clients)\n        _, losses",
    ),
    (
        "simulator-evaluates-on-training-rows",
        'test_sizes[order.clients]\n        by_model = np.argsort(of_client, kind="stable")\n'
        "        rows = self._test_rows.chosen",
        'train_sizes[order.clients]\n        by_model = np.argsort(of_client, kind="stable")\n'
        "        rows = self._train_rows.chosen",
    ),
    ("simulator-ruled-out-loss-of-the-prior", "losses[np.isneginf(log_prior)[owner, labels]] = RULED_OUT_LOSS", "pass"),
    (
        "simulator-orders-not-booked",
        "            self._book(order)\n            self.ledger.trained",
        "            self.ledger.trained",
    ),
    ("simulator-left-out-not-told", "for client in order.clients[~reply.kept])", "for client in order.clients[:0])"),
    (
        "simulator-replies-in-another-order",
        "sums[i].add(j, model, loss)",
        "sums[i].add(len(sums[i].kept) - 1 - j, model, loss)",
    ),
)
faults(
    "engine/local.py",
    "tests/engine/test_training.py tests/engine/test_simulator.py -k not words and not texts",
    (
        "local-work-order-of-visits-same-for-all",
        "_fill_order(order[lane], rows[lane], self.local_epochs, generator(*stream))",
        "_fill_order(order[lane], rows[lane], self.local_epochs, generator(*stream[:3]))",
    ),
    (
        "local-work-pooled-without-buffers",
        "buffers=order.start.buffers[None]",
        "buffers=0 * order.start.buffers[None]",
    ),
    (
        "local-work-proximal-of-the-first",
        "proximal=np.array([task.proximal for task in padded], np.float32)",
        "proximal=np.full(lanes, tasks[0].proximal, np.float32)",
    ),
    (
        "local-work-priors-of-the-first-batch",
        "log_prior[owner[batch.begin : batch.end]]",
        "log_prior[owner[: len(own)]]",
    ),
    (
        "local-work-models-forget-a-batch",
        "for at in range(begin, end, size):",
        "for at in range(begin, end - size + 1, size):",
    ),
)
faults(
    "clustering.py",
    "tests/test_clustering.py -k not scikit_learn_estimator",
    ("clustering-largest-of-equals", "score > best + TIE", "score >= best"),
    ("clustering-rounding-decides", "score > best + TIE", "score > best"),
    (
        "clustering-not-standardized",
        "features /= self.scale_",
        "pass",
    ),
    ("clustering-guard-inclusive", "self.wpsi_ < self.chance", "self.wpsi_ > self.chance"),
    ("clustering-unclear-groups-kept", "best < self.min_clarity", "best < 0 * self.min_clarity"),
    ("clustering-clarity-of-one-mix", "mixes[labels])", "mixes[0 * labels])"),
    ("clustering-wpsi-unweighted", "np.average(self.psi_, weights=table.sum(axis=1))", "np.average(self.psi_)"),
    (
        "clustering-as-many-as-clients",
        "range(2, min(limit, clients - 1) + 1)",
        "range(2, min(limit, clients) + 1)",
        "K clusters of K clients have no silhouette, and are never chosen",
    ),
    ("clustering-one-too-few", "range(2, min(limit, clients - 1) + 1)", "range(2, min(limit, clients - 1))"),
    ("clustering-not-settled", "if (moved == labels).all():\n            break", "break"),
    (
        "clustering-constant-columns-divided",
        "np.where(scale > 1e-12 * largest, scale, 1.0)",
        "np.where(scale > 0, scale, 1.0)",
    ),
)

faults(
    "psi_space.py",
    "tests/test_clustering.py -k not scikit_learn_estimator",
    ("clustering-without-total-psi", "np.column_stack([totals, terms]), totals", "terms, totals"),
    ("clustering-signs-lost", "np.sign(excess) * np.sqrt(terms)", "np.sqrt(terms)"),
    ("clustering-roots-not-taken", "np.sign(excess) * np.sqrt(terms)", "np.sign(excess) * terms"),
    (
        "clustering-new-clients-by-themselves",
        "psi_terms(counts, smoothing, epsilon, reference)",
        "psi_terms(counts, smoothing, epsilon)",
    ),
    (
        "clustering-smoothing-ignored",
        "psi_terms(counts, smoothing, epsilon, reference)",
        'psi_terms(counts, "additive", epsilon, reference)',
    ),
)

faults(
    "kmeans.py",
    "tests/test_clustering.py -k not scikit_learn_estimator",
    (
        "kmeans-steps-unweighted",
        "means(points, weights, nearest[moved]",
        "means(points, np.ones(len(points)), nearest[moved]",
    ),
    ("kmeans-silhouette-unweighted", "scores @ self.weights / clients", "scores.mean(axis=1)"),
    ("kmeans-client-near-itself", "np.maximum(size - 1, 1)", "np.maximum(size, 1)"),
    (
        "kmeans-farthest-other-cluster",
        "between = sums.min(axis=1)",
        "between = np.where(np.isinf(sums), -1, sums).max(axis=1)",
    ),
    ("kmeans-lonely-clients-score", "where=(size > 1) & (larger > 0)", "where=larger > 0"),
    (
        "kmeans-worst-of-equal-inertia",
        "np.nan_to_num(scores, nan=-np.inf).argmax()",
        "np.nan_to_num(scores, nan=np.inf).argmin()",
    ),
)

# ----------------------------------------------------------------------------------------------------------------- runs

faults(
    "runs/history.py",
    "tests/runs/test_history.py",
    (
        "history-best-server",
        "np.mean([each.global_accuracy for each in server])",
        "np.max([each.global_accuracy for each in server])",
    ),
    ("history-server-sample-deviation", "np.nanstd(distance)", "np.nanstd(distance, ddof=1)"),
    (
        "history-server-mean-of-distances",
        "np.mean([each.local_accuracy for each in server], axis=0)",
        "server[0].local_accuracy",
    ),
    ("history-untested-clients-in-server-scores", "np.nanmean(distance)", "np.mean(distance)"),
    ("history-forgets-the-last-accuracy", 'history.last_accuracy = history.evaluated()["global_accuracy"][-1]', "pass"),
    ("history-tau-one-less", "int(clusters.max()) + 1", "int(clusters.max())"),
    (
        "history-left-out-in-no-round",
        "[(t, client) for client in ledger.left_out]",
        "[(0, client) for client in ledger.left_out]",
    ),
    ("history-losses-are-accuracies", '"loss": np.concatenate(self._loss)', '"loss": np.concatenate(self._accuracy)'),
    ("history-clients-not-in-turn", "np.tile(np.array(client_names", "np.repeat(np.array(client_names"),
    ("history-up-is-down", "ledger.bytes_up, ledger.bytes_down, tau", "ledger.bytes_down, ledger.bytes_up, tau"),
)
faults(
    "estimator.py",
    "tests/test_estimator.py",
    ("estimator-seed-ignored", "            seed=seed,", "            seed=0,"),
    ("estimator-clients-are-not-asked-for", '{"partitioner": "natural"}', '{"partitioner": "iid"}'),
    ("estimator-given-names-forgotten", "[given.get(name, name) for name in names]", "list(names)"),
    (
        "estimator-score-without-clients",
        "self.predict(X, clients=clients, counts=counts)",
        "self.predict(X, counts=counts)",
    ),
    ("estimator-label-named-like-a-column", "while name in taken:", "while False:"),
)
faults(
    "models/onnx_graph.py",
    "tests/models/test_onnx_graph.py -k not papers_models",
    ("onnx-pixels-not-scaled", "np.float32(255)", "np.float32(1)"),
    ("onnx-channels-first", "perm=[0, 2, 3, 1]", "perm=[0, 1, 2, 3]"),
    ("onnx-padding-counts", "Where(is_word, new_hidden, hidden)", "Where(is_word, new_hidden, new_hidden)"),
    ("onnx-epsilon", "epsilon=BATCH_NORM_EPSILON", "epsilon=1e-2"),
    ("onnx-kernel-turned", "(3, 2, 0, 1)", "(3, 2, 1, 0)"),
)
faults(
    "saved/onnx_export.py",
    "tests/saved/test_onnx_export.py",
    ("export-same-model-for-all", "self._name(deployment.models[model])", "self._name(deployment.models[0])"),
    ("export-no-prior", "np.maximum(deployment.log_prior, NEVER)", "np.zeros(shape)"),
    ("export-old-description-stays", "(folder / DESCRIPTION).unlink(missing_ok=True)", "pass"),
)
faults(
    "runs/course.py",
    "tests/runs/test_run_details.py tests/runs/test_run.py -k not killed",
    (
        "run-same-clients-every-round",
        "generator(self.config.seed, Stream.SAMPLING, t)",
        "generator(self.config.seed, Stream.SAMPLING)",
    ),
    (
        "run-same-clients-for-all-seeds",
        "generator(self.config.seed, Stream.SAMPLING, t)",
        "generator(0, Stream.SAMPLING, t)",
    ),
    ("run-charges-what-was-before", "self.server.take_ledger()  # drops", "pass  # drops"),
    ("run-last-round-not-evaluated", "or t == self.config.comm_rounds", ""),
    (
        "run-repeats-the-last-round",
        "self.done == self.config.comm_rounds",
        "self.done > self.config.comm_rounds",
    ),
    ("run-orders-of-round-0", "partial(self.server.serve, t=t)", "partial(self.server.serve, t=0)"),
)
faults(
    "runs/run.py",
    "tests/runs/test_run_details.py tests/runs/test_run.py -k not killed",
    ("run-recomputes-what-others-finished", "elif folder.finished:", "elif False:"),
    (
        "run-forgets-seconds",
        'seconds = dict(zip(arrays["seconds/of"].tolist(), arrays["seconds/spent"].tolist(), strict=True))',
        "seconds = {}",
    ),
)
faults(
    "runs/cell.py",
    "tests/runs/test_run_details.py tests/runs/test_run.py tests/experiments/test_sweep_details.py -k not killed",
    ("cell-validation-seed", "federation.for_validation(config.seed)", "federation.for_validation(0)"),
    ("cell-training-seed", "seed=config.seed,\n        workers", "seed=0,\n        workers"),
    ("cell-method-seed", "seed=config.seed,\n            before", "seed=0,\n            before"),
    ("cell-learning-rate-ignored", "lr=config.lr", "lr=0.001"),
    ("cell-optimizer-ignored", "optimizer=config.optimizer", 'optimizer="adam"'),
    ("cell-batch-size-ignored", "min(config.batch_size, len", "min(32, len"),
    ("cell-of-the-first-run", "self._cell is None or self._settings != config.cell", "self._cell is None"),
    (
        "cell-reused-for-another-seed",
        "self._settings != config.cell",
        'dict(self._settings or {}, seed=0) != config.cell | {"seed": 0}',
    ),
)
faults(
    "runs/sources.py",
    "tests/runs/test_sources.py tests/datasets/test_word_vectors.py -k not command_line",
    ("sources-content-not-kept", "    return replace(config, content=found)", "    return config"),
    ("sources-other-data-accepted", "if config.content not in (None, found):", "if False:"),
    ("sources-stale-data", "if self._dataset is None or key != self._key:", "if self._dataset is None:"),
    ("sources-edits-not-seen", "return _file_hash(path) if is_there(path) and path.is_file() else None", "return None"),
    ("sources-nothing-shared", "if self._dataset is None or key != self._key:", "if True:"),
    ("sources-word-vectors-ignored", "in (config.word_vectors, config.start_from) if", "in (config.start_from,) if"),
    ("sources-of-the-first-word-vectors", "(config.dataset, config.word_vectors, config", "(config.dataset, config"),
    ("sources-of-the-first-reading", "config.start_from, *config.reading.values())", "config.start_from)"),
    (
        "sources-names-in-any-folder",
        "data_folder(self.data_dir) / config.dataset",
        "data_folder(None) / config.dataset",
    ),
)
faults(
    "runs/config.py",
    "tests/runs/test_config.py tests/runs/test_run_details.py tests/runs/test_run.py "
    "tests/datasets/test_word_vectors.py tests/runs/test_sources.py "
    "-k cell or partition or default or whole_number or another_run or another_data_set or foreign or another_type "
    "or any_type or iid",
    ("config-cell-without-seed", 'if key != "agg_method"}', 'if key not in ("agg_method", "seed")}'),
    ("config-cell-with-method", 'if key != "agg_method"}', "}"),
    ("config-numbers-as-they-came", "object.__setattr__(self, each.name, value)", "pass"),
    ("config-true-is-one", "isinstance(value, Real) and not is_bool", "isinstance(value, Real)"),
    ("config-part-of-a-number", "isinstance(value, Integral) or float(value).is_integer()", "True"),
    ("config-level-of-iid-ignored", 'partitioner == "iid" and param is not None', "False"),
    ("config-content-ignored", "self.as_dict(), sort_keys", 'self.as_dict() | {"content": None}, sort_keys'),
    (
        "config-method-not-canonical",
        "agg_method=method_spec(make_method(self.agg_method))",
        "agg_method=self.agg_method",
    ),
    ("config-any-format", 'values.get("format") not in READABLE', 'values.get("format") is None'),
)
faults(
    "runs/store.py",
    "tests/runs/test_run_details.py tests/runs/test_run.py tests/methods/test_runs.py "
    "-k not killed and (run or fresh or saved or best or checkpoint)",
    (
        "results-fresh-keeps-the-checkpoint",
        "and path.is_file()]",
        'and path.name != "checkpoint.npz"]',
    ),
    ("store-strangers-files-go-too", "path.suffix in SUFFIXES and ", ""),
    (
        "results-last-of-equals-is-best",
        'int(np.argmax(evaluated["global_accuracy"]))',
        'len(evaluated["round"]) - 1 - int(np.argmax(evaluated["global_accuracy"][::-1]))',
    ),
    ("results-best-is-last", "column[best].item()", "column[-1].item()"),
    ("results-parts-of-the-state-lost", "for i, part in enumerate(state.parts):", "for i, part in enumerate(()):"),
    (
        "results-memory-lost",
        'packed |= {f"{prefix}/memory/{key}": value for key, value in state.memory.items()}',
        "pass",
    ),
    ("results-other-settings-accepted", "elif folder.config().as_dict() != config.as_dict():", "elif False:"),
    ("results-bytes-of-the-last-round", 'int(rounds["bytes_up"].sum())', 'int(rounds["bytes_up"][-1])'),
)
faults(
    "runs/store.py",
    "tests/runs/test_kills.py tests/test_files.py -k fresh_start or lock",
    ("store-summary-goes-last", 'path.name != "summary.json", path.name)', "path.name)"),
    ("store-configuration-goes-first", '(path.name == "config.json", ', '(path.name != "config.json", '),
    ("store-lock-not-taken", "lock.acquire(timeout=patience, poll_interval=0.01)", "pass"),
    (
        "store-lock-file-goes-away",
        "            lock.release()\n",
        "            lock.release()\n            self._lock_file.unlink(missing_ok=True)\n",
    ),
)
faults(
    "runs/store.py",
    "tests/runs/test_run_details.py -k half_written",
    ("store-left-overs-stay", "            self._remove_left_overs()\n", ""),
)
faults(
    "runs/store.py",
    "tests/report/test_tables.py -k constant",
    ("store-test-labels-are-those-of-training", '("count_", "test_")]', '("count_", "count_")]'),
)
faults(
    "files.py",
    "tests/test_files.py",
    ("files-permissions-not-kept", "unfinished.chmod(stat.S_IMODE(mode))", "pass"),
    ("files-link-replaced", "target = Path(os.path.realpath(path)) if path.is_symlink() else path", "target = path"),
    ("files-names-of-a-group-not-kept", "for folder in folders:", "for folder in ():"),
    ("files-names-of-a-group-kept-one-by-one", "before = _WAITING.set(folders)", "before = _WAITING.set(None)"),
    ("files-pipe-replaced", "(not stat.S_ISREG(mode) or str(path", "(str(path"),
    ("files-standard-output-replaced", " or str(path.absolute()).startswith(_OPEN_FILES)", ""),
    ("files-in-memory-appended-to", '_OPEN_FILES = ("/dev/stdout", ', '_OPEN_FILES = ("/dev", '),
    ("files-not-kept", "if not _FOR_NOW.get():", "if False:"),
    ("files-for-now-are-kept", "if not _FOR_NOW.get():", "if True:"),
    ("files-half-a-file-stays", "unfinished.unlink(missing_ok=True)\n            raise", "raise"),
    ("files-any-folder-is-writable", "if not target.parent.is_dir():", "if False:"),
    ("files-written-in-place", 'unfinished.open("xb")', 'target.open("wb")'),
    ("files-standard-output-overwritten", '"ab" if target.is_file() else "wb"', '"wb"'),
)
faults(
    "experiments/workers.py",
    "tests/experiments/test_sweep_details.py tests/experiments/test_sweep.py -k not killed and not ray",
    ("sweep-locked-is-failed", 'return Outcome("locked", str(error))', 'return Outcome("failed", str(error))'),
    (
        "sweep-failed-is-locked",
        'except ClustPSIError as error:\n        return Outcome("failed"',
        'except ClustPSIError as error:\n        return Outcome("locked"',
    ),
    ("sweep-data-elsewhere", "Sources(self._data_dir)", "Sources(None)"),
    ("sweep-speaks-of-the-next-run-too-soon", "worker.wait()  # nothing is said", "pass  # nothing is said"),
    ("sweep-reports-within-rounds", "and progress.part == 0:", ":"),
    ("sweep-reports-every-round", "if time.monotonic() - reported > REPORTS:", "if True:"),
    ("sweep-searches-again", "self._infeasible[0] == config.cell:", "False:"),
    ("sweep-infeasible-for-all-cells", "self._infeasible[0] == config.cell:", "True:"),
)
faults(
    "experiments/sweep.py",
    "tests/experiments/test_sweep_details.py tests/experiments/test_sweep.py -k not killed and not ray",
    ("sweep-computed-counts-failures", 'self.computed += event.status == "finished"', "self.computed += 1"),
    ("sweep-one-attempt", "ATTEMPTS = 2", "ATTEMPTS = 1"),
    ("sweep-infeasible-is-not-remembered", "infeasible.record(self.store, config, outcome.reason)", "pass"),
    ("sweep-notes-of-failures-stay", "note.unlink(missing_ok=True)", "pass"),
    ("sweep-pace-of-all-rounds", "/ config.comm_rounds\n", "\n"),
    (
        "sweep-workers-hop-between-cells",
        "cell = cells[worker] if cells.get(worker) in self._pending else next(free, fullest)",
        "cell = next(free, fullest)",
        "cells are opened in their order, so whatever has runs left before a worker's own is another's",
    ),
    ("sweep-long-runs-are-given-ahead", "now.comm_rounds < SHORT", "now.comm_rounds <= SHORT"),
    ("sweep-nothing-is-given-ahead", "now.comm_rounds < SHORT", "now.comm_rounds < 0"),
    ("sweep-next-run-is-lost-with-its-worker", "self._pending.setdefault(_cell(ahead), []).insert(0, ahead)", "pass"),
    ("sweep-cells-between-runs-are-free", "if other != worker}", "if other in self.running}"),
)

# ------------------------------------------------------------------------------------------- tables of the user's own

faults(
    "datasets/table_files.py",
    "tests/datasets/test_table_files.py",
    ("table-files-commas-only", "for candidate in SEPARATORS:", "for candidate in SEPARATORS[:1]:"),
    ("table-files-fewest-cells", "if (fitting, alike, width) > best:", "if (fitting, alike, -width) > best:"),
    ("table-files-decimal-comma-in-spite-of-points", "if commas and not proof:", "if commas:"),
    ("table-files-no-decimal-comma", 'return ",", "thousands", []', 'return ".", "thousands", []'),
    ("table-files-spaces-kept", '"skipinitialspace": True,', ""),
    ("table-files-arrow-unchecked", "table.validate(full=True)", "table.validate()"),
    (
        "table-files-zip-of-any-size",
        "if inside[0].file_size > limit:",
        "if False:",
        "unpacking finds it as well, later",
    ),
    ("table-files-traps-parsed", "while whole and isinstance(file.raw, Bounded) and file.read(PIECE):", "while False:"),
    ("table-files-clutter-counts", "and not _is_clutter(each.filename)", ""),
)
faults(
    "datasets/files.py",
    "tests/datasets/test_table_files.py tests/datasets/test_download.py",
    ("files-unpacked-without-bound", "if self._left < 0:", "if False:"),
    ("files-header-twice-accepted", "count > 1]", "count > 9]"),
)
faults(
    "datasets/labels.py",
    "tests/datasets/test_tables.py tests/test_diagnosis.py",
    ("labels-blank-is-a-label", "if (name := name_of(found[place])).strip():", "if name := name_of(found[place]):"),
    ("labels-sorted-as-texts", "key=found.__getitem__)", "key=lambda place: str(found[place]))"),
    (
        "labels-rows-counted-without-the-omitted",
        "row = int(values.index[place]) + 1",
        "row = place + 1",
    ),
    ("labels-rare-is-at-most", "minlength=len(names)) < least", "minlength=len(names)) <= least"),
    ("labels-same-column-twice", "if len(set(named)) < len(named):", "if False:"),
)
faults(
    "datasets/counts.py",
    "tests/test_diagnosis.py",
    ("counts-clients-twice", "if repeated.any():", "if False:"),
    ("counts-ascending-is-not-enough", "(ascending and len(numbers) >= MANY)", "False"),
    ("counts-always-clients", "(ascending and len(numbers) >= MANY)", "True"),
    ("counts-by-name-only", "if called or np.count_nonzero(sums) >= MANY:", "if called:"),
    ("counts-any-sum-is-a-total", "if called or np.count_nonzero(sums) >= MANY:", "if True:"),
    ("counts-total-rows-stay", "if row is not None:", "if False:"),
    ("counts-index-forgotten", "is_named = index is not None and", "is_named = False and"),
)
faults(
    "features/written.py",
    "tests/features/test_written.py",
    ("written-codes-are-numbers", "is_code = any(", "is_code = False and any("),
    ("written-few-values-and-a-mark", "FEW_VALUES = 20", "FEW_VALUES = 0"),
    ("written-marks-at-any-share", "MOST_OTHER_SHARE = 0.05", "MOST_OTHER_SHARE = 0.5"),
    ("written-many-marks", "MOST_OTHER_MARKS = 3", "MOST_OTHER_MARKS = 30"),
    ("written-day-or-month", "if day_first == any(", "if False and day_first == any("),
    ("written-afternoon-is-morning", '(12 if match["half"] in "Pp" else 0)', "0"),
    ("written-zones-ignored", 'minutes -= -ahead if zone[0] == "-" else ahead', "pass"),
    ("written-mixed-money", "len(affixes) > 1", "False"),
)
faults(
    "features/exact.py",
    "tests/features/test_features.py",
    (
        "exact-sums-overflow",
        "(int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum())",
        "int(values.sum())",
    ),
    ("exact-cross-terms-once", "<< HALF + 1)", "<< HALF)"),
    ("exact-deviation-of-a-sample", "number * number << 2 * UNIT", "number * max(number - 1, 1) << 2 * UNIT"),
    ("exact-tiny-numbers-lost", "else value >> -shift", "else 0"),
    ("exact-root-of-an-odd-power", "shift += shift % 2", "pass"),
)
faults(
    "features/quantiles.py",
    "tests/features/test_features.py",
    ("quantiles-ranges-and-values-mixed", "else (self.rounded(), other.rounded())", "else (self, other)"),
    ("quantiles-merged-without-bound", "is_exact=is_exact).bounded()", "is_exact=is_exact)"),
    ("quantiles-lower-ends", "(bits >> lost << lost) | 1 << lost - 1", "bits >> lost << lost"),
    ("quantiles-of-different-values", "np.bincount(place, counts, len(different))", "np.bincount(place)"),
    ("quantiles-lower-neighbour", "np.where(part < 0.5, low + gap * part, high - gap * (1 - part))", "low"),
    (
        "quantiles-rounded-their-own-way",
        "np.where(part < 0.5, low + gap * part, high - gap * (1 - part))",
        "low + gap * part",
    ),
)
faults(
    "features/kinds.py",
    "tests/features/test_features.py tests/datasets/test_texts.py",
    ("kinds-last-counts", "counts.get(name, 0) + count", "count"),
    ("kinds-ties-by-alphabet", "self.ranks.get(name, -1), name is not None", "name is not None"),
    ("kinds-ties-by-first-come", ", self.ranks.get(name, -1), name is not None, name", ", self.ranks.get(name, -1)"),
    ("kinds-ties-cut", "if count >= least)", "if count > least)"),
    ("kinds-missing-is-no-kind", "codes.astype(np.int64) + 1)", "codes[codes >= 0].astype(np.int64) + 1)"),
    ("kinds-rarest", "return -self.counts[name]", "return self.counts[name]"),
)
faults(
    "features/table.py",
    "tests/features/test_features.py tests/datasets/test_tables.py",
    ("features-gaps-of-one-client", "self.gaps + other.gaps", "self.gaps"),
    ("features-known-of-one-client", "self.known + other.known", "self.known"),
    ("features-gaps-not-marked", "self.marks_gaps and each.gaps > 0", "False"),
    ("features-every-column-marked", "self.marks_gaps and each.gaps > 0", "self.marks_gaps"),
    ("features-gaps-in-the-mean", "known = values[~np.isnan(values)]", "known = np.nan_to_num(values)"),
    ("features-gap-far-from-the-centre", "copy=False, nan=0.0)", "copy=False, nan=-1.0)"),
    ("features-constants-divided", "return centre, spread or 1.0", "return centre, spread or 1e-9"),
    ("features-new-kinds-are-the-first", "place.get(name, others)", "place.get(name, 0)"),
    ("features-most-kinds-ignored", "most_frequent(self.most_kinds)", "most_frequent(50)"),
    (
        "features-categories-of-one-client",
        "(one.merge(two) for one, two in zip(self.categories,",
        "(one for one, two in zip(self.categories,",
    ),
)
faults(
    "features/text.py",
    "tests/features/test_features.py tests/datasets/test_texts.py",
    ("text-words-of-one-client", "type(self)(self.words.merge(other.words))", "self"),
    ("text-ranks-ignored", "is_ranked=rows.is_ranked)", "is_ranked=False)"),
    ("text-word-before", "Frequencies.of(rows.ids - 1,", "Frequencies.of(np.maximum(rows.ids - 2, 0),"),
    ("text-last-batch-of-texts", "part = slice(first, first + BATCH_ROWS)", "part = slice(0, BATCH_ROWS)"),
    ("text-unknown-is-padding", "tokens_of.get(word, UNKNOWN)", "tokens_of.get(word, PADDING)"),
    ("text-words-of-others", "self.starts[:-1][rows] - starts[:-1]", "self.starts[: len(rows)] - starts[:-1]"),
    ("text-any-number-of-words", "most_frequent(self.vocabulary)", "most_frequent(10**9)"),
)
faults(
    "datasets/cache.py",
    "tests/datasets/test_cache.py",
    ("cache-manifest-of-fewer-arrays", "kept and kept == set(checksums)", "True"),
)
faults(
    "datasets/download.py",
    "tests/datasets/test_download.py",
    ("download-any-state", "if not state.isdecimal() or int(state) != int(code):", "if False:"),
)

faults(
    "saved/file.py",
    "tests/saved/test_exact.py tests/saved/test_file.py",
    ("saved-log-prior-left-out", '"log_prior": deployment.log_prior,', '"log_prior": None,'),
    ("saved-models-of-others", "places[deployment.of_client]", "places[0 * deployment.of_client]"),
    ("saved-newer-format-read", "if number != FORMAT:", "if False:"),
    ("saved-other-network-used", "if sizes != {", "if False and sizes != {"),
)
faults(
    "orders/newcomers.py",
    "tests/orders/test_newcomers.py",
    ("newcomers-without-prior", "log_shares(counts + self.prior_counts[of_client])", "log_shares(counts)"),
    ("newcomers-prior-of-the-first-cluster", "self.prior_counts[of_client])", "self.prior_counts[0 * of_client])"),
    (
        "newcomers-unknown-counts-stay-zero",
        "np.where(counts.any(axis=1, keepdims=True), counts, ",
        "np.where(True, counts, ",
    ),
)
faults(
    "runs/going_on.py",
    "tests/runs/test_going_on.py",
    ("going-on-features-fitted-anew", "fitted_before=saved.features", "fitted_before=None"),
    ("going-on-any-partition-is-the-same", 'if config.partitioner == "natural" or is_same:', "if True:"),
    ("going-on-classes-not-matched", "np.int32)[dataset.labels]", "np.int32)[:0].sum() + dataset.labels"),
    ("going-on-of-another-network", "if config.model not in (None, saved.architecture.model):", "if False:"),
)


# -------------------------------------------------------------------------------------------------------------- report

faults(
    "experiments/advice.py",
    "tests/experiments/test_advice.py",
    ("advice-judged-on-what-it-knows", 'fit(cells[cells["dataset"] != name], names)', "fit(cells, names)"),
    ("advice-below-and-above", "values[self.measure] < self.limit", "values[self.measure] > self.limit"),
    ("advice-helps-always", "return better_loss and all(", "return True or all("),
    ("advice-datasets-by-size", "1 / sizes / cells", "1 / sizes**0 / cells"),
)
faults(
    "report/charts.py",
    "tests/report/test_charts.py",
    ("charts-markup-in-names", "return escape(shown, quote=False)", "return shown"),
    ("charts-names-share-a-place", 'shown if again == 1 else f"{shown} [{again}]"', "shown"),
    ("charts-counts-overflow", "if most < 256**size", "if most <= 256**size"),
    ("charts-sign-of-excess", "np.sign(excess) * parts", "parts"),
)
faults(
    "report/cells.py",
    "tests/report/test_report.py -k worst or answer or centralized",
    ("report-best-is-worst", "return max(self.methods, key=", "return min(self.methods, key="),
    ("report-worst-is-best", "np.argsort(own, kind=", "np.argsort(-own, kind="),
    ("report-validation-counts", '~runs["validation"].astype("boolean").fillna(False)', 'runs["dataset"].notna()'),
)
faults(
    "report/answers.py",
    "tests/report/test_report.py -k answer or constant or identical",
    ("report-praises-below-constant", "and mean <= constant:", "and mean < 0:"),
    ("report-chance-is-sure", 'of.get("not shown", [])', "[]"),
)
faults(
    "orders/answers.py",
    "tests/nodes/test_faults.py",
    ("nodes-negative-counts-taken", "if (values < 0).any():", "if False:"),
    ("nodes-large-counts-taken", "if values.sum(dtype=np.float64) > LARGEST:", "if False:"),
    ("nodes-update-of-another-size-taken", "or vector.shape != (size,):", "or False:"),
    ("nodes-lines-of-another-length-taken", "if line.shape != shape:", "if False:"),
)
faults(
    "orders/parts.py",
    "tests/nodes/test_codec.py",
    ("parts-first-client-for-all", "return values[position : position + 1]", "return values[:1]"),
    ("parts-model-of-another-client", "(value[getattr(order, role.index)[position]],)", "(value[0],)"),
    ("parts-what-the-server-knows-travels", 'if role.name == "server":', "if False:"),
)
faults(
    "nodes/server.py",
    "tests/nodes/test_faults.py tests/flower/test_secret.py",
    ("nodes-without-examples-taken", "answers[client].examples < 1:", "False:"),
    ("nodes-too-few-answers-are-enough", "if asked - len(reasons) >= needed or not asked:", "if True:"),
    ("nodes-other-versions-taken", "or answer.speaker.version != speaker().version:", "or False:"),
    ("nodes-waited-for-every-time", "if not pending or (not waited_for and answers):", "if not pending:"),
    ("nodes-with-another-secret-come-back", "description.seal != before[0].seal", "False"),
    ("nodes-that-come-back-are-strangers", "if member.description.name == description.name]", "if False]"),
)
faults(
    "nodes/node.py",
    "tests/nodes/test_agreement_with_simulator.py -k fedavg or clust_psi_pfl",
    ("nodes-all-have-one-number", '"numbers": (terms.number,)', '"numbers": (0,)'),
)
faults(
    "nodes/codec.py",
    "tests/nodes/test_codec.py",
    ("codec-everything-travels-again", "if name not in known})", "if True})"),
    ("codec-nothing-is-forgotten", "while len(self._arrays) > MOST_KEPT:", "while False:"),
)
faults(
    "nodes/agreement.py",
    "tests/nodes/test_data.py",
    ("agreement-classes-as-text", "return lambda each: (numbers[of(each)], of(each))", "return of"),
    ("agreement-any-column-will-do", "if column not in node.columns:", "if False:"),
    ("agreement-names-twice", "if names.count(name) > 1:", "if False:"),
)
faults(
    "privacy.py",
    "tests/test_privacy.py",
    (
        "privacy-half-the-noise",
        "rng.geometric(chance, shape) - rng.geometric(chance, shape)",
        "rng.geometric(chance, shape)",
    ),
    ("privacy-budget-spent-twice", "budget = epsilon if alone else epsilon / 2", "budget = epsilon"),
    ("privacy-rare-names-told", "if count >= least})\n\n\ndef _words", "if True})\n\n\ndef _words"),
    ("privacy-new-noise-each-time", "if secret is None:\n        return", "if True:\n        return"),
    ("privacy-small-counts-told", "counts >= (min_count or 1)", "counts >= 1"),
)
faults(
    "explorer/server.py",
    "tests/explorer/test_server.py",
    ("explorer-any-host", "if request.host not in hosts:", "if False:"),
    ("explorer-any-origin", "not in (None, *origins):", "in ():"),
    ("explorer-no-key", 'if not _same(request.cookies.get(cookie, ""), key):', "if False:"),
)
faults(
    "explorer/settings.py",
    "tests/explorer/test_settings.py",
    ("explorer-any-file", "and not _TABLE.fullmatch(self.dataset):", "and False:"),
    ("explorer-other-clusters", "if spec.name == ClustPSIPFL.name else self", "if False else self"),
)
faults(
    "explorer/view.py",
    "tests/explorer/test_view.py -k screen or measures",
    ("explorer-seed-of-clusters", "random_state=settings.seed", "random_state=0"),
)
