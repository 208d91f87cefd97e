"""Power-of-Choice (PoC): train the clients on which the current model does worst, out of a few candidates.

Y. J. Cho, J. Wang and G. Joshi. Towards understanding biased client selection in federated learning. AISTATS 2022
(the variant pi_pow-d).
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from clustpsi.methods.base import Setting, State, option
from clustpsi.methods.fedavg import SingleModel
from clustpsi.orders import Losses, Train, Work


@dataclass(frozen=True)
class PoC(SingleModel):
    name: ClassVar[str] = "poc"
    title: ClassVar[str] = "PoC"
    family: ClassVar[str] = "selection"
    idea: ClassVar[str] = "of d candidates, drawn by size, those with the largest loss train"
    paper: ClassVar[str] = "Cho et al., AISTATS 2022"

    d_poc: int = option(8, "d, number of candidates", least=1)
    poc_rule: str = option(
        "q_of_d",
        "if d is at most m = qK: train the worst qd candidates, let d grow to 0.8 K, or train all d candidates",
        choices=("q_of_d", "scale_d", "all_d"),
    )

    def select(self, setting: Setting, state: State, rng: np.random.Generator) -> Work[NDArray[np.int64]]:
        candidates, number = self.numbers(setting)
        size = setting.sizes[setting.clients]
        asked = rng.choice(setting.clients, candidates, replace=False, p=size / size.sum())
        losses = yield Losses(asked, state.models[0])
        worst_first = np.lexsort((rng.random(candidates), -losses))  # ties at random
        answered = worst_first[~np.isnan(losses[worst_first])]
        return np.sort(asked[answered[:number]])

    def local(self, setting: Setting, state: State, chosen: NDArray[np.int64]) -> Train:
        # Large clients are more often candidates already, so all weigh the same; and all hold the model already.
        return replace(super().local(setting, state, chosen), weights=np.ones(len(chosen)), holds_start=True)

    def numbers(self, setting: Setting) -> tuple[int, int]:
        """How many candidates, and how many of them train."""
        everybody, m = len(setting.clients), setting.num_chosen
        d = min(self.d_poc, everybody)
        if self.poc_rule == "scale_d":
            return max(m, round(0.8 * everybody)), m
        if self.poc_rule == "q_of_d" and m >= d:
            return d, max(1, int(setting.fraction * d + 1e-9))
        return d, min(m, d)
