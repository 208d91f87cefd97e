"""A federation on Flower.  Only this package imports ``flwr``, which carries messages between a server and its nodes.

ServerApp: :mod:`clustpsi.flower.server`.  ClientApp: :mod:`clustpsi.flower.client`.  Clients with a model of
their own: :func:`client_app`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from clustpsi.errors import ClustPSIError

if TYPE_CHECKING:
    from clustpsi.flower.own import client_app

__all__ = ["client_app"]


def __getattr__(name: str) -> Any:
    if name != "client_app":
        raise AttributeError(f"module 'clustpsi.flower' has no attribute {name!r}")
    check_installed()
    return import_module("clustpsi.flower.own").client_app


def check_installed() -> None:
    """Raise a clear error if Flower is not installed."""
    try:
        import_module("flwr.app")
    except ImportError:
        raise ClustPSIError(
            "a federation needs Flower, which is not installed: pip install 'clustpsi[flower]'"
        ) from None
