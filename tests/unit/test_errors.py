"""Errors are the builtins they resemble, carry data, make sentences of it, and travel between processes."""

from __future__ import annotations

import copy
import json
import pickle
import threading
from itertools import product

import pytest

from interlock import errors
from interlock.model import Standing
from interlock.who import Who

WHO = Who("worker-7", 211, "MainThread", "billing/run.py:88").pack()
HOLDER = Standing("id", 1793, 1, True, 41.2, 20.0, "", WHO)
RAW = "\x1b[2J\x07\n2026-01-01 ERROR forged"
FOREIGNER = Standing("id", 0, 1, True, 0.0, 20.0, "", "another program")  # as a store shows it

EXAMPLES: dict[errors.InterlockError, type[BaseException]] = {
    errors.InvalidName("empty"): ValueError,
    errors.InvalidURL("what://"): ValueError,
    errors.InvalidSetting("ttl"): ValueError,
    errors.Unsupported("no semaphores"): ValueError,
    errors.SettingsMismatch("pool", 4, 3): ValueError,
    errors.AcquireTimeout("orders/42", 5.0, 3, (HOLDER,)): TimeoutError,
    errors.Skipped("orders/42", HOLDER): Exception,
    errors.NotHeld("orders/42"): RuntimeError,
    errors.LeaseLost("orders/42", 1793, "evicted", "making room"): RuntimeError,
    errors.Evicted("orders/42", "making room"): RuntimeError,
    errors.ForeignKey("session:42", "string", expires=False): RuntimeError,
    errors.WouldDeadlock("orders/42"): RuntimeError,
    errors.BrokenBarrier("start"): threading.BrokenBarrierError,
    errors.StaleToken("orders/42", 1792, 1793): RuntimeError,
    errors.StoreUnavailable("no answer"): ConnectionError,
    errors.Unreached("no connection"): errors.StoreUnavailable,
    errors.HeldUp("not sent"): errors.Unreached,
    errors.StoreUnfit("read-only"): OSError,
    errors.ClientClosed("closed"): RuntimeError,
}
each_error = pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)


def test_every_error_has_an_example() -> None:
    kinds = {
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and kind.__module__ == errors.__name__
    }
    assert {type(error) for error in EXAMPLES} == kinds - {errors.InterlockError}


@each_error
def test_an_error_is_ours_and_the_builtin_it_resembles(error: errors.InterlockError) -> None:
    assert isinstance(error, errors.InterlockError)
    assert isinstance(error, EXAMPLES[error])


@each_error
def test_an_error_survives_pickling_and_copying_with_its_data(error: errors.InterlockError) -> None:
    error.add_note("a note")
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        for again in (pickle.loads(pickle.dumps(error, protocol)), copy.copy(error), copy.deepcopy(error)):
            assert type(again) is type(error)
            assert str(again) == str(error)
            assert vars(again) == vars(error)


@each_error
def test_an_error_can_be_made_again_from_its_args(error: errors.InterlockError) -> None:
    again = type(error)(*error.args)
    assert str(again) == str(error)
    assert vars(again).keys() >= set(vars(error)) - {"__notes__"}
    assert all(vars(again)[name] == value for name, value in vars(error).items() if name != "__notes__")


@each_error
def test_the_repr_of_an_error_is_its_sentence(error: errors.InterlockError) -> None:
    """Celery logs errors so."""
    if not isinstance(error, errors.Skipped):
        assert repr(error) == f"{type(error).__name__}({str(error)!r})"


@each_error
def test_an_error_survives_tblib(error: errors.InterlockError) -> None:
    """Which other test runners and process pools use to send tracebacks along."""
    pickling_support = pytest.importorskip("tblib.pickling_support")
    try:
        raise error
    except errors.InterlockError as raised:
        function, args, *_ = pickling_support.pickle_exception(raised)
    again = function(*args)
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert again.__traceback__ is not None


@each_error
def test_an_error_can_be_made_again_from_json(error: errors.InterlockError) -> None:
    """As the results of Celery's tasks are by default: the type's name, and the args as JSON."""
    again = type(error)(*json.loads(json.dumps(error.args)))
    assert str(again) == str(error)


def test_a_timeout_keeps_what_it_knows_of_the_holders_on_its_way() -> None:
    error = errors.AcquireTimeout("orders/42", 5.0, 3, (HOLDER, FOREIGNER))
    again = errors.AcquireTimeout(*json.loads(json.dumps(error.args)))
    assert again.holders == (HOLDER, FOREIGNER)
    assert (again.errno, again.filename) == (None, None), (
        "it is an OSError, which takes two args for an errno"
    )


