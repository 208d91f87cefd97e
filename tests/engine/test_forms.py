"""The form of convolutions: chosen once per machine, the same for every process; nothing here is really measured."""

import json
from pathlib import Path

import numpy as np
import pytest

from clustpsi.engine import forms, network_for
from clustpsi.engine.forms import Convolution, fastest, kept_form, suited_forms, with_forms
from clustpsi.engine.network import Network
from clustpsi.errors import ClustPSIError
from clustpsi.models import build_model

WIDE = Convolution((32, 8, 8, 64), 64, first=False)


@pytest.fixture(scope="module")
def cifar() -> Network:
    return network_for(build_model("cifar_cnn", 10), (32, 32, 3), np.dtype(np.uint8))


def measured(form: str, calls: list[str]):  # type: ignore[no-untyped-def]
    def measure(convolution: Convolution) -> str:
        calls.append(convolution.name)
        return form

    return measure


@pytest.mark.parametrize(("other", "winner"), [(0.95, "usual"), (0.85, "other"), (2.0, "usual")])
def test_another_form_must_be_clearly_faster(other: float, winner: str) -> None:
    """In every turn but the first, which is slow for memory's sake and does not count."""
    now, calls = 0.0, {"usual": 0, "other": 0}

    def program(form: str, seconds: float):  # type: ignore[no-untyped-def]
        def work() -> None:
            nonlocal now
            calls[form] += 1
            now += seconds if calls[form] > 1 else {"usual": 0.01, "other": 100}[form]

        return work

    programs = {"usual": program("usual", 1.0), "other": program("other", other)}
    assert fastest(programs, lambda: now) == winner
    assert calls == {"usual": 1 + forms.REPETITIONS, "other": 1 + forms.REPETITIONS}


def test_a_form_is_measured_once_and_kept(tmp_path: Path) -> None:
    path, calls = tmp_path / "new" / "forms.json", list[str]()
    assert WIDE.usual == "winograd" and WIDE.forms == ("winograd", "patches")
    assert kept_form(WIDE, path, measured("patches", calls)) == "patches"
    assert kept_form(WIDE, path, measured("winograd", calls)) == "patches"
    assert calls == [WIDE.name]
    assert json.loads(path.read_text()) == {forms.machine(): {WIDE.name: "patches"}}


@pytest.mark.parametrize("damaged", [b"", b"{", b"[]", b'{"a": 1}', b"\xff"])
def test_a_damaged_file_is_measured_again(damaged: bytes, tmp_path: Path) -> None:
    path, calls = tmp_path / "forms.json", list[str]()
    path.write_bytes(damaged)
    assert kept_form(WIDE, path, measured("patches", calls)) == "patches"
    assert calls == [WIDE.name] and json.loads(path.read_text())[forms.machine()] == {WIDE.name: "patches"}


@pytest.mark.parametrize("kept", ["a form of the future", 7, ["patches"], None])
def test_what_is_no_form_is_measured_again(kept: object, tmp_path: Path) -> None:
    path, calls = tmp_path / "forms.json", list[str]()
    path.write_text(json.dumps({forms.machine(): {WIDE.name: kept}}))
    assert kept_form(WIDE, path, measured("patches", calls)) == "patches" and calls


def test_other_machines_and_other_layers_are_measured_for_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, calls = tmp_path / "forms.json", list[str]()
    kept_form(WIDE, path, measured("patches", calls))
    wider = WIDE._replace(features=128)
    assert kept_form(wider, path, measured("winograd", calls)) == "winograd"
    monkeypatch.setattr(forms, "_processor", lambda: "another one")
    assert kept_form(WIDE, path, measured("winograd", calls)) == "winograd"
    assert calls == [WIDE.name, wider.name, WIDE.name]
    monkeypatch.undo()
    assert kept_form(WIDE, path, measured("winograd", calls)) == "patches"


def test_where_nothing_can_be_kept_forms_are_the_usual_ones(tmp_path: Path) -> None:
    """Or else each process would measure for itself, and they might not agree."""
    (tmp_path / "file").write_text("in the way")
    calls = list[str]()
    assert kept_form(WIDE, tmp_path / "file" / "forms.json", measured("patches", calls)) == "winograd"
    assert calls == []


def test_the_convolution_with_the_most_work_decides_for_all(
    cifar: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = list[str]()
    monkeypatch.setenv("CLUSTPSI_CACHE", str(tmp_path))
    monkeypatch.delenv(forms.VARIABLE)
    monkeypatch.setattr(forms, "measure", measured("patches", calls))
    assert suited_forms(cifar, 32) == ("patches",) * 6
    assert calls == ["32x32x32x32 to 32"]
    assert with_forms(cifar, ("patches",) * 6).module.forms == ("patches",) * 6
    assert suited_forms(cifar, 1000) == ("patches",) * 6 and calls[1:] == ["64x32x32x32 to 32"]


def test_usual_forms_are_not_written_down(cifar: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network with them is the network as it is; and pooled convolutions have no forms, so nothing is measured."""
    fmnist = network_for(build_model("fmnist_cnn", 10), (28, 28), np.dtype(np.uint8))
    calls = list[str]()
    monkeypatch.setenv("CLUSTPSI_CACHE", str(tmp_path))
    monkeypatch.setattr(forms, "measure", measured("winograd", calls))
    assert suited_forms(cifar, 32) == () and calls == []  # as the tests' environment has it
    monkeypatch.delenv(forms.VARIABLE)
    assert suited_forms(cifar, 32) == () and len(calls) == 1
    assert suited_forms(fmnist, 32) == () and len(calls) == 1
    assert with_forms(cifar, ()) is cifar
    assert [each.usual for each in forms.convolutions(cifar, 2)] == ["patches", *["winograd"] * 5]
    assert forms.convolutions(fmnist, 2) == []


def test_other_values_of_the_variable_are_refused(cifar: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(forms.VARIABLE, "fast")
    with pytest.raises(ClustPSIError, match="CLUSTPSI_CONVOLUTIONS is 'fast': it can only be 'usual', or not set"):
        suited_forms(cifar, 32)
