"""prior_pfl: one model, trained and used with each client's own label prior, and calibrated on held-out rows.

This project's own method (docs/prior_pfl.md).  Under label skew clients agree in what a class looks like, P(x | y),
and differ only in how often they see it, P_k(y); so the best classifier of a client is the shared one, weighted with
its own prior, and the label counts that Clust-PSI-PFL collects are that prior.  It combines known ideas:

- a softmax shifted by the log prior, so that the model itself need not learn it: A. K. Menon et al., Long-tail learning
  via logit adjustment, ICLR 2021; J. Ren et al., Balanced meta-softmax, NeurIPS 2020;
- the same per client, with absent classes held back: J. Zhang et al., FedLC, ICML 2022; X.-C. Li and D.-C. Zhan, FedRS,
  KDD 2021;
- another prior at inference: M. Saerens, P. Latinne and C. Decaestecker, Adjusting the outputs of a classifier to new a
  priori probabilities, Neural Computation 14(1), 2002;
- a prior that clients have in common: T. P. Minka, Estimating a Dirichlet distribution, 2000;
- averaging a parameter over those who moved it: Y. Ding et al., FedSubAvg, NeurIPS 2022; momentum on the server:
  T.-M. H. Hsu, H. Qi and M. Brown, FedAvgM, 2019;
- temperature scaling: C. Guo et al., On calibration of modern neural networks, ICML 2017;
- models between a shared and a fine-tuned one: Y. Deng et al., APFL, 2020; M. Wortsman et al., WiSE-FT, CVPR 2022.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from clustpsi.methods.base import Setting, State, option
from clustpsi.methods.fedavgm import FedAvgM
from clustpsi.methods.label_prior import fit_dirichlet, impurity, label_mix
from clustpsi.methods.readings import AS_TRAINED, PRIOR_ALONE, READINGS, Reading, chosen, clearly_better, shifts
from clustpsi.orders import Deployment, HeldOutLosses, HoldOut, LabelCounts, Model, Newcomers, Train, Work, log_shares

# Of the table of calibrations: what was chosen, and the loss of all held-out rows of those concerned under it.
COLUMNS = ("round", "model_of_round", "scale", "mix", "personal", "rounds_alone", "loss")
# How far a client's model may go from the shared one towards its own, if it goes at all.
PERSONAL_SHARES = (0.5, 1.0)


@dataclass(frozen=True)
class PriorPFL(FedAvgM):
    """State: the shared model, then personal ones if there are any; a part with the best model of earlier rounds.

    Memory: counts (of labels), kept (the same without held-out rows) and what they have in common; since the last
    calibration its reading, the clients' losses and whose round's model it is; where clients have personal models,
    model_of_client, personal_reading and personal_losses.
    """

    name: ClassVar[str] = "prior_pfl"
    title: ClassVar[str] = "prior-PFL"
    family: ClassVar[str] = "label prior"
    idea: ClassVar[str] = "one model, trained and used with each client's own label prior, calibrated on held-out rows"
    paper: ClassVar[str] = "this project"

    before: ClassVar[Mapping[str, Any]] = {
        "average_over": "all",
        "momentum": 0.0,
        "prior_strength": 0.5,
        "hold_out": 0.0,
    }
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"plain": before}

    average_over: str = option(
        "movers",
        "average each parameter over all clients that trained, or those that changed it",
        choices=("all", "movers"),
    )
    prior_strength: float | None = option(
        None,
        "a, how many samples of the federation's label mix are added to a client's own counts (default: estimated from "
        "the clients' counts)",
        least=0,
    )
    hold_out: float = option(
        0.05, "share of a client's training rows that it holds out to choose by; 0 switches all choices off", least=0,
        most=0.5,
    )  # fmt: skip
    hold_out_rows: int = option(50_000, "most held-out rows of all clients together (each may hold out one)", least=1)
    calibrate: bool = option(True, "choose by held-out losses how much the model's logits count next to the prior")
    calibrate_every: int = option(10, "rounds between two calibrations; the last round always is one", least=1)
    earlier: bool = option(True, "use the model of an earlier calibration if it is clearly better")
    personal: bool = option(True, "fine-tune the last model for each client, as long as that is clearly better")
    evidence: float = option(2.0, "standard errors by which a held-out gain must exceed 0 to be clear", least=0)

    # ------------------------------------------------------------------------------------------------- training

    def prepare(self, setting: Setting, model: Model) -> Work[State]:
        state = yield from super().prepare(setting, model)
        counts = kept = yield from self.label_counts(setting)
        if self.hold_out > 0:
            kept = yield LabelCounts(setting.clients, self._held_out(setting))
            # Who did not answer this time is taken at what it said before.
            kept = np.where(kept.sum(axis=1, keepdims=True) == 0, counts, kept)
        memory = {
            **state.memory,
            "counts": counts,
            "kept": kept,
            "in_common": self._in_common(counts),
            "kept_in_common": self._in_common(kept),
            # A model that nobody can train has nothing to say.
            "reading": np.array(AS_TRAINED if self.hold_out == 0 or impurity(kept).any() else PRIOR_ALONE),
        }
        return replace(state, memory=memory)

    def select(self, setting: Setting, state: State, rng: np.random.Generator) -> Work[NDArray[np.int64]]:
        """FedAvg's choice without clients of a single class, who cannot teach to tell classes apart."""
        drawn = yield from super().select(setting, state, rng)
        return drawn[impurity(self._kept(setting, state, drawn)) > 0]

    def local(self, setting: Setting, state: State, chosen: NDArray[np.int64]) -> Train:
        counts = self._kept(setting, state, chosen)
        return replace(
            super().local(setting, state, chosen),
            weights=counts.sum(axis=1) * impurity(counts),
            log_prior=log_shares(counts),
            hold_out=self._held_out(setting),
        )

    def round(self, setting: Setting, state: State, t: int, rng: np.random.Generator) -> Work[State]:
        state = yield from super().round(setting, state, t, rng)
        last = t == setting.num_rounds
        due = last or t % self.calibrate_every == 0
        if due and self.hold_out > 0 and impurity(state.memory["kept"]).any():
            state = yield from self._calibrated(setting, state, t)
            if last and self.personal:
                state = yield from self._personalized(setting, state)
        return state

    # ---------------------------------------------------------------------------------------- held-out evidence

    def _calibrated(self, setting: Setting, state: State, t: int) -> Work[State]:
        """Choose the reading and, in the last round, between this model and the best one of earlier calibrations."""
        losses = yield self._losses(setting, state, setting.clients, state.models[0])
        best = chosen(losses, self.evidence)
        found = {"reading": np.array(READINGS[best]), "losses": losses[:, best], "model_of_round": np.array(t)}
        taken = now = State(state.models, found)
        parts: tuple[State, ...] = ()
        if self.earlier:
            before = state.parts[0] if state.parts else now
            if t < setting.num_rounds:
                worse = np.nansum(now.memory["losses"] - before.memory["losses"]) > 0
                parts = (before if worse else now,)
            elif clearly_better(before.memory["losses"], now.memory["losses"], self.evidence):
                taken = before
        state = replace(state, models=taken.models, memory={**state.memory, **taken.memory}, parts=parts)
        return self._noted(state, t, Reading(*state.memory["reading"].tolist()), state.memory["losses"])

    def _personalized(self, setting: Setting, state: State) -> Work[State]:
        """Give clients models of their own, where held-out rows clearly say so.

        All of them go the same share of the way from the shared model to the one that they fine-tune.  Where the whole
        way is clearly best, they train on alone, each time for as long again, while that is clearly better and for no
        more rounds than the run has: where clients have nothing in common, this ends in local training.
        """
        shared = state.models[0]
        able = np.flatnonzero(impurity(state.memory["kept"]) > 0)
        order = replace(
            self.local(setting, state, setting.clients[able]),
            average_over="all",
            each=True,
            holds_start=state.memory["model_of_round"] == setting.num_rounds,  # since the calibration
            keeps_model=True,
            purpose="personal",
        )
        own = yield from _trained(order, [shared] * len(able))
        rounds = 1
        for share in PERSONAL_SHARES:
            mixed = [between(shared, model, share) for model in own]
            better = yield from self._with_personal(setting, state, able, mixed, share, rounds)
            state = better or state
        while better is not None and 2 * rounds <= setting.num_rounds:
            for _ in range(rounds):
                own = yield from _trained(replace(order, start=own, holds_start=True), own)
            rounds *= 2
            better = yield from self._with_personal(setting, state, able, own, 1.0, rounds)
            state = better or state
        return state

    def _with_personal(
        self, setting: Setting, state: State, able: NDArray[np.int64], models: list[Model], share: float, rounds: int
    ) -> Work[State | None]:
        """The state with these models of the able clients; None if they are not clearly better than what there is."""
        order = self._losses(setting, state, setting.clients[able], state.models[0])
        losses = yield replace(order, model=models, holds_model=True, purpose="personal")
        best = chosen(losses, self.evidence)
        least = state.memory.get("personal_losses", state.memory["losses"][able])
        if not clearly_better(losses[:, best], least, self.evidence):
            return None
        model_of_client = np.zeros(len(setting.clients), np.int64)
        model_of_client[able] = 1 + np.arange(len(able))
        memory = {
            **state.memory,
            "model_of_client": model_of_client,
            "personal_reading": np.array(READINGS[best]),
            "personal_losses": losses[:, best],
        }
        state = replace(state, models=(state.models[0], *models), memory=memory)
        return self._noted(state, setting.num_rounds, READINGS[best], losses[:, best], share, rounds)

    @staticmethod
    def _noted(
        state: State, t: int, reading: Reading, losses: NDArray[np.float64], share: float = 0.0, rounds: int = 0
    ) -> State:
        """The state with a line more in the table of calibrations."""
        line = (t, float(state.memory["model_of_round"]), *reading, share, rounds, float(np.nansum(losses)))
        lines = np.vstack([state.memory.get("calibrations", np.zeros((0, len(COLUMNS)))), line])
        return replace(state, memory={**state.memory, "calibrations": lines})

    def tables(self, setting: Setting, state: State) -> dict[str, dict[str, NDArray[Any]]]:
        if "calibrations" not in state.memory:
            return {}
        columns = dict(zip(COLUMNS, state.memory["calibrations"].T, strict=True))
        whole = ("round", "model_of_round", "rounds_alone")
        return {"calibration": {key: each.astype(np.int64) if key in whole else each for key, each in columns.items()}}

    def _losses(self, setting: Setting, state: State, clients: NDArray[np.int64], model: Model) -> HeldOutLosses:
        """What the clients' held-out rows lose under all readings, or under the only one without a calibration."""
        kept = state.memory["kept"]
        readings = READINGS if self.calibrate else (AS_TRAINED,)
        held_out = self._held_out(setting)
        assert held_out is not None
        return HeldOutLosses(
            clients,
            model,
            held_out,
            log_shares(kept + state.memory["kept_in_common"])[np.searchsorted(setting.clients, clients)],
            np.array([reading.scale for reading in readings]),
            shifts(readings, label_mix(kept)),
        )

    def _held_out(self, setting: Setting) -> HoldOut | None:
        """The same rows of a client in every order of a run."""
        if self.hold_out == 0:
            return None
        return HoldOut(self.hold_out, max(1, self.hold_out_rows // len(setting.clients)))

    # ---------------------------------------------------------------------------------------------------- in use

    def deploy(self, setting: Setting, state: State) -> Deployment:
        memory, counts = state.memory, state.memory["counts"]
        log_prior = log_shares(counts + memory["in_common"])
        model_of_client = memory.get("model_of_client", np.zeros(len(counts), np.int64))
        readings = [Reading(*memory["reading"].tolist())] * len(counts)
        if "personal_reading" in memory:
            own = Reading(*memory["personal_reading"].tolist())
            readings = [own if model else shared for model, shared in zip(model_of_client, readings, strict=True)]
        if all(reading == AS_TRAINED for reading in readings):
            return Deployment(state.models, model_of_client, log_prior)
        log_prior += shifts(tuple(readings), label_mix(counts))
        return Deployment(state.models, model_of_client, log_prior, np.array([reading.scale for reading in readings]))

    def newcomers(self, setting: Setting, state: State, counts: NDArray[np.int64]) -> Newcomers:
        """The shared model, read as the clients without a personal one do, with the client's own label prior."""
        memory = state.memory
        shared = Newcomers(state.models[:1], counts.sum(axis=0), prior_counts=memory["in_common"][None])
        reading = Reading(*memory["reading"].tolist())
        if reading == AS_TRAINED:
            return shared
        mix = shifts((reading,), label_mix(memory["counts"]))
        return replace(shared, shifts=mix, scales=np.array([reading.scale]))

    def _in_common(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Samples of each class that a client is taken to have seen before its own."""
        return fit_dirichlet(counts) if self.prior_strength is None else self.prior_strength * label_mix(counts)

    @staticmethod
    def _kept(setting: Setting, state: State, clients: NDArray[np.int64]) -> NDArray[np.int64]:
        """Label counts of what the clients train on."""
        counts: NDArray[np.int64] = state.memory["kept"][np.searchsorted(setting.clients, clients)]
        return counts


def _trained(order: Train, before: list[Model]) -> Work[list[Model]]:
    """Every client's model after an order; the one before for a client that does not answer."""
    trained = yield order
    return [old if new is None else new for old, new in zip(before, trained.models, strict=True)]


def between(shared: Model, own: Model, share: float) -> Model:
    """The model a share of the way from one to another."""
    weight = np.float32(share)
    return Model(*((1 - weight) * here + weight * there for here, there in zip(shared, own, strict=True)))
