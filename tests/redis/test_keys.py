"""All keys of a resource are in one slot of a Cluster, and no two resources share a key."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from interlock.backends.redis.wire.keys import SLOTS, ClusterKeys, Keys, _tag_of, companion, slot
from interlock.backends.redis.wire.resp import bulk

NAMES = st.text(st.sampled_from("{}a:é/"), min_size=1, max_size=8)
LETTERS = (b"h", b"w", b"e")


@given(NAMES, st.sampled_from(["", "app:", "{app}:", "a}"]))
def test_all_keys_of_a_resource_are_in_one_slot(name: str, prefix: str) -> None:
    holder = Keys(prefix).holder(name)
    assert {slot(companion(holder, letter)) for letter in LETTERS} == {slot(holder)}


@given(NAMES, NAMES)
def test_no_two_resources_share_a_key(one: str, other: str) -> None:
    keys = Keys("")
    ours = {keys.holder(one), *(companion(keys.holder(one), letter) for letter in LETTERS)}
    theirs = {keys.holder(other), *(companion(keys.holder(other), letter) for letter in LETTERS)}
    assert len(ours) == 4
    assert one == other or not ours & theirs


@given(NAMES, st.sampled_from(["", "app:", "{app}:"]))
def test_a_name_is_read_back_from_its_keys(name: str, prefix: str) -> None:
    keys = Keys(prefix)
    holder = keys.holder(name)
    assert keys.resource(holder) == name
    assert keys.resource(companion(holder, b"h")) == name
    assert keys.resource(companion(keys.holder(name + "\x1fwaiters"), b"h")) == name + "\x1fwaiters"


def test_keys_of_others_name_no_resource() -> None:
    keys = Keys("app:")
    for key in (b"other:x", b"app:\x1ftoken", b"app:\x1fregister\x1fevent\x1fx", b"app:\xff"):
        assert keys.resource(key) is None


def test_slots_are_those_of_redis() -> None:
    # From the specification of Redis Cluster, and CLUSTER KEYSLOT.
    assert slot(b"123456789") == 0x31C3 % 16384
    assert slot(b"foo{}{bar}") == slot(b"foo{}{bar}")
    assert slot(b"{user1000}.following") == slot(b"{user1000}.followers") == slot(b"user1000")
    assert slot(b"foo{{bar}}zap") == slot(b"{bar")


def test_every_slot_has_a_tag() -> None:
    tags = [_tag_of(number) for number in range(SLOTS)]
    assert [slot(b"{" + tag + b"}") for tag in tags] == list(range(SLOTS))
    assert all(len(tag) == 4 for tag in tags)


PREFIXES = st.sampled_from(["", "app:", "{app}:", "a{", "a}", "a{b", "{}"])


@given(NAMES, PREFIXES)
def test_on_a_cluster_the_counter_is_in_the_slot_of_what_it_counts(name: str, prefix: str) -> None:
    keys = ClusterKeys(prefix)
    assert slot(_plain(keys.token_counter(name))) == slot(keys.holder(name))
    register, counter = keys.register(name), keys.register_keys(name)[len(bulk(keys.register(name))) :]
    assert slot(_plain(counter)) == slot(register)
    assert keys.resource(_plain(counter)) is None, "a counter is listed as a resource"


@given(NAMES, NAMES, PREFIXES)
def test_programs_agree_on_the_counter_of_a_slot(one: str, other: str, prefix: str) -> None:
    same = slot(Keys(prefix).holder(one)) == slot(Keys(prefix).holder(other))
    assert (ClusterKeys(prefix).token_counter(one) == ClusterKeys(prefix).token_counter(other)) is same


def _plain(encoded: bytes) -> bytes:
    return encoded.split(b"\r\n", 1)[1][:-2]
