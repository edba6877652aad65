"""State that outlived the devices, networks and processes it spoke of."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path

import pytest

from checkpoint_verify.kubelet import Verdict
from checkpointmanager import CheckpointManager, Event, EventKind, Reason
from checkpointmanager.testing import every_fault
from draState import ClaimNotPrepared

from . import kubelets
from .gpus import DRIVER, POOL, GpuDriver, node, pod
from .sandboxes import Sandbox, Sandboxes, names, opened, quarantined, reason_for

POD = pod("pod-1", gpu="uid-1")


def test_kubernetes_109595_a_restart_is_trusted_and_a_reboot_is_seen(directory: Path, driver: GpuDriver) -> None:
    """After a node restart the device manager restored from the old file what the reboot had undone."""
    with node(directory, driver, boot="boot-1") as agent:
        agent.prepare_resources(POD)
    with node(directory, driver, boot="boot-1") as agent:
        assert agent.cache.report().earlier_boot == ()

    with node(directory, GpuDriver(), boot="boot-2") as agent:
        assert agent.cache.report().earlier_boot == ("uid-1",)
        assert agent.cache.holders(DRIVER, POOL, "gpu-0") == {"uid-1"}, "doubted, but not deleted"
        with pytest.raises(ClaimNotPrepared):
            agent.get_resources(POD, "main")


def test_nvidia_951_devices_are_set_up_again_after_a_reboot(directory: Path, driver: GpuDriver) -> None:
    """Entries that said "prepare completed" were believed after a reboot, so the devices were never set up again."""
    with node(directory, driver, boot="boot-1") as agent:
        agent.prepare_resources(POD)

    rebooted = GpuDriver()
    with node(directory, rebooted, boot="boot-2") as agent:
        agent.prepare_resources(POD)

        assert rebooted.set_up == {"gpu-0": "uid-1"}
        assert agent.get_resources(POD, "main").cdi_devices
        assert agent.cache.report().earlier_boot == ()
    with node(directory, rebooted, boot="boot-2") as agent:
        assert agent.cache.report().earlier_boot == (), "the file says so too"


def test_rocm_86_data_and_boot_are_one_transaction() -> None:
    """The boot id was kept in a file beside the state; a crash between the two made one boot's data another's."""

    def write_both(manager: CheckpointManager[str]) -> None:
        manager.create_checkpoint("boot", "boot-2")
        manager.create_checkpoint("devices", "of boot-2")

    def given_both(directory: Path) -> CheckpointManager[str]:
        manager = CheckpointManager(directory)
        manager.create_checkpoint("boot", "boot-1")
        manager.create_checkpoint("devices", "of boot-1")
        return manager

    wrong = 0
    for death in every_fault(write_both, setup=given_both, errors=()):
        with CheckpointManager(death.directory) as manager:
            boot, devices = (manager.get_checkpoint(key).data for key in ("boot", "devices"))
            wrong += devices != f"of {boot}"
    assert wrong, "the way that failed"

    def given(directory: Path) -> Sandboxes:
        with opened(directory, boot_id="boot-1") as before:
            before.create_checkpoint("pod", Sandbox("of boot-1"))
        return opened(directory, boot_id="boot-2")

    def write(manager: Sandboxes) -> None:
        manager.create_checkpoint("pod", Sandbox("of boot-2"))

    for death in every_fault(write, setup=given, errors=()):
        with opened(death.directory) as manager:
            checkpoint = manager.get_checkpoint("pod")
            assert checkpoint.data.pod == f"of {checkpoint.boot}"


TWINS = ("pod-69d19deb1c", "pod-ff81d0f447")  # found by trying some 80,000 names


def test_rocm_86_two_states_with_one_32_bit_checksum_are_told_apart(directory: Path) -> None:
    """Equal 32-bit checksums were to decide whether state may be deleted, and they are equal by chance too soon."""
    one, other = (json.dumps({"ClaimInfoStateList": None, "kind": kind}) for kind in TWINS)
    assert zlib.crc32(one.encode()) == zlib.crc32(other.encode())
    swapped = json.dumps({"Data": other, "Checksum": zlib.crc32(one.encode())}).encode()
    assert kubelets.judged(swapped, "dra_manager_state").verdict is Verdict.VALID, "kubelet cannot see it"

    with CheckpointManager(directory) as manager:
        manager.create_checkpoint("claims", json.loads(one))
        path = directory / "claims.json"
        path.write_bytes(path.read_bytes().replace(TWINS[0].encode(), TWINS[1].encode()))
        assert reason_for(manager.load().problems["claims"]) is Reason.CHECKSUM_MISMATCH


def test_cni_plugins_697_reservations_of_earlier_boots_do_not_use_up_the_pool(directory: Path) -> None:
    """Each reboot left its reservations behind, until no address was left for any pod."""
    pool = [f"10.0.0.{number}" for number in range(1, 9)]
    taken: set[str] = set()  # by an agent that cannot see a reboot
    ran_out = 0

    for boot in range(1, 21):
        with opened(directory, boot_id=f"boot-{boot}") as manager:
            for key, checkpoint in manager.load().checkpoints.items():
                if checkpoint.from_this_boot is False:
                    manager.remove_checkpoint(key)
            for _ in range(3):  # three pods start, none of them stops before the power fails
                free = [address for address in pool if address not in manager]
                manager.create_checkpoint(free[0], Sandbox("pod"), overwrite=False)
                naive_free = [address for address in pool if address not in taken]
                ran_out += not naive_free
                taken.update(naive_free[:1])
            assert len(manager) == 3

    assert ran_out == 20 * 3 - len(pool), "the way that failed"


def test_podman_26823_a_reboot_is_seen_without_a_marker_that_should_vanish(directory: Path) -> None:
    """The reboot went unseen where the marker's directory was not a tmpfs, so that the marker survived it."""
    for boot in ("boot-1", "boot-2"):
        with opened(directory, boot_id=boot) as manager:
            seen = {key: checkpoint.from_this_boot for key, checkpoint in manager.load().checkpoints.items()}
            manager.create_checkpoint(boot, Sandbox("pod"))

    assert seen == {"boot-1": False}, "every file of the last boot survived, and says that it did"
    with opened(directory, boot_id="") as manager:
        assert manager.get_checkpoint("boot-1").from_this_boot is None, (
            "without a boot id from the kernel, we do not guess"
        )