def test_a_skipped_run_is_false_as_a_result_and_true_as_an_error() -> None:
    """concurrent.futures of Python 3.11 and 3.12 takes a false error for none, and returns None in its place."""
    returned, raised = errors.Skipped("orders/42", HOLDER), errors.Skipped("orders/42", HOLDER, raised=True)
    assert not returned
    assert raised
    assert pickle.loads(pickle.dumps(raised))
    assert not pickle.loads(pickle.dumps(returned))
    assert str(raised) == f"orders/42: skipped; {TAKEN}"
    assert repr(returned) == f"<Skipped orders/42: {TAKEN}>"


TAKEN = "taken 41 s ago by worker-7 pid 211 MainThread (billing/run.py:88), token 1793"
HELD = "held 41 s by worker-7 pid 211 MainThread (billing/run.py:88), token 1793"


@pytest.mark.parametrize(
    ("ahead", "holders", "words"),
    [
        (3, (HOLDER,), f"3 claims ahead; {HELD}"),
        (1, (HOLDER,), f"1 claim ahead; {HELD}"),
        (0, (HOLDER,), HELD),  # the store named a holder, and had not told how many are ahead
        (1, (FOREIGNER,), "1 claim ahead; held by another program"),
        (3, (), "3 claims ahead; the holder is not known"),
        (0, (), "the holder is not known"),
        (4, (HOLDER,) * 4, f"4 claims ahead; {HELD}; {HELD}; {HELD}; and 1 more holder"),
        (5, (HOLDER,) * 5, f"5 claims ahead; {HELD}; {HELD}; {HELD}; and 2 more holders"),
    ],
)
def test_a_timeout_says_what_is_known_of_who_is_in_the_way(
    ahead: int, holders: tuple[Standing, ...], words: str
) -> None:
    error = errors.AcquireTimeout("orders/42", 5.0, ahead, holders)
    assert str(error) == f"orders/42: not acquired in 5.0 s; {words}"


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        ("lapsed", "its ttl ran out before a renewal was answered"),
        ("refused", "the store no longer knows it"),
        ("evicted", "an operator evicted it (making room)"),
        ("max_hold", "it was held for max_hold seconds"),
        ("forked", "this process was forked from its holder"),
    ],
)
def test_a_loss_says_what_happened_and_what_follows(cause: str, words: str) -> None:
    error = errors.LeaseLost("orders/42", 1793, cause, "making room" if cause == "evicted" else "")
    assert str(error) == f"orders/42: lease with token 1793 is lost: {words}; another may hold it now"


@pytest.mark.parametrize(
    "error",
    [
        errors.LeaseLost("x", 7, "evicted", RAW),
        errors.LeaseLost("x", 7, "owner_ended", RAW),
        errors.Evicted("x", RAW),
        errors.ForeignKey("x", RAW),
        errors.StoreUnfit(f"the server says: {RAW}"),
        errors.StoreUnavailable(f"the server says: {RAW}"),
        errors.InvalidURL(RAW),
    ],
    ids=lambda error: type(error).__name__,
)
def test_words_of_others_cannot_draw_on_a_screen_or_forge_a_line(error: errors.InterlockError) -> None:
    assert str(error).isprintable()
    assert "forged" in str(error)


def test_a_mismatch_says_what_to_do() -> None:
    text = str(errors.SettingsMismatch("pool", 4, 3))
    assert "asked for capacity 4" in text
    assert "capacity 3" in text
    assert "all contenders must use" in text


def test_a_stale_token_says_who_was_faster() -> None:
    text = str(errors.StaleToken("orders/42", 1792, 1793))
    assert text.startswith("orders/42: token 1792 is stale, 1793 was accepted already")


@pytest.mark.parametrize(
    ("host", "thread", "site"), [*product(["worker-7", "höst 🔒"], ["", "Thread-1"], ["", "a/b.py:1"])]
)
def test_who_is_read_back_as_it_was_packed(host: str, thread: str, site: str) -> None:
    who = Who(host, 211, thread, site)
    assert Who.parse(who.pack()) == who


@pytest.mark.parametrize(
    "foreign", ["", "another program's words", "[1,2]", "{}", "null", '["a","b","c","d"]']
)
def test_a_claim_of_another_program_is_shown_as_it_is(foreign: str) -> None:
    assert str(Who.parse(foreign)) == (foreign or "unknown")
