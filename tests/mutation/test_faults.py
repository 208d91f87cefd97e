"""The list of faults is true: every fault can be put into the source as it is now."""

from pathlib import Path

import pytest
from faults import FAULTS, Fault

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_has_its_place_in_the_source_and_tests_to_notice_it(fault: Fault) -> None:
    fault.put_into((ROOT / "src" / "clustpsi" / fault.file).read_text())
    files = [argument for argument in fault.tests if argument.startswith("tests/")]
    assert files and all((ROOT / file.partition("::")[0]).is_file() for file in files)


def test_there_are_many_faults_each_with_a_name_of_its_own() -> None:
    names = [fault.name for fault in FAULTS]
    assert len(set(names)) == len(names) >= 150
