"""What an etcd:// URL of a command line names, and where its certificates and its user come from."""

from __future__ import annotations

from typing import Any

import pytest

from checkpoint_verify.cli import main
from checkpoint_verify.etcd import Place, place_in
from checkpoint_verify.exitcodes import UsageError
from checkpointmanager.etcd import EtcdStore


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("etcd://a:1/agents", Place(("a:1",), "/agents")),
        ("etcd://a:1,b:2/agents/node-7/", Place(("a:1", "b:2"), "/agents/node-7")),
        ("etcd://[::1]:1,[::2]:2/agents", Place(("[::1]:1", "[::2]:2"), "/agents")),
        ("etcd://a:1/agents/pod.json", Place(("a:1",), "/agents")),
        ("etcd://a:1/agents/.previous-pod", Place(("a:1",), "/agents")),
        ("etcd://a:1/agents/.quarantine/pod.x.json", Place(("a:1",), "/agents")),
    ],
)
def test_a_url_names_a_place(word: str, expected: Place) -> None:
    assert place_in(word) == expected


@pytest.mark.parametrize("word", ["etcd://", "etcd://a:1", "etcd://a:1/", "etcd:///agents", "etcd://a:1/pod.json"])
def test_a_url_without_servers_or_prefix_is_a_usage_error(word: str) -> None:
    with pytest.raises(UsageError, match="HOST:PORT/PREFIX"):
        place_in(word)


@pytest.mark.parametrize("word", ["etcd://agent:secret@a:1/agents", "etcd://a:1,agent:secret@b:1/agents/pod.json"])
def test_a_password_in_a_url_is_refused_and_not_shown(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ([word], ["diagnose", word], ["quarantine", "list", "-d", word]):
        assert main(command) == 2
    shown = capsys.readouterr()
    assert "ETCDCTL_USER" in shown.err
    assert "secret" not in shown.out + shown.err


@pytest.mark.parametrize(
    "word", ["etcd://a:1/../agents", "etcd://a:1/agents/..", "etcd://a/agents", "etcd://a:b/agents"]
)
def test_a_url_that_no_store_takes_is_a_usage_error(word: str) -> None:
    with pytest.raises(UsageError, match=r"the prefix begins with a slash|write http://HOST:PORT"):
        place_in(word).open(read_only=True)


def test_certificates_and_user_come_from_the_environment_as_etcdctl_takes_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[tuple[Any, dict[str, Any]]] = []
    monkeypatch.setattr(EtcdStore, "__init__", lambda _, *given, **options: opened.append((given, options)))
    place = Place(("a:1", "b:2"), "/agents")
    place.open(read_only=True)
    monkeypatch.setenv("ETCDCTL_USER", "agent:its secret")
    monkeypatch.setenv("ETCDCTL_CACERT", "ca.pem")
    monkeypatch.setenv("ETCDCTL_CERT", "agent.pem")
    monkeypatch.setenv("ETCDCTL_KEY", "agent.key")
    place.open(read_only=True)
    common = {"read_only": True, "lock_timeout": 0}
    files = {"ca": "ca.pem", "cert": "agent.pem", "key": "agent.key"}
    assert opened == [
        ((["http://a:1", "http://b:2"], "/agents"), common),
        (
            (["https://a:1", "https://b:2"], "/agents"),
            {**common, **files, "user": "agent", "password": "its secret"},
        ),
    ]
