"""Downloads against a local server that truncates, corrupts, breaks off and refuses."""

import gzip
import hashlib
import io
import re
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from clustpsi.datasets import download as downloads
from clustpsi.datasets import files
from clustpsi.datasets.download import download, fetch
from clustpsi.errors import ClustPSIError


class Server(ThreadingHTTPServer):
    """Serves ``files``; ``faults`` are used up, one a request."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.faults: list[str] = []
        self.resumes = True
        self.requests: list[tuple[str, str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.requests.append((self.path, wanted))
        content = self.server.files.get(self.path.lstrip("/"))
        fault = self.server.faults.pop(0) if self.server.faults else ""
        if fault == "busy":
            self.send_error(503)
            return
        if content is None:
            self.send_error(404)
            return
        start = int(re.findall(r"\d+", wanted)[0]) if wanted and self.server.resumes else 0
        if start >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        rest = content[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(rest)))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        if fault == "corrupt":
            rest = bytes([rest[0] ^ 1]) + rest[1:]
        self.wfile.write(rest[: len(rest) // 2] if fault == "break" else rest)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(downloads, "PAUSE", 0.0)
    for variable in ("http_proxy", "HTTP_PROXY", "CLUSTPSI_MIRROR"):
        monkeypatch.delenv(variable, raising=False)
    with Server() as serving:
        thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield serving
        serving.shutdown()
        thread.join()


CONTENT = bytes(range(256)) * 400
MD5 = hashlib.md5(CONTENT).hexdigest()


def test_a_download_reports_progress_and_keeps_no_part(server: Server, tmp_path: Path) -> None:
    server.files["f.bin"] = CONTENT
    seen: list[tuple[str, int, int | None]] = []
    download(f"{server.url}/f.bin", tmp_path / "new/f.bin", md5=MD5, progress=lambda *piece: seen.append(piece))
    assert (tmp_path / "new/f.bin").read_bytes() == CONTENT
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["f.bin"]
    assert seen[0] == ("f.bin", 0, len(CONTENT)) and seen[-1] == ("f.bin", len(CONTENT), len(CONTENT))
    assert download(f"{server.url}/f.bin", tmp_path / "new/f.bin", md5=MD5) and len(server.requests) == 1


def test_broken_transfers_go_on_where_they_stopped(server: Server, tmp_path: Path) -> None:
    server.files["f.bin"] = CONTENT
    server.faults = ["break", "busy", "break"]
    download(f"{server.url}/f.bin", tmp_path / "f.bin", md5=MD5)
    assert (tmp_path / "f.bin").read_bytes() == CONTENT
    half = len(CONTENT) // 2
    quarter = half + (len(CONTENT) - half) // 2
    assert [wanted for _, wanted in server.requests] == [None, f"bytes={half}-", f"bytes={half}-", f"bytes={quarter}-"]


def test_a_server_that_cannot_resume_is_read_from_the_start(server: Server, tmp_path: Path) -> None:
    server.files["f.bin"] = CONTENT
    server.resumes = False
    (tmp_path / "f.bin.part").write_bytes(CONTENT[:1000])
    download(f"{server.url}/f.bin", tmp_path / "f.bin", md5=MD5)
    assert (tmp_path / "f.bin").read_bytes() == CONTENT


def test_an_interrupted_run_leaves_a_part_for_the_next_one(server: Server, tmp_path: Path) -> None:
    server.files["f.bin"] = CONTENT

    def interrupt(name: str, done: int, total: int | None) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download(f"{server.url}/f.bin", tmp_path / "f.bin", md5=MD5, progress=interrupt)
    assert not (tmp_path / "f.bin").exists() and (tmp_path / "f.bin.part").stat().st_size > 0
    download(f"{server.url}/f.bin", tmp_path / "f.bin", md5=MD5)
    assert server.requests[-1][1] is not None and (tmp_path / "f.bin").read_bytes() == CONTENT


def test_a_complete_part_only_needs_its_name(server: Server, tmp_path: Path) -> None:
    server.files["f.bin"] = CONTENT
    (tmp_path / "f.bin.part").write_bytes(CONTENT)
    download(f"{server.url}/f.bin", tmp_path / "f.bin", md5=MD5)
    assert (tmp_path / "f.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("part", [b"something else", CONTENT + b"longer"])
def test_a_part_of_another_file_is_dropped(server: Server, tmp_path: Path, part: bytes) -> None:
    server.files["f.bin"] = CONTENT
    (tmp_path / "f.bin.part").write_bytes(part)
    download(f"{server.url}/f.bin", tmp_path / "f.bin", md5=MD5)
    assert (tmp_path / "f.bin").read_bytes() == CONTENT


def test_a_corrupt_file_never_gets_its_name(server: Server, tmp_path: Path) -> None:
    server.files["f.bin"] = CONTENT
    server.faults = ["corrupt"]
    with pytest.raises(ClustPSIError, match=rf"f\.bin is corrupt: its md5 is not {MD5}"):
        download(f"{server.url}/f.bin", tmp_path / "f.bin", md5=MD5)
    assert list(tmp_path.iterdir()) == []


def test_a_transfer_that_keeps_breaking_says_so_and_can_go_on(server: Server, tmp_path: Path) -> None:
    server.files["f.bin"] = CONTENT
    server.faults = ["break"] * downloads.ATTEMPTS
    with pytest.raises(ClustPSIError, match=r"the connection ended after .* run the command again"):
        download(f"{server.url}/f.bin", tmp_path / "f.bin", md5=MD5)
    download(f"{server.url}/f.bin", tmp_path / "f.bin", md5=MD5)
    assert (tmp_path / "f.bin").read_bytes() == CONTENT


def test_no_network_and_no_such_file_are_told_apart(server: Server, tmp_path: Path) -> None:
    with pytest.raises(ClustPSIError, match=r"absent\.bin answered 404"):
        download(f"{server.url}/absent.bin", tmp_path / "f.bin")
    server.server_close()
    with pytest.raises(ClustPSIError, match=r"cannot download .*refused.*check the network .* put it at .*f\.bin"):
        download(f"http://127.0.0.1:{server.server_port}/f.bin", tmp_path / "f.bin")


def test_a_folder_that_cannot_be_written_and_a_mirror_that_is_no_url_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ClustPSIError, match=f"cannot write to {tmp_path}/file/fmnist: Not a directory"):
        fetch("fmnist", tmp_path / "file/fmnist", mirror="http://127.0.0.1:9")
    with pytest.raises(ClustPSIError, match=r"mirror/train-images-idx3-ubyte\.gz is no URL"):
        fetch("fmnist", tmp_path, mirror="mirror")
    with pytest.raises(ClustPSIError, match="sent140 cannot be downloaded: open http"):
        fetch("sent140", tmp_path)


def serve_fmnist(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in downloads.FMNIST_MD5:
        server.files[name] = gzip.compress(name.encode())
        monkeypatch.setitem(downloads.FMNIST_MD5, name, hashlib.md5(server.files[name]).hexdigest())


def test_fmnist_from_a_mirror_fetches_what_is_absent(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_fmnist(server, monkeypatch)
    (tmp_path / "train-images-idx3-ubyte").write_text("unpacked")
    monkeypatch.setenv("CLUSTPSI_MIRROR", server.url + "/")
    assert {path.name for path in fetch("fmnist", tmp_path)} == set(server.files) - {"train-images-idx3-ubyte.gz"}
    assert fetch("fmnist", tmp_path) == []


def test_cifar_is_unpacked_and_the_archive_goes(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        entry = tarfile.TarInfo("cifar-10-batches-bin/test_batch.bin")
        entry.size = 4
        tar.addfile(entry, io.BytesIO(b"data"))
    server.files["cifar-10-binary.tar.gz"] = packed.getvalue()
    monkeypatch.setitem(downloads.CIFAR_MD5, "cifar-10-binary.tar.gz", hashlib.md5(packed.getvalue()).hexdigest())
    assert fetch("cifar10", tmp_path, mirror=server.url) == [tmp_path / "cifar-10-batches-bin"]
    assert (tmp_path / "cifar-10-batches-bin/test_batch.bin").read_bytes() == b"data"
    assert [path.name for path in tmp_path.iterdir()] == ["cifar-10-batches-bin"]
    assert fetch("cifar10", tmp_path, mirror=server.url) == []


def zipped(name: str, content: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        deflated = zipfile.ZIP_DEFLATED if len(content) > 10_000 else None  # small ones can be read, and damaged
        archive.writestr(name, content, deflated)
    return packed.getvalue()


def person_file(code: str) -> str:
    columns = dict.fromkeys(downloads.PUMS_COLUMNS, "1") | {"ST": code}
    return f"{','.join(columns)}\n{','.join(columns.values())}\n"


def test_states_are_unpacked_where_folktables_has_them(server: Server, tmp_path: Path) -> None:
    files = {"csv_pca.zip": ("psam_p06.csv", "06"), "csv_ptx.zip": ("psam_p48.csv", "48")}
    server.files = {archive: zipped(name, person_file(code)) for archive, (name, code) in files.items()}
    new = fetch("acs_income", tmp_path, mirror=server.url, states=["CA", "TX"])
    assert new == [tmp_path / "2018/1-Year/psam_p06.csv", tmp_path / "2018/1-Year/psam_p48.csv"]
    assert new[0].read_text() == person_file("06") and len(list(new[0].parent.iterdir())) == 2
    assert fetch("acs_income", tmp_path, mirror=server.url, states=["CA", "TX"]) == []
    with pytest.raises(ClustPSIError, match="unknown state 'XX'"):
        fetch("acs_income", tmp_path, states=["XX"])


GOOD = zipped("psam_p06.csv", person_file("06"))
WRONG = {
    "damaged": GOOD.replace(b"AGEP", b"AGEX", 1),
    "a page": b"<html>",
    "another member": zipped("other.csv", "x"),
    "other columns": zipped("psam_p06.csv", "SERIALNO,AGEP\n"),
    "another state": zipped("psam_p06.csv", person_file("48")),
    "nobody": zipped("psam_p06.csv", person_file("06").split("\n")[0]),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_finding_36_a_wrong_state_archive_goes_and_a_good_one_takes_its_place(
    server: Server, tmp_path: Path, wrong: str
) -> None:
    server.files["csv_pca.zip"] = WRONG[wrong]
    with pytest.raises(ClustPSIError, match=r"csv_pca\.zip is not the official archive .* was removed") as caught:
        fetch("acs_income", tmp_path, mirror=server.url, states=["CA"])
    assert "\n" not in str(caught.value) and list((tmp_path / "2018/1-Year").iterdir()) == []
    server.files["csv_pca.zip"] = GOOD
    assert len(fetch("acs_income", tmp_path, mirror=server.url, states=["CA"])) == 1


def test_finding_36_a_state_archive_that_unpacks_without_end_is_refused(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "UNPACKED_LEAST", 10_000)
    server.files["csv_pca.zip"] = zipped("psam_p06.csv", "x" * 3_000_000)
    with pytest.raises(ClustPSIError, match="unpacks to more than"):
        fetch("acs_income", tmp_path, mirror=server.url, states=["CA"])
    assert list((tmp_path / "2018/1-Year").iterdir()) == []
