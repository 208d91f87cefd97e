"""The commands of docs/federation.md, as they stand there, with every host in a network namespace of its own."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "federation"
ADDRESSES = {"server": "10.88.0.1", "oslo": "10.88.0.2", "rome": "10.88.0.3", "eve": "10.88.0.4"}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.name != "posix" or os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("openssl") is None,
        reason="network namespaces need root, ip and openssl",
    ),
]


def blocks() -> list[tuple[list[str], bool, str]]:
    """Hosts, whether the command stays, and the commands, of every block for a host."""
    text = (ROOT / "docs" / "federation.md").read_text()
    found = re.findall(r'```sh title="([^"]+)"\n(.*?)```', text, re.DOTALL)
    assert len(found) == 6
    made = []
    for title, commands in found:
        words = [word.strip() for word in title.split(",")]
        made.append(([word for word in words if word != "stays"], "stays" in words, commands))
    return made


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Path]:
    """A bridge, a namespace and a folder for every host."""

    def ip(*arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True, capture_output=True)

    made = []
    try:
        try:
            ip("link", "add", "clustpsi0", "type", "bridge")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces here: {error.stderr.decode().strip()}")
        ip("link", "set", "clustpsi0", "up")
        for host, address in ADDRESSES.items():
            ip("netns", "add", f"clustpsi-{host}")
            made.append(host)
            ip("link", "add", f"c-{host}", "type", "veth", "peer", "name", "eth0", "netns", f"clustpsi-{host}")
            ip("link", "set", f"c-{host}", "master", "clustpsi0", "up")
            ip("-n", f"clustpsi-{host}", "addr", "add", f"{address}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                ip("-n", f"clustpsi-{host}", "link", "set", device, "up")
            (tmp_path / host).mkdir()
        yield tmp_path
    finally:
        for host in made:
            subprocess.run(["ip", "netns", "delete", f"clustpsi-{host}"], check=False)
        subprocess.run(["ip", "link", "delete", "clustpsi0"], check=False, capture_output=True)


def on(host: str, folder: Path, command: str) -> "subprocess.Popen[bytes]":
    """Start commands on a host, in its folder; what they say is in its log."""
    beside = Path(sys.executable).parent
    env = {**os.environ, "PATH": f"{beside}:{os.environ['PATH']}", "HOME": str(folder / host)}
    inside = f"hostname() {{ echo {host}; }}; cd {folder / host} && {command}"
    with (folder / f"{host}.log").open("ab") as log:
        return subprocess.Popen(
            ["ip", "netns", "exec", f"clustpsi-{host}", "bash", "-ec", inside],
            stdout=log, stderr=log, env=env, start_new_session=True,
        )  # fmt: skip


def test_the_commands_of_the_page_work_between_hosts(hosts: Path) -> None:
    subprocess.run([sys.executable, EXAMPLES / "make_sites.py", hosts], check=True)
    (hosts / "site-1.csv").rename(hosts / "oslo" / "birds.csv")
    (hosts / "site-3.csv").rename(hosts / "rome" / "birds.csv")
    (hosts / "site-4.csv").rename(hosts / "eve" / "birds.csv")
    started, staying = [], []
    try:
        for names, stays, commands in blocks():
            for host in names:
                process = on(host, hosts, commands)
                started.append(process)
                if stays:
                    staying.append(process)
                else:
                    assert process.wait(1800) == 0, (host, commands, (hosts / f"{host}.log").read_text())
                if "ssh-keygen" in commands:  # what people send each other
                    shutil.copy(hosts / host / "node.key.pub", hosts / "server" / f"{host}.pub")
                    shutil.copy(hosts / "server" / "ca.crt", hosts / host)
            if "superlink --host" in commands:
                time.sleep(15)
        (run,) = (each for each in (hosts / "server" / "runs").iterdir() if not each.name.startswith("."))
        assert (run / "summary.json").exists() and (run / "model.safetensors").exists()
        clients = (run / "clients.csv").read_text()
        assert "oslo" in clients and "rome" in clients
        assert all(process.poll() is None for process in staying), "nodes serve until they are stopped"

        # Somebody with a key that is not registered is refused, and so is somebody who listens to another authority.
        shutil.copy(hosts / "server" / "ca.crt", hosts / "eve")
        key = 'ssh-keygen -q -t ecdsa -b 384 -N "" -f node.key && clustpsi federation node --data birds.csv '
        link = "--superlink 10.88.0.1:8000 --root-certificates ca.crt "
        stranger = on("eve", hosts, f"{key} {link} --private-key node.key --name eve")
        started.append(stranger)
        assert stranger.wait(300) == 2
        said = (hosts / "eve.log").read_text()
        assert "error: the SuperLink at 10.88.0.1:8000 refuses this node" in said and "Traceback" not in said
    finally:
        for number, seconds in ((signal.SIGTERM, 30.0), (signal.SIGKILL, 0.0)):
            for process in started:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
            time.sleep(seconds if any(process.poll() is None for process in started) else 0)
