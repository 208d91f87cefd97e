"""SuperLinks, SuperNodes and runs as processes: how clustpsi calls Flower's commands."""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from clustpsi.errors import ClustPSIError
from clustpsi.flower.processes import (
    LOOPBACK,
    Processes,
    check_file,
    check_port,
    environment,
    is_alive,
    listens,
    program,
    wait_until,
)
from clustpsi.flower.settings import Settings, write_app
from clustpsi.flower.worker import Worker

START_SECONDS = 60.0  # within which a new SuperLink must listen
SUPERNODE = (sys.executable, "-m", "clustpsi.flower.supernode")
REFUSED = "Failed to activate SuperNode"  # what Flower says of a node whose key it does not know
MAKE_CERTIFICATE = "make one with openssl"


@dataclass(frozen=True)
class Connection:
    """How a SuperLink is reached.

    Attributes
    ----------
    address
        host:port.
    root_certificates
        File of the authority that must have signed its certificate; None for a connection without TLS.
    """

    address: str
    root_certificates: Path | None

    def __post_init__(self) -> None:
        host, colon, port = self.address.rpartition(":")
        if not (host and colon and port.isdigit()):
            raise ClustPSIError(f"--superlink must read host:port, as in 192.0.2.1:8000, not {self.address!r}")
        if self.root_certificates is not None:
            check_file(self.root_certificates, "certificate", MAKE_CERTIFICATE)

    @property
    def arguments(self) -> list[str]:
        """Arguments for ``flower-supernode``."""
        if self.root_certificates is None:
            return ["--insecure", "--superlink", self.address]
        return ["--root-certificates", str(self.root_certificates.resolve()), "--superlink", self.address]

    @property
    def toml(self) -> str:
        """Configuration for ``flwr``."""
        tls = "insecure = true"
        if self.root_certificates is not None:
            tls = f"root-certificates = {json.dumps(str(self.root_certificates.resolve()))}"
        return f'[superlink]\ndefault = "clustpsi"\n\n[superlink.clustpsi]\naddress = "{self.address}"\n{tls}\n'


def superlink_command(
    host: str, port: int, *, certificate: Path | None, key: Path | None, ca: Path | None, insecure: bool
) -> list[str]:
    """The command that starts a SuperLink: with TLS and registered nodes only, unless ``insecure``."""
    command = [program("flower-superlink"), "--host", host, "--port", str(port)]
    command.append("--disable-runtime-dependency-installation")
    if insecure:
        if host != LOOPBACK:
            raise ClustPSIError(
                f"a SuperLink without TLS would listen to everybody on {host}: give certificates, or stay on {LOOPBACK}"
            )
        return [*command, "--insecure"]
    files = {"--ssl-certfile": certificate, "--ssl-keyfile": key, "--ssl-ca-certfile": ca}
    for flag, path in files.items():
        if path is None:
            raise ClustPSIError(
                "a SuperLink needs --certificate, --key and --ca; without TLS (--insecure) it stays on this machine"
            )
        command += [flag, str(check_file(path, "certificate" if flag != "--ssl-keyfile" else "key", MAKE_CERTIFICATE))]
    return [*command, "--enable-supernode-auth"]


def run_node(
    connection: Connection, node_config: Mapping[str, Any], private_key: Path | None, told: Callable[[str], None]
) -> int:
    """Serve as a node until stopped; gives the exit code of Flower's SuperNode.

    This process keeps the rows and compiled programs; the SuperNode that it starts carries the messages.
    """
    command = [*SUPERNODE, *connection.arguments]
    if private_key is not None:
        key = check_file(private_key, "key", "make one with ssh-keygen -t ecdsa -b 384")
        if connection.root_certificates is None:
            raise ClustPSIError("a node's key needs TLS: give --root-certificates too")
        command += ["--auth-supernode-private-key", str(key)]
    with _folder() as folder:
        socket = folder / "node"
        worker = Worker(socket, node_config)
        worker.start()
        config = {"socket": str(socket), **{key: value for key, value in node_config.items() if key == "name"}}
        command += ["--port", str(check_port(0)), "--node-config", _node_config(config)]
        with closing(worker), Processes.of(environment(folder / "flwr"), folder) as processes:
            process = processes.start("supernode", command)
            told(f"node {node_config.get('name', node_config.get('partition-id'))} connects to {connection.address}")
            while True:
                try:
                    code = process.wait(0.5)
                except subprocess.TimeoutExpired:
                    continue
                log = processes.log("supernode").read_text(errors="replace")
                if REFUSED in log:
                    raise ClustPSIError(
                        f"the SuperLink at {connection.address} refuses this node: is its key registered (clustpsi "
                        "federation register)?"
                    )
                raise ClustPSIError(f"Flower's SuperNode ended with exit code {code}: {processes.said('supernode')}")


