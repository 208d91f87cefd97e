"""What serving orders has cost: bytes, clients, time."""

from dataclasses import dataclass, field


@dataclass
class Ledger:
    """Costs since the last look.

    Attributes
    ----------
    bytes_up, bytes_down
        Sent by clients, and to clients.
    trained
        How many clients trained (a client counts once for each order it trained for).
    left_out
        Clients whose update was not finite.
    seconds
        Time by purpose: training, losses, estimation, split, evaluation.
    """

    bytes_up: int = 0
    bytes_down: int = 0
    trained: int = 0
    left_out: list[int] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
