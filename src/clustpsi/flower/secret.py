"""The secret from which a node makes its noise.  It never leaves the node.

By default it lasts as long as the node's process.  A node that is to be the same one when it is started again keeps it
in a file.
"""

import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clustpsi.errors import ClustPSIError
from clustpsi.files import make_folder, writing

KEY = "secret"  # of a node's configuration: the file with its secret
LEAST = 32  # characters of a secret: 16 bytes in hexadecimal


def new_secret() -> str:
    return secrets.token_hex(LEAST // 2)


def secret_in(node_config: Mapping[str, Any]) -> str | None:
    """The secret in the file that a node's configuration names; None if it names none."""
    return kept_secret(Path(str(node_config[KEY]))) if KEY in node_config else None


def kept_secret(path: Path) -> str:
    """The secret in a file, which is made if it does not exist; only its user may read it."""
    if not path.exists():
        _write(path)
    try:
        secret, mode = path.read_text(encoding="ascii").strip(), path.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        raise ClustPSIError(f"the secret {path} cannot be read ({error})") from None
    if len(secret) < LEAST:
        raise ClustPSIError(f"{path} holds no secret of a node: name a file that does not exist, and it is made")
    if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
        raise ClustPSIError(f"others can read the secret {path}: keep it to yourself (chmod 600)")
    return secret


def _write(path: Path) -> None:
    """Write a new secret completely or not at all, readable by its user from the first moment on."""
    make_folder(path.parent)
    unfinished = path.with_name(f".{os.getpid()}-{secrets.token_hex(4)}.tmp")
    with writing(path):
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"{new_secret()}\n")
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
