"""The list of faults is true: every fault can be put into the source as it is now."""

from faults import FAULTS
from mutants import check


def test_every_fault_has_its_place_in_the_source_and_tests_to_notice_it() -> None:
    assert check(FAULTS) == []


def test_there_are_many_faults_each_with_a_name_of_its_own() -> None:
    names = [fault.name for fault in FAULTS]
    assert len(set(names)) == len(names) >= 150
