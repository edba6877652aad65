"""The dump text and the checksums are kubelet's, byte for byte."""

from __future__ import annotations

import pytest

from checkpoint_verify.kubelet import cpu, memory
from checkpoint_verify.kubelet.checksum import dump_pointer, dump_value, fnv32a, fnv32a_of_string
from checkpoint_verify.kubelet.policy import Forms, PolicyState
from draState.kubelet import STRINGS, Bytes, Map, parse


def dump_of(forms: Forms, text: str) -> str:
    return dump_pointer(forms.pods_struct, PolicyState(parse(text.encode()), forms).pods.value)


def test_the_checksums_match_published_test_values() -> None:
    assert fnv32a("") == 0x811C9DC5
    assert fnv32a("foobar") == 0xBF9CF968


def test_a_string_is_hashed_with_its_type() -> None:
    assert fnv32a_of_string("{}") == fnv32a("(string){}") == 694314937


def test_a_cpu_state_prints_sorted_sets_and_tells_nil_from_empty() -> None:
    text = (
        '{"policyName":"static","entries":{"b":{"y":"1","x":"0"},"a":null},"podEntries":{"p":{"cpuSet":"10,2"},"q":{}}}'
    )

    assert dump_of(cpu.FORMS, text) == (
        "(*state.CPUManagerCheckpoint){PolicyName:(string)static DefaultCPUSet:(string) "
        "Entries:(map[string]map[string]string)map[a:<nil> b:map[x:0 y:1]] "
        "PodEntries:(state.PodCPUAssignments)map["
        "p:{CPUSet:(cpuset.CPUSet){elems:(map[int]struct {})map[2:{} 10:{}]}} "
        "q:{CPUSet:(cpuset.CPUSet){elems:(map[int]struct {})map[]}}] "
        "Checksum:(checksum.Checksum)0}"
    )


def test_after_a_nil_pointer_at_the_end_of_a_map_the_next_field_loses_its_type() -> None:
    last = dump_of(memory.FORMS, '{"machineState":{"0":{"memoryMap":{"memory":null}},"7":null}}')
    first = dump_of(memory.FORMS, '{"machineState":{"0":null,"1":{"memoryMap":{"a":null,"b":{}}}}}')

    assert "map[memory:<nil>] Cells:<nil>} 7:<nil>] Entries:map[] PodEntries:(state.PodMemoryAssignments)" in last
    assert "0:<nil> 1:<*>{NumberOfAssignments:(int)0 " in first
    assert "}] Cells:([]int)<nil>}] Entries:(state.ContainerMemoryAssignments)map[]" in first


def test_integer_keys_sort_as_numbers_and_bytes_print_as_numbers() -> None:
    numa = Map("numa", STRINGS, integer_keys=True)

    assert dump_value(numa, {10: [], 2: None, -1: ["a", "b"]}) == "(numa)map[-1:[a b] 2:<nil> 10:[]]"
    assert dump_value(Bytes(), b"\n\xff") == "([]uint8)[10 255]"
    assert dump_value(Bytes(), None) == "([]uint8)<nil>"
    assert dump_value(Bytes(), b"") == "([]uint8)[]"


def test_string_keys_sort_as_utf8_bytes() -> None:
    assert dump_value(Map("m", STRINGS), {"\U0001f600": None, "\uffff": None, "a": None}) == (
        "(m)map[a:<nil> \uffff:<nil> \U0001f600:<nil>]"
    )


def test_a_cpu_list_is_parsed_as_kubelet_parses_it() -> None:
    assert cpu.cpus_in("") == []
    assert cpu.cpus_in("10,2-4,3,+5,007") == [2, 3, 4, 5, 7, 10]


@pytest.mark.parametrize(
    "text", [" ", "1,", ",1", "3-1", "1-", "-1", "1--2", "1-2-3", "a", "1 ", "1_0", "\u0661", "9" * 19, "0-9999999"]
)
def test_a_cpu_list_that_kubelet_refuses_or_cannot_hold_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="CPU"):
        cpu.cpus_in(text)


def test_the_widest_range_there_is_does_not_overflow() -> None:
    with pytest.raises(ValueError, match="more than"):
        cpu.cpus_in("0-9223372036854775807")
