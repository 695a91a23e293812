"""What may be said to `interlock`, and how it shows the line that was meant."""

from __future__ import annotations

import json
from argparse import ArgumentTypeError

import pytest
from hypothesis import given
from hypothesis import strategies as st

import interlock
from interlock.cli import exit_codes
from interlock.cli.arguments import parse, seconds
from tests.cli.program import Program


def complaint(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What is said of wrong words; always one sentence, and 64."""
    with pytest.raises(SystemExit) as end:
        parse(list(words))
    assert end.value.code == 64
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1
    return told.err.rstrip("\n")


class TestRun:
    @pytest.mark.parametrize(
        ("words", "told"),
        [
            (["run", "--", "echo", "hi"], "NAME is missing, as in: interlock run NAME -- echo hi"),
            (["run", "-n", "--", "a b"], "NAME is missing, as in: interlock run NAME -- 'a b'"),
            (["run"], "NAME is missing, as in: interlock run NAME -- CMD"),
            (["run", "job"], "the command is missing, as in: interlock run job -- CMD"),
            (["run", "job", "-n"], "the command is missing, as in: interlock run job -n -- CMD"),
            (["run", "-n", "job", "--"], "the command is missing, as in: interlock run -n job -- CMD"),
            (
                ["run", "-n", "job", "sh", "-c", "echo $HOME"],
                "the command stands after --, as in: interlock run -n job -- sh -c 'echo $HOME'",
            ),
            (
                ["run", "job", "git", "log", "--", "file"],
                "the command stands after --, as in: interlock run job -- git log -- file",
            ),
            (
                ["--url", "redis://:s3cret@host", "run", "job", "true"],
                "the command stands after --, as in: interlock --url 'redis://:***@host' run job -- true",
            ),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, list) else "",
    )
    def test_shows_the_line_that_was_meant(
        self, capsys: pytest.CaptureFixture[str], words: list[str], told: str
    ) -> None:
        assert complaint(capsys, *words) == f"interlock run: {told}"

    def test_takes_its_options_on_both_sides_of_the_name(self) -> None:
        for words in (["-n", "--ttl", "5s", "job"], ["job", "-n", "--ttl", "5s"], ["-n", "job", "--ttl=5s"]):
            options = parse(["run", *words, "--", "sh", "-c", "exit", "-n", "--"])
            assert (options.name, options.nonblock, options.ttl) == ("job", True, 5.0)
            assert options.argv == ["sh", "-c", "exit", "-n", "--"]

    def test_helps_behind_the_name_too(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as end:
            parse(["run", "job", "--help"])
        assert not end.value.code
        assert capsys.readouterr().out.startswith("usage: interlock run")


class TestADuration:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("5", 5.0),
            ("0", 0.0),
            ("0.5", 0.5),
            (".5", 0.5),
            ("1e3", 1000.0),
            ("500ms", 0.5),
            ("5s", 5.0),
            ("1.5s", 1.5),
            ("5m", 300.0),
            ("5min", 300.0),
            ("1h", 3600.0),
            ("1h30m", 5400.0),
            ("2d", 172800.0),
            ("1 h 30 min", 5400.0),
        ],
    )
    def test_has_a_unit_or_is_in_seconds(self, text: str, value: float) -> None:
        assert seconds(text) == pytest.approx(value)

    @pytest.mark.parametrize(
        "text", ["", "s", "5x", "-5s", "5 5s", "5s5", "nan", "-1", "½s", "٥s", "5S", "1,5s"]
    )
    def test_is_refused_with_examples(self, text: str) -> None:
        with pytest.raises(ArgumentTypeError, match="is no duration, such as 5, 500ms, 5s, 5m or 1h30m"):
            seconds(text)

    @given(st.text())
    def test_is_read_or_refused_but_never_an_accident(self, text: str) -> None:
        try:
            value = seconds(text)
        except ArgumentTypeError:
            return
        assert value >= 0

    @pytest.mark.parametrize("option", ["-w", "--ttl", "--min-hold", "--grace"])
    def test_is_taken_wherever_there_is_one(self, option: str) -> None:
        options = vars(parse(["run", option, "1m", "job", "--", "true"]))
        name = {"-w": "timeout"}.get(option, option.strip("-").replace("-", "_"))
        assert options[name] == 60.0


def test_version_is_an_option_too(program: Program) -> None:
    assert program.call("--version").stdout.startswith(f"interlock {interlock.__version__} ")
    assert json.loads(program.call("--json", "--version").stdout)["version"] == interlock.__version__


def test_a_missing_command_is_told_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert "run, ls, inspect" in complaint(capsys)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["lss"], "interlock: there is no command lss; did you mean ls?"),
        (
            ["lock", "x"],
            "interlock: there is no command lock, but run, ls, inspect",
        ),
        (["quorum", "state"], "interlock quorum: there is no command state; did you mean status?"),
    ],
)
def test_a_wrong_command_is_told_with_those_there_are(
    capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    assert complaint(capsys, *words).startswith(told)
    assert told.endswith("?") or complaint(capsys, *words).endswith(" or version; see interlock --help")


def test_a_wrong_option_leads_to_the_help_of_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert complaint(capsys, "run", "-t", "5", "job", "--", "true") == (
        "interlock run: there is no option -t; see interlock run --help"
    )
    assert (
        complaint(capsys, "ls", "--all") == "interlock ls: there is no option --all; see interlock ls --help"
    )
    assert (
        complaint(capsys, "inspect", "a", "b")
        == "interlock inspect: b is too much; see interlock inspect --help"
    )


@pytest.mark.parametrize("command", ["ls", "top", "watch", "inspect"])
def test_a_url_in_place_of_a_name_is_refused(capsys: pytest.CaptureFixture[str], command: str) -> None:
    """Taken for a name, it would be looked for in the default store, where nothing is held."""
    told = complaint(capsys, command, "postgresql://me:s3cret@db/shop")
    line = f"interlock {command} --url 'postgresql://me:***@db/shop'"
    assert told == f"interlock {command}: a URL stands after --url, as in: {line}"


@pytest.mark.parametrize(
    "words",
    [
        ["redis://:s3cret@h"],
        ["redis://h/s3cret"],
        ["quorum", "redis://:s3cret@h"],
        ["run", "-w", "redis://:s3cret@h", "x", "--", "true"],
        ["run", "-wredis://:s3cret@h", "x", "--", "true"],
        ["run", "--ttl=redis://u:pass s3cret@h", "x", "--", "true"],
        ["run", "--permits", "redis://:s3cret@h", "--capacity", "3", "x", "--", "true"],
        ["run", "-E", "rediss:/:s3cret@h", "x", "--", "true"],
        ["top", "--every", "redis//u:s3cret@h"],
        ["top", "--every", "it's:s3cret@h"],
        ["ls", "--json=redis://:s3cret@h"],
        ["ls", "-redis://:s3cret@h"],
        ["ls", "rediss//:s3cret@h"],
        ["ls", "redis:/:s3cret@h"],
        ["inspect", "redis:u:s3cret@h"],
        ["watch", "Redis//u:s3cret@h"],
        ["evict", "redis//u:s3cret@h", "--reason", "a test"],
        ["evict", "a", "redis://:s3cret@h", "--reason", "a test"],
        ["run", "redis://:s3cret@h", "--", "true"],
        ["run", "redis//:s3cret@h", "--", "true"],
    ],
    ids=" ".join,
)
def test_a_password_in_a_wrong_place_is_not_repeated(
    capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert "s3cret" not in complaint(capsys, *words)


@pytest.mark.parametrize("url", ["redis://h/s3cret", "redis://:s3cret@h"])
@pytest.mark.parametrize("words", [["sql"], ["quorum", "status"]], ids=" ".join)
def test_a_url_of_another_store_is_told_by_its_scheme(program: Program, words: list[str], url: str) -> None:
    told = program.call("--url", url, *words)
    assert told.returncode == 64
    assert told.stderr.startswith("interlock: redis://")
    assert "s3cret" not in told.stderr


def test_a_command_that_looks_like_a_url_is_shown_without_its_password(program: Program) -> None:
    told = program.call("run", "--url", f"sqlite:///{program.folder}/l.db", "x", "--", "redis://:s3cret@h")
    assert told.returncode == 127
    assert told.stderr.startswith("interlock: redis://:***@h: command not found")


def test_a_name_may_look_like_a_url(capsys: pytest.CaptureFixture[str]) -> None:
    """Many name a resource by the page that it is about; and with --url there is no doubt."""
    assert parse(["ls", "https://shop.example/"]).prefix == "https://shop.example/"
    assert parse(["run", "redis://db1", "--", "true"]).name == "redis://db1"
    assert parse(["--url", "memory://", "watch", "redis://db1"]).name == "redis://db1"


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"]])
def test_the_help_names_the_exit_codes(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    with pytest.raises(SystemExit):
        parse(words)
    told = capsys.readouterr().out
    for code in (exit_codes.USAGE, exit_codes.UNAVAILABLE, exit_codes.UNWRITABLE):
        assert f" {code} " in told
