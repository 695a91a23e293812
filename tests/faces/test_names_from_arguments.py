"""Names from arguments: every decorator fills in its name for each call, and refuses at once a name that no call can fill in."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import interlock
from interlock import aio
from interlock._core.holding import Holding
from interlock._core.settings import Settings
from interlock.errors import InvalidName

MAKERS: dict[str, Callable[[Any, str], Any]] = {
    "lock": lambda client, name: client.lock(name),
    "rlock": lambda client, name: client.rlock(name),
    "read": lambda client, name: client.rwlock(name).read(),
    "write": lambda client, name: client.rwlock(name).write(),
    "semaphore": lambda client, name: client.semaphore(name, 2),
    "bounded_semaphore": lambda client, name: client.bounded_semaphore(name, 2),
    "multilock": lambda client, name: client.multilock([name]),
    "once": lambda client, name: client.once(name),
}

every_kind = pytest.mark.parametrize("kind", list(MAKERS))
every_kind_but_once = pytest.mark.parametrize("kind", [kind for kind in MAKERS if kind != "once"])


@pytest.fixture
def client() -> Iterator[interlock.Client]:
    with interlock.connect("memory://named-by-arguments") as client:
        yield client
        assert list(client.scan()) == []


@every_kind
def test_each_call_takes_the_resource_that_its_arguments_name(client: interlock.Client, kind: str) -> None:
    @MAKERS[kind](client, "ship:{order_id}:{day}")
    def ship(order_id: int, *, day: str = "monday") -> list[str]:
        return list(client.scan())

    assert ship(7) == ["ship:7:monday"]
    assert ship(order_id=8, day="friday") == ["ship:8:friday"]


@every_kind
def test_each_call_of_a_coroutine_function_does_as_well(kind: str) -> None:
    async def main() -> None:
        async with aio.connect("memory://named-by-arguments-async") as client:

            @MAKERS[kind](client, "ship:{order_id}")
            async def ship(order_id: int) -> list[str]:
                return [name async for name in client.scan()]

            assert await ship(7) == ["ship:7"]
            assert [name async for name in client.scan()] == []

    asyncio.run(main())


def test_calls_for_one_order_exclude_each_other_and_calls_for_two_do_not(client: interlock.Client) -> None:
    @client.lock("ship:{order_id}", timeout=0)
    def ship(order_id: int, *more: int) -> list[int]:
        return [order_id, *(ship(*more) if more else [])]

    assert ship(1, 2) == [1, 2]
    with pytest.raises(interlock.AcquireTimeout, match="ship:1: not acquired"):
        ship(1, 1)


def test_an_rlock_is_entered_again_by_a_call_for_the_same_order(client: interlock.Client) -> None:
    @client.rlock("ship:{order_id}", timeout=0)
    def ship(order_id: int, depth: int) -> int:
        return ship(order_id, depth - 1) if depth else client.inspect("ship:7").holders[0].token

    assert ship(7, 3) > 0


def test_the_names_of_a_multilock_are_filled_in_and_taken_once_each(client: interlock.Client) -> None:
    @client.multilock(["account:{payer}", "account:{payee}", "ledger"])
    def pay(payer: int, payee: int) -> list[str]:
        return list(client.scan())

    assert pay(7, 3) == ["account:3", "account:7", "ledger"]
    assert pay(3, 3) == ["account:3", "ledger"]


def test_the_options_of_the_decorator_hold_for_each_name(client: interlock.Client) -> None:
    @client.semaphore("api:{host}", capacity=2, ttl=7)
    def ask(host: str) -> float:
        with pytest.raises(interlock.SettingsMismatch):
            client.semaphore(f"api:{host}", capacity=3).acquire(blocking=False)
        return client.inspect(f"api:{host}").holders[0].lapses_in

    assert 0 < ask("a") <= 7


@every_kind
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ship:{order}", r"has no parameter 'order'; it has order_id; write {{ and }}"),
        ("ship:{order_id:{width}}", r"has no parameter 'width'"),
        ("ship:{}", "write the name of a parameter between the braces"),
        ("ship:{0}", "write the name of a parameter between the braces"),
        ("ship:{order_id!x}", "!x is not a conversion"),
        ("ship:{", "write {{ or }} for a brace that belongs to the name"),
    ],
)
def test_a_name_that_no_call_can_fill_in_is_refused_when_the_function_is_decorated(
    client: interlock.Client, kind: str, name: str, words: str
) -> None:
    def ship(order_id: int) -> None: ...

    with pytest.raises(InvalidName, match=words):
        MAKERS[kind](client, name)(ship)


@every_kind
def test_it_is_refused_over_a_coroutine_function_as_well(kind: str) -> None:
    async def ship(order_id: int) -> None: ...

    async def main() -> None:
        async with aio.connect("memory://") as client:
            with pytest.raises(InvalidName, match="has no parameter 'order'"):
                MAKERS[kind](client, "ship:{order}")(ship)

    asyncio.run(main())


class TestParameters:
    def test_methods_name_their_object_and_class(self, client: interlock.Client) -> None:
        class Shop:
            town = "Ulm"

            @client.lock("{self.town}:{order_id}")
            def ship(self, order_id: int) -> list[str]:
                return list(client.scan())

            @client.lock("{cls.town}:{order_id}")
            @classmethod
            def of_class(cls, order_id: int) -> list[str]:
                return list(client.scan())

            @client.lock("{order_id}")
            @staticmethod
            def plain(order_id: int) -> list[str]:
                return list(client.scan())

        assert Shop().ship(7) == ["Ulm:7"]
        assert Shop.of_class(7) == Shop().of_class(7) == ["Ulm:7"]
        assert Shop.plain(7) == Shop().plain(7) == ["7"]

    def test_a_positional_only_parameter_is_not_taken_for_a_keyword_of_its_name(
        self, client: interlock.Client
    ) -> None:
        @client.lock("ship:{order_id}")
        def ship(order_id: int, /, **more: int) -> list[str]:
            return list(client.scan())

        assert ship(7, order_id=8) == ["ship:7"]

    def test_one_of_any_number_of_arguments_can_be_named(self, client: interlock.Client) -> None:
        @client.lock("{orders[0]}:{day}")
        def ship(*orders: int, **more: str) -> list[str]:
            return list(client.scan())

        assert ship(7, 8, day="monday") == ["7:monday"]
        with pytest.raises(InvalidName, match=r"could not be filled in for a call of .*ship"):
            ship(7)

    def test_any_number_of_keywords_make_no_name(self, client: interlock.Client) -> None:
        with pytest.raises(InvalidName, match=r"\{more\} stands for any number of arguments"):

            @client.lock("{more}")
            def ship(**more: str) -> None: ...

    def test_formats_are_those_of_python_and_a_wrong_one_is_told(self, client: interlock.Client) -> None:
        @client.lock("{order_id:04d}")
        def ship(order_id: Any) -> list[str]:
            return list(client.scan())

        assert ship(7) == ["0007"]
        with pytest.raises(InvalidName, match=r"could not be filled in for a call of .*ship"):
            ship("seven")

    def test_a_partial_has_the_parameters_that_are_left(self, client: interlock.Client) -> None:
        def names(order_id: int, day: str) -> list[str]:
            return list(client.scan())

        assert client.lock("{order_id}:{day}")(functools.partial(names, day="monday"))(7) == ["7:monday"]

    def test_a_function_that_does_not_tell_its_parameters_is_refused(self, client: interlock.Client) -> None:
        with pytest.raises(InvalidName, match="does not tell the names of its parameters"):
            client.lock("{order_id}")(max)

    def test_a_wrong_call_is_refused_as_python_would(self, client: interlock.Client) -> None:
        @client.lock("ship:{order_id}")
        def ship(order_id: int) -> None: ...

        with pytest.raises(TypeError, match=r"ship\(\) missing a required argument: 'order_id'"):
            ship()  # type: ignore[call-arg]


class TestBraces:
    @every_kind
    def test_doubled_ones_and_those_of_an_argument_are_just_characters(
        self, client: interlock.Client, kind: str
    ) -> None:
        @MAKERS[kind](client, "{{all}}:{text}")
        def ship(text: str) -> list[str]:
            return list(client.scan())

        @MAKERS[kind](client, "{{all}}")
        def whole() -> list[str]:
            return list(client.scan())

        assert ship("{x}") == ["{all}:{x}"]
        assert whole() == ["{all}"]

    @every_kind_but_once
    @pytest.mark.parametrize("name", ["file:{a}.txt", "file:{{a}}.txt", "file:{"])
    def test_the_name_of_a_with_is_taken_as_it_is(
        self, client: interlock.Client, kind: str, name: str
    ) -> None:
        """There it is often data: a path, a URL. Filled in or refused, a program would fail on the day that data has a brace."""
        with MAKERS[kind](client, name):
            assert list(client.scan()) == [name]


@dataclass(frozen=True)
class Telling:
    id: int


class Order:
    def number(self) -> int:
        return 7


class TestAddresses:
    """`<Order object at 0x…>` is another text in each process, so a lock of that name excludes nobody."""

    @every_kind
    def test_an_argument_without_a_text_of_its_own_makes_no_name(
        self, client: interlock.Client, kind: str
    ) -> None:
        @MAKERS[kind](client, "ship:{order}")
        def ship(order: object) -> list[str]:
            return list(client.scan())

        for order in (Order(), [Order()], Order().number, lambda: None):
            with pytest.raises(InvalidName, match=r"differs in each process.* as in \{order\.id\}"):
                ship(order)
        assert ship(Telling(7)) == ["ship:Telling(id=7)"]
        assert ship("we meet at 0x10") == ["ship:we meet at 0x10"]

    @every_kind
    def test_nor_does_an_f_string(self, client: interlock.Client, kind: str) -> None:
        with pytest.raises(InvalidName, match="differs in each process"):
            MAKERS[kind](client, f"ship:{Order()}")

    @pytest.mark.parametrize("make", ["register", "event", "election", "condition", "guard"])
    def test_nothing_else_is_named_so(self, client: interlock.Client, make: str) -> None:
        with pytest.raises(InvalidName, match="differs in each process"):
            getattr(client, make)(f"ship:{Order()}")

    def test_an_operator_may_still_look_at_one_that_an_earlier_version_made(
        self, client: interlock.Client
    ) -> None:
        assert client.inspect(f"ship:{Order()}").standings == ()
        assert client.evict(f"ship:{Order()}", reason="made by an old program") == []


def test_what_was_taken_through_one_name_is_not_known_to_another(client: interlock.Client) -> None:
    """No state is shared: a container that both had would mix up the leases of two resources."""
    semaphore = client.semaphore("a", 3)
    for holding in (Holding(client._core, "a", Settings()), semaphore._core):
        other = holding.renamed("b")
        assert (holding.resource, other.resource) == ("a", "b")
        shared = [name for name, value in vars(holding).items() if value is vars(other)[name]]
        assert not [name for name in shared if isinstance(vars(holding)[name], dict | set | list)]
    semaphore.release(2)
    assert semaphore._core.renamed("b").gift == 0
    semaphore.acquire(permits=2)
    semaphore.release(2)


# ---- arguments that somebody else fills in --------------------------------------------------


def refined(function: Callable[..., Any]) -> Callable[..., Any]:
    """As decorators of views are."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