def test_cri_o_3999_an_unclean_shutdown_costs_what_is_broken_and_no_more(directory: Path, events: list[Event]) -> None:
    """After an unclean shutdown everything was wiped; later also without one. Now there is a check and a repair."""
    with opened(directory) as manager:
        for number in range(20):
            manager.create_checkpoint(f"pod-{number}", Sandbox(f"pod-{number}"))
    kept = {name: (directory / name).read_bytes() for name in names(directory, "pod-")}
    torn = kept.pop("pod-7.json")[:-40]
    (directory / "pod-7.json").write_bytes(torn)
    (directory / ".tmp-dead-1").write_bytes(b"half a wri")
    (directory / ".lock").write_text('{"pid":1')

    with opened(directory, on_event=events.append) as manager:  # the same boot: the process was killed
        loaded = manager.load()
        assert len(loaded.checkpoints) == 19
        assert all(checkpoint.from_this_boot for checkpoint in loaded.checkpoints.values())
        assert reason_for(loaded.problems["pod-7"]) is Reason.TRUNCATED
        manager.create_checkpoint("pod-7", Sandbox("pod-7"))

    assert {event.kind for event in events} == {EventKind.STALE_FILES, EventKind.DAMAGE, EventKind.QUARANTINED}
    assert {name: (directory / name).read_bytes() for name in kept} == kept
    assert quarantined(directory) == [torn]
    assert not os.path.exists(directory / ".tmp-dead-1")
