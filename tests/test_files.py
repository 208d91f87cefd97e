"""Writing files: whole or not at all, and nothing that was there is destroyed."""

import os
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from clustpsi.errors import ClustPSIError
from clustpsi.files import check_writable, for_now, is_unfinished, kept_together, write_atomically
from clustpsi.runs.store import RunFolder
from helpers import clustpsi

posix = pytest.mark.skipif(os.name != "posix", reason="permissions, links and pipes of POSIX systems")


@posix
def test_finding_28_permissions_stay_and_links_are_followed(tmp_path: Path) -> None:
    target, link = tmp_path / "secret.csv", tmp_path / "link.csv"
    target.write_text("old")
    target.chmod(0o600)
    link.symlink_to(target)
    write_atomically(link, lambda file: file.write(b"new"))
    assert link.is_symlink() and target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    dangling = tmp_path / "dangling.csv"
    dangling.symlink_to(tmp_path / "later.csv")
    write_atomically(dangling, lambda file: file.write(b"x"))
    assert dangling.is_symlink() and (tmp_path / "later.csv").read_text() == "x"


@posix
def test_finding_28_pipes_and_devices_are_written_to_and_stay(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write_atomically(pipe, lambda file: (file.write(b"xb"), file.seek(0), file.write(b"a")))
    reader.join(10)
    assert read == [b"ab"] and stat.S_ISFIFO(pipe.stat().st_mode)
    write_atomically(Path("/dev/null"), lambda file: file.write(b"gone"))
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


@posix
def test_finding_28_a_table_goes_to_standard_output_by_its_device(tmp_path: Path) -> None:
    source = Path(__file__).parent.parent / "src" / "clustpsi" / "recorded" / "fmnist.csv"
    command = [sys.executable, "-m", "clustpsi", "table", "runs", str(source), "--output", "/dev/stdout"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed.startswith("format,status,dataset")
    with (tmp_path / "both.csv").open("w") as both:
        both.write("# mine\n")
        both.flush()
        subprocess.run(command, stdout=both, check=True)
    assert (tmp_path / "both.csv").read_text() == "# mine\n" + printed
    assert Path("/dev/stdout").is_symlink()


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no /dev/shm")
def test_a_regular_file_is_replaced_below_dev_too() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        table = Path(folder) / "table.csv"
        for content in (b"a longer one", b"short"):
            write_atomically(table, lambda file, content=content: file.write(content))
        assert table.read_bytes() == b"short"


def test_a_write_that_fails_leaves_what_was_there_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "table.csv"
    target.write_text("old")

    def fail(file: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(target, fail)
    assert target.read_text() == "old" and list(tmp_path.iterdir()) == [target]
    with pytest.raises(ClustPSIError, match="cannot write"):
        write_atomically(tmp_path / "none" / "table.csv", lambda file: None)
    assert is_unfinished(Path("x/.7-ab.tmp")) and not is_unfinished(Path("x/7.tmp"))


def test_a_target_is_checked_before_any_work(tmp_path: Path) -> None:
    check_writable(tmp_path / "new.csv")
    (tmp_path / "folder").mkdir()
    for path, sentence in (
        (tmp_path / "folder", "it is a folder, and a file is needed"),
        (tmp_path / "none" / "x.csv", "there is no folder"),
        (tmp_path / ("x" * 300), "File name too long"),
    ):
        with pytest.raises(ClustPSIError, match=sentence):
            check_writable(path)
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


@posix
def test_finding_28_a_lock_that_is_a_link_is_refused_and_its_target_stays(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("do not truncate")
    (tmp_path / ".locks").mkdir()
    (tmp_path / ".locks" / "run.lock").symlink_to(precious)
    with pytest.raises(ClustPSIError, match="cannot write"), RunFolder(tmp_path / "run").locked():
        pass
    assert precious.read_text() == "do not truncate"


STRESS = """
import sys, time
from pathlib import Path
from clustpsi.runs.store import RunFolder, RunLocked
folder, inside = RunFolder(Path(sys.argv[1]) / "run"), Path(sys.argv[1]) / "inside"
taken = 0
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    try:
        with folder.locked(patience=0.02):
            folder.path.mkdir(exist_ok=True)   # so that leaving removes it again, as after a run that fails at once
            inside.open("x").close()           # fails if somebody else is inside
            inside.unlink()
            taken += 1
    except RunLocked:
        pass
print(taken)
"""


def test_finding_30_the_lock_is_exclusive_under_stress(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STRESS, str(tmp_path), "1"]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    outputs = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, outputs
    assert sum(int(out) for out, _ in outputs) > 100
    assert not (tmp_path / "run").exists()
    assert clustpsi("table", "runs", str(tmp_path)) == 2


@posix
def test_files_are_on_the_disk_before_they_have_their_name_and_a_group_keeps_its_names_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: synced.append(Path(f"/proc/self/fd/{descriptor}").resolve().suffix)
    )
    write_atomically(tmp_path / "kept", lambda file: file.write(b"x"))
    assert synced == [".tmp", ""]
    with for_now():
        write_atomically(tmp_path / "temporary", lambda file: file.write(b"x"))
    assert len(synced) == 2 and (tmp_path / "temporary").read_bytes() == b"x"
    write_atomically(tmp_path / "kept", lambda file: file.write(b"y"))
    assert len(synced) == 4
    with kept_together():
        for name in ("one", "two"):
            write_atomically(tmp_path / name, lambda file: file.write(b"z"))
        assert synced[4:] == [".tmp", ".tmp"]
    assert synced[4:] == [".tmp", ".tmp", ""]


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_an_input_is_never_replaced_by_what_is_made_from_it(link: Callable[[Path, Path], None], tmp_path: Path) -> None:
    path, other = tmp_path / "in.csv", tmp_path / "other.csv"
    path.write_text("rows")
    link(other, path)
    check_writable(tmp_path / "out.csv", [path, other, tmp_path / "nosuch", tmp_path / ("x" * 300)])
    for output in (path, other, tmp_path / "." / "in.csv"):
        with pytest.raises(ClustPSIError, match=r"would replace .* which it is made from"):
            check_writable(output, [path])