def over_method(*decorators: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """As Django's `method_decorator`: each call decorates the bound method, which is called like the unbound one."""

    def decorate(method: Any) -> Any:
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            bound: Any = functools.wraps(method)(functools.partial(method.__get__(self, type(self))))
            for decorator in decorators:
                bound = decorator(bound)
            return bound(*args, **kwargs)

        return call

    return decorate


@every_kind
@pytest.mark.parametrize("between", [(), (refined,), (refined, refined)])
def test_a_bound_method_that_is_named_like_an_unbound_one_is_filled_in_as_it_is_called(
    client: interlock.Client, kind: str, between: tuple[Callable[[Any], Any], ...]
) -> None:
    class View:
        @over_method(*between, MAKERS[kind](client, "account:{number}:{mode}"))
        @refined
        def get(self, request: str, number: int, mode: str = "r") -> list[str]:
            return list(client.scan())

    assert View().get("GET", 7) == ["account:7:r"]
    assert View().get("GET", mode="w", number=8) == ["account:8:w"]


def test_djangos_method_decorator_fills_in_the_arguments_of_the_view(client: interlock.Client) -> None:
    from django.utils.decorators import method_decorator

    class View:
        @method_decorator(client.lock("account:{number}"))
        def get(self, request: str, number: int) -> list[str]:
            return list(client.scan())

        @method_decorator([client.once("account:{number}"), refined])
        def post(self, request: str, number: int) -> list[str]:
            return list(client.scan())

    assert View().get("GET", 7) == View().get("GET", number=7) == ["account:7"]
    assert View().post("POST", 7) == View().post("POST", number=7) == ["account:7"]


def test_a_method_that_is_bound_and_wrapped_has_its_arguments_without_the_instance(
    client: interlock.Client,
) -> None:
    class Shop:
        @refined
        def pay(self, number: int) -> list[str]:
            return list(client.scan())

    pay = client.lock("account:{number}")(refined(Shop().pay))
    assert pay(7) == pay(number=7) == ["account:7"]
