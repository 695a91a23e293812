"""The answer that is made from findings, on the stores that need no server, sync and async."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

import interlock
from interlock.doctor.diagnosis import Diagnosis, ordered
from interlock.doctor.examination import RESERVED
from interlock.errors import Unsupported
from interlock.model import Finding, Outlook

DANGER, NOTE, GOOD = Finding("a", "danger", "bad"), Finding("b", "note", "well"), Finding("c", "good", "fine")


def outlook(failure: str, one_holder: str) -> Outlook:
    return Outlook(failure, "yes", one_holder, "not at all")  # type: ignore[arg-type]


class TestTheAnswer:
    def test_the_worst_finding_comes_first(self) -> None:
        diagnosis = Diagnosis("store", ordered([GOOD, NOTE, DANGER]))
        assert [one.severity for one in diagnosis.findings] == ["danger", "note", "good"]
        assert diagnosis.worst == "danger"
        assert diagnosis.summary == "1 danger, 1 note, 1 good"

    def test_what_is_at_a_level_is_what_a_script_fails_for(self) -> None:
        diagnosis = Diagnosis("store", ordered([GOOD, NOTE]))
        assert diagnosis.at_least("warning") == []
        assert diagnosis.at_least("note") == [NOTE]

    def test_what_is_ignored_is_gone(self) -> None:
        assert Diagnosis("store", (DANGER, GOOD)).without(["a"]).worst == "good"

    @pytest.mark.parametrize(
        ("outlooks", "said"),
        [
            ([outlook("it burns", "no")], "two holders are possible when it burns."),
            (
                [outlook("it burns", "no"), outlook("it rains", "unknown")],
                "it burns, and perhaps when it rains.",
            ),
            ([outlook("it rains", "unknown")], "no failure is known to give two holders, and perhaps when"),
            ([outlook("it rains", "yes")], "no failure in the table below gives two holders."),
        ],
    )
    def test_the_headline_says_when_two_may_hold(self, outlooks: list[Outlook], said: str) -> None:
        assert said in Diagnosis("store", (), tuple(outlooks)).headline

    def test_a_store_that_cannot_be_reached_has_no_other_answer(self) -> None:
        assert "nothing could be looked at: gone" in Diagnosis("store", (), unreachable="gone").headline


class TestEmbeddedStores:
    @pytest.fixture(params=["memory", "sqlite"])
    def url(self, request: pytest.FixtureRequest, tmp_path: object) -> str:
        return f"memory://{uuid4().hex}" if request.param == "memory" else f"sqlite:///{tmp_path}/locks.db"

    def test_a_diagnosis_says_how_far_locks_reach(self, url: str) -> None:
        with interlock.connect(url) as client:
            diagnosis = client.diagnose()
        (scope,) = [finding for finding in diagnosis.findings if finding.id == "scope"]
        assert scope.severity in ("warning", "note")
        assert not diagnosis.unreachable

    def test_a_probe_leaves_nothing_behind(self, url: str) -> None:
        with interlock.connect(url) as client:
            diagnosis = client.diagnose(probe=True)
            assert diagnosis.probe is not None
            assert diagnosis.probe.handover is not None
            assert not client.inspect(RESERVED).standings

    def test_a_probe_beside_a_holder_says_who_is_in_the_way(self, url: str) -> None:
        with interlock.connect(url) as client, client.lock(RESERVED):
            (probe,) = [one for one in client.diagnose(probe=True).findings if one.id == "probe"]
            assert probe.severity == "danger"
            assert "held" in probe.text
            assert len(client.inspect(RESERVED).standings) == 1

    def test_both_apis_say_the_same(self, url: str) -> None:
        async def diagnosed() -> Diagnosis:
            async with interlock.aio.connect(url) as client:
                assert await client.health()
                return await client.diagnose(probe=True)

        with interlock.connect(url) as client:
            assert client.health()
            ours = client.diagnose(probe=True)
        theirs = asyncio.run(diagnosed())
        assert {(one.id, one.severity) for one in ours.findings} == {
            (one.id, one.severity) for one in theirs.findings
        }
        assert ours.outlooks == theirs.outlooks

    def test_a_closed_client_says_so(self, url: str) -> None:
        client = interlock.connect(url)
        client.close()
        with pytest.raises(interlock.ClientClosed):
            client.diagnose()
        with pytest.raises(interlock.ClientClosed):
            client.health()


class TestReach:
    @pytest.mark.parametrize("requires", ["machine", "network"])
    def test_a_store_that_does_not_reach_far_enough_is_refused(self, requires: str) -> None:
        with pytest.raises(Unsupported, match=f"requires={requires}"):
            interlock.connect(f"memory://{uuid4().hex}", requires=requires)  # type: ignore[arg-type]

    def test_one_that_does_is_not(self, tmp_path: object) -> None:
        with interlock.connect(f"sqlite:///{tmp_path}/locks.db", requires="machine") as client:
            assert client.lock("x").acquire()

    def test_the_environment_requires_it_of_every_client(
        self, tmp_path: object, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("INTERLOCK_REQUIRES", "network")
        with pytest.raises(Unsupported, match="name a store that all of them reach"):
            interlock.connect(f"sqlite:///{tmp_path}/locks.db")
        with pytest.raises(Unsupported):
            interlock.aio.connect(f"sqlite:///{tmp_path}/locks.db")
        with interlock.connect(f"sqlite:///{tmp_path}/locks.db", requires="process"):
            pass  # what the program says counts more

    def test_a_misspelt_reach_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(interlock.InvalidSetting, match="process, machine or network"):
            interlock.connect("memory://x", requires="galaxy")  # type: ignore[arg-type]
        monkeypatch.setenv("INTERLOCK_REQUIRES", "galaxy")
        with pytest.raises(interlock.InvalidSetting, match=r"\$INTERLOCK_REQUIRES"):
            interlock.connect("memory://x")
