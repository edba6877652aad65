"""A path is followed only if nobody but root and the agent's user can change where it leads."""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

import pytest
from pyfakefs.fake_filesystem import FakeFilesystem
from pyfakefs.helpers import set_uid

from checkpointmanager import CheckpointManager, InsecureDirectory

OTHER = 12345  # another user
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give folders to another user")


def opens(path: Path) -> bool:
    try:
        CheckpointManager(path).close()
    except InsecureDirectory:
        return False
    return True


@as_root
def test_a_folder_of_another_user_on_the_way_is_refused_and_nothing_is_made_there(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, OTHER, OTHER)
    with pytest.raises(InsecureDirectory, match=f"{theirs}: it belongs to user {OTHER}"):
        CheckpointManager(theirs / "agent" / "leases")
    assert os.listdir(theirs) == []


@as_root
def test_their_link_to_a_folder_of_root_is_not_followed(tmp_path: Path) -> None:
    """What an agent that runs as root would then sweep and write."""
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.mkdir()
    ours.mkdir(mode=0o700)
    (ours / ".tmp-precious").touch()
    (theirs / "leases").symlink_to(ours)
    os.chown(theirs, OTHER, OTHER)
    assert not opens(theirs / "leases")
    assert os.listdir(ours) == [".tmp-precious"]


@as_root
def test_a_link_of_another_user_in_a_sticky_folder_is_not_followed(tmp_path: Path) -> None:
    shared, ours = tmp_path / "shared", tmp_path / "ours"
    shared.mkdir()
    shared.chmod(0o1777)
    ours.mkdir(mode=0o700)
    link = shared / "leases"
    link.symlink_to(ours)
    assert opens(link), "our own link: nobody else can replace it there"
    os.lchown(link, OTHER, OTHER)
    assert not opens(link)


def test_a_folder_on_the_way_that_every_user_can_change_is_refused_unless_it_is_sticky(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    assert not opens(shared / "leases")
    shared.chmod(0o1777)
    assert opens(shared / "leases")


def test_the_link_that_systemd_makes_for_a_dynamic_user_is_followed(tmp_path: Path) -> None:
    (tmp_path / "private").mkdir(mode=0o700)
    (tmp_path / "private" / "agent").mkdir(mode=0o700)
    (tmp_path / "agent").symlink_to("private/agent")
    assert opens(tmp_path / "agent" / "leases")


def test_links_may_go_up_and_be_absolute_but_not_lead_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "up").symlink_to("../real")
    (tmp_path / "absolute").symlink_to(tmp_path / "folder" / "up")
    assert opens(tmp_path / "absolute" / "leases")
    (tmp_path / "circle").symlink_to("circle")
    assert not opens(tmp_path / "circle" / "leases")


def test_whoever_trusts_all_users_may_say_so(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    CheckpointManager(shared / "leases", allow_insecure=True).close()


@pytest.mark.parametrize(("owner", "mode", "accepted"), [(0, 0o700, True), (1000, 0o770, True), (4711, 0o700, False)])
def test_a_directory_is_accepted_from_root_and_from_this_user_or_on_request(
    fs: FakeFilesystem, owner: int, mode: int, accepted: bool
) -> None:
    set_uid(0)  # in pyfakefs: only root gives directories away
    fs.create_dir("/var/lib/agent")
    os.chmod("/var/lib/agent", mode)
    os.chown("/var/lib/agent", owner, owner)
    with mock.patch.object(os, "geteuid", return_value=1000):
        if not accepted:
            with pytest.raises(InsecureDirectory, match=r"user 4711.*allow_insecure=True"):
                CheckpointManager("/var/lib/agent", read_only=True)
        with CheckpointManager[int]("/var/lib/agent", allow_insecure=not accepted) as manager:
            assert manager.create_checkpoint("a", 1).generation == 1