class Federation:
    """A SuperLink and its nodes, as processes on this machine."""

    def __init__(self, processes: Processes, folder: Path, port: int) -> None:
        self._processes, self._folder = processes, folder
        self.port = port
        self.connection = Connection(f"{LOOPBACK}:{port}", None)
        self._runs = 0

    @classmethod
    @contextmanager
    def up(cls, port: int) -> Iterator["Federation"]:
        """A SuperLink on this machine, for as long as the context lasts."""
        port = check_port(port)
        with _folder() as folder, Processes.of(environment(folder / "flwr"), folder) as processes:
            federation = cls(processes, folder, port)
            command = superlink_command(LOOPBACK, port, certificate=None, key=None, ca=None, insecure=True)
            processes.start("superlink", command)
            if not wait_until(lambda: listens(port), START_SECONDS, federation.check):
                raise ClustPSIError(f"the SuperLink does not listen after {START_SECONDS:g} s")
            yield federation

    def start_node(self, name: str, node: Sequence[str]) -> None:
        """Start a node with arguments of ``clustpsi federation node``."""
        command = [sys.executable, "-m", "clustpsi", "federation", "node", "--insecure"]
        self._processes.start(name, [*command, "--superlink", self.connection.address, "--quiet", *node])

    def start_plain_node(self, name: str, node_config: Mapping[str, Any]) -> None:
        """Start a bare SuperNode, for clients with a model of their own."""
        command = [*SUPERNODE, *self.connection.arguments, "--port", str(check_port(0))]
        self._processes.start(name, [*command, "--node-config", _node_config(node_config)])

    def stop_node(self, name: str) -> None:
        self._processes.stop([name])

    def check(self, names: Sequence[str] = ("superlink",)) -> None:
        """Raise if one of these processes has ended."""
        for name, code in self._processes.ended().items():
            if name in names:
                said = self._processes.said(name).removeprefix("error: ")
                raise ClustPSIError(f"{name} ended with exit code {code}: {said}")

    def run(
        self,
        settings: Settings,
        heard: Callable[[dict[str, Any]], None],
        nodes: Sequence[str] = (),
        client: Path | None = None,
    ) -> Path:
        """Submit a run and wait until it ends; ``heard`` gets its events.  Gives the run's folder."""
        self._runs += 1
        events = self._folder / f"events-{self._runs}"
        settings = replace(settings, events=str(events), output=str(Path(settings.output).resolve()))
        submit(self.connection, settings, self._folder, client=client)
        read = 0
        process: int | None = None
        started_all = False
        while True:
            lines = events.read_text(encoding="utf-8").splitlines(keepends=True) if events.exists() else []
            for line in lines[read:]:
                if not line.endswith("\n"):
                    break
                read += 1
                event = json.loads(line)
                if event["event"] == "started":
                    process = event["process"]
                elif event["event"] == "finished":
                    return Path(event["folder"])
                elif event["event"] == "failed":
                    raise ClustPSIError(event["reason"])
                else:
                    started_all = started_all or event["event"] == "progress"
                    heard(event)
            # Before the first round every node is needed; after it the run decides how many it needs.
            self.check(("superlink",) if started_all else ("superlink", *nodes))
            if process is not None and not is_alive(process):
                unread = events.read_text(encoding="utf-8").splitlines(keepends=True)[read:]
                if not any(line.endswith("\n") for line in unread):
                    raise ClustPSIError("the server of the run ended before the run did: go on with --resume")
            wait_until(lambda: False, 0.2)


def submit(
    connection: Connection, settings: Settings, folder: Path, *, follow: bool = False, client: Path | None = None
) -> None:
    """Submit a run to a SuperLink; ``follow`` shows the log of the run's server until the run ends."""
    app = folder / "app"
    write_app(app, settings, client)
    env = _flwr(connection, folder)
    command = [program("flwr"), "run", str(app), "clustpsi"]
    if follow:
        subprocess.run([*command, "--stream"], env=env, check=False)
        listed = subprocess.run(
            [program("flwr"), "list", "clustpsi", "--format", "json"], env=env, check=False, capture_output=True
        )
        _check_status(listed.stdout)
        return
    _flower(command, env, "the run")


def register(connection: Connection, keys: Sequence[Path]) -> None:
    """Have a SuperLink accept nodes with these public keys."""
    with _folder() as folder:
        for key in keys:
            path = check_file(key, "public key", "it is beside the private one that ssh-keygen made")
            command = [program("flwr"), "supernode", "register", str(path), "clustpsi"]
            _flower(command, _flwr(connection, folder), f"the key {key}")


def _flwr(connection: Connection, folder: Path) -> dict[str, str]:
    """The environment of Flower's commands that reach a SuperLink."""
    home = folder / "flwr"
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.toml").write_text(connection.toml)
    return environment() | {"FLWR_HOME": str(home)}


def _flower(command: Sequence[str], env: Mapping[str, str], what: str) -> None:
    """Run a command of Flower; its output is shown only if it fails."""
    done = subprocess.run([*command, "--format", "json"], env=dict(env), check=False, capture_output=True, text=True)
    said = done.stdout + done.stderr
    try:  # Flower's exit code is 0 even if it failed; its JSON tells
        answer = json.loads(done.stdout)
        taken, said = answer["success"], answer.get("error-message") or said
    except (ValueError, KeyError, TypeError, AttributeError):
        taken = False
    if done.returncode or not taken:
        raise ClustPSIError(f"Flower does not take {what}: {' '.join(said.split())[-400:]}")


def _check_status(listed: bytes) -> None:
    """Raise if the run failed: the exit code of Flower's command is 0 even then."""
    try:
        runs = json.loads(listed)["runs"]
        status = max(runs, key=lambda each: each.get("pending-at", ""))["status"]
    except (ValueError, KeyError, TypeError):
        raise ClustPSIError("Flower does not say what became of the run") from None
    if status != "finished:completed":
        raise ClustPSIError(f"the run is {status}: the log above says why")


@contextmanager
def _folder() -> Iterator[Path]:
    """A temporary folder that only this user can enter."""
    folder = Path(tempfile.mkdtemp(prefix="clustpsi-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _node_config(values: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={json.dumps(value)}" for key, value in values.items())
