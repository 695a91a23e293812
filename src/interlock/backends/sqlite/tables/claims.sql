-- What is done to claims. Parameters are numbered; each header says what they are and what comes back.

-- name: claim_idle
-- Enters a claim as holder where nobody stands and nobody watches. A transaction by itself.
-- ?1 resource, ?2 token, ?3 id, ?4 permits, ?5 capacity, ?6 ttl, ?7 now, ?8 note, ?9 who, ?10 life.
-- One row is changed if it is in; none if the long way must decide (also when the token is not above all).
-- unmoved() asks, once the write lock is in hand, whether the files are still those we opened: see inodes.py.
insert into claim (resource, token, id, state, permits, capacity, ttl, lapses_at, since, rung, bell, life, note, who)
select ?1, ?2, ?3, 1, ?4, ?5, ?6, ?7 + ?6, ?7, 0, '', ?10, ?8, ?9
from meta
where last < ?2
  and not exists (select 1 from claim where resource = ?1)
  and not exists (select 1 from bell where topic = 'q' || ?1)
  and unmoved();

-- name: release_alone
-- Removes a holder with whom nobody stands, and for whose going nobody listens. A transaction by itself.
-- ?1 resource, ?2 id, ?3 now, ?4 life. One row is changed if it is gone; none if the long way must decide.
delete from claim
where resource = ?1 and id = ?2 and state = 1 and bell = '' and lapses_at > ?3 and life = ?4
  and not exists (select 1 from claim where resource = ?1 and id <> ?2)
  and not exists (select 1 from bell where topic = 'q' || ?1)
  and unmoved();

-- name: queue
-- Every row of a resource in queue order, lapsed and evicted ones too. ?1 resource.
select token, id, state, permits, capacity, ttl, lapses_at, rung, bell, life
from claim where resource = ?1 order by token;

-- name: mine
-- The row with an id, unless it has lapsed; evicted or not. ?1 resource, ?2 id, ?3 now, ?4 slack.
select token, id, state, permits, capacity, ttl, lapses_at, rung, bell, life
from claim where resource = ?1 and id = ?2 and lapses_at > ?3 and lapses_at <= ?3 + ttl + ?4 order by token limit 1;

-- name: ahead
-- Those below a token, counted: how many, their permits, their capacity, the first one's token, how many are in, the
-- highest state, the first lapse, and the latest instant from which a ttl counts. ?1 resource, ?2 token.
select count(*), coalesce(sum(permits), 0), max(capacity), min(token), coalesce(sum(state), 0), max(state), min(lapses_at), max(lapses_at - ttl)
from claim where resource = ?1 and token < ?2 and state < 2;

-- name: lapsed
-- Tokens of what has lapsed below a token. ?1 resource, ?2 token, ?3 now, ?4 slack.
select token from claim
where resource = ?1 and token < ?2 and (lapses_at <= ?3 or lapses_at > ?3 + ttl + ?4);

-- name: nearest
-- When the nearest below a token lapses that has more than so many permits. ?1 resource, ?2 token, ?3 permits.
select lapses_at from claim where resource = ?1 and token < ?2 and permits > ?3 and state < 2 order by token desc limit 1;

-- name: life_ahead
-- The life of the nearest waiter below a token. ?1 resource, ?2 token.
select life from claim where resource = ?1 and token < ?2 and state = 0 order by token desc limit 1;

-- name: lives_inside
-- The lives of the holders below a token. ?1 resource, ?2 token.
select distinct life from claim where resource = ?1 and token < ?2 and state = 1;

-- name: behind
-- As `queue`, from beyond a place on. ?1 resource, ?2 token.
select token, id, state, permits, capacity, ttl, lapses_at, rung, bell, life
from claim where resource = ?1 and token > ?2 order by token;

-- name: standings
-- As `queue`, with what only an operator asks for. ?1 resource.
select token, id, state, permits, capacity, ttl, lapses_at, rung, bell, life, since, note, who
from claim where resource = ?1 order by token;

-- name: standing
-- One row of `standings`. ?1 resource, ?2 token.
select token, id, state, permits, capacity, ttl, lapses_at, rung, bell, life, since, note, who
from claim where resource = ?1 and token = ?2;

-- name: last
-- The highest token or version ever given.
select last from meta;

-- name: enter
-- A new claim at the tail; the trigger claim_numbered raises meta.last to its token.
-- ?1 resource, ?2 token, ?3 id, ?4 state, ?5 permits, ?6 capacity, ?7 ttl, ?8 now, ?9 bell, ?10 life, ?11 note, ?12 who.
insert into claim (resource, token, id, state, permits, capacity, ttl, lapses_at, since, rung, bell, life, note, who)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8 + ?7, ?8, 0, ?9, ?10, ?11, ?12);

-- name: repeat
-- A claim that stands was asked for again: it is told its standing now, and lives `ttl` longer, never shorter.
-- ?1 resource, ?2 token, ?3 state, ?4 ttl, ?5 now, ?6 bell, ?7 life. `since` starts anew when it comes in.
update claim
set since = case when state < ?3 then ?5 else since end,
    state = ?3,
    rung = 0,
    bell = case when ?6 = '' then bell else ?6 end,
    life = ?7,
    ttl = case when ?5 + ?4 > lapses_at then ?4 else ttl end,
    lapses_at = max(lapses_at, ?5 + ?4)
where resource = ?1 and token = ?2;

-- name: admit
-- A waiter comes in because of somebody else's doing. ?1 resource, ?2 token, ?3 now.
update claim set state = 1, since = ?3, rung = 1 where resource = ?1 and token = ?2;

-- name: nudge
-- Something a waiter was told is no longer so. ?1 resource, ?2 token.
update claim set rung = 1 where resource = ?1 and token = ?2;

-- name: drop
-- ?1 resource, ?2 token.
delete from claim where resource = ?1 and token = ?2;

-- name: remove_dead
-- Removes the claims of a process that is gone. ?1 resource, ?2 life.
delete from claim where resource = ?1 and life = ?2 and state < 2;

-- name: outlived
-- Whether any claim of a process stands, on whatever resource. ?1 life, ?2 now.
select exists (select 1 from claim where life = ?1 and state < 2 and lapses_at > ?2);

-- name: linger
-- A released holder stays a while, under an id that nobody has, also if its process ends. ?1 resource, ?2 token, ?3 seconds, ?4 now.
update claim
set id = 'lingering-' || token, ttl = ?3, lapses_at = ?4 + ?3, bell = '', life = 0
where resource = ?1 and token = ?2;

-- name: mark
-- An evicted claim takes nothing any more; its row tells its owner why. ?1 resource, ?2 token, ?3 reason, ?4 now, ?5 seconds.
update claim
set state = 2, permits = 0, rung = 1, note = ?3, ttl = ?5, lapses_at = ?4 + ?5
where resource = ?1 and token = ?2;

-- name: find
-- The rows with an id, lapsed and evicted ones too. ?1 resource, ?2 id.
select state, rung, bell, ttl, lapses_at, note from claim where resource = ?1 and id = ?2 order by token desc;

-- name: tokens
-- Where each claim of a resource stands. ?1 resource.
select id, token from claim where resource = ?1;

-- name: renew
-- Never an upsert, never nearer. ?1 resource, ?2 and ?3 tokens to look between, ?4 id, ?5 ttl, ?6 now, ?7 slack, ?8 note or null,
-- ?9 life: whoever renews it has it. One row is changed if the claim stands.
update claim
set ttl = case when ?6 + ?5 > lapses_at then ?5 else ttl end,
    lapses_at = max(lapses_at, ?6 + ?5),
    note = coalesce(?8, note),
    life = ?9
where resource = ?1 and token between ?2 and ?3 and id = ?4 and state < 2
  and lapses_at > ?6 and lapses_at <= ?6 + ttl + ?7;

-- name: shrink
-- ?1 resource, ?2 token, ?3 permits.
update claim set permits = ?3 where resource = ?1 and token = ?2;

-- name: listen
-- From now on this bell is rung when the claim's standing changes. ?1 resource, ?2 id, ?3 bell. One row if it stands.
update claim set bell = ?3 where resource = ?1 and id = ?2 and state < 2;

-- name: rung
-- What a notifier that missed a ring would have heard, and whose life each must watch, in queue order. ?1 resource.
select id, rung, state, life from claim where resource = ?1 and state < 2 order by token;

-- name: names
-- Resources with live claims, in code point order. ?1 beyond, ?2 from, ?3 below, ?4 now, ?5 slack, ?6 at most.
select distinct resource from claim
where resource > ?1 and resource >= ?2 and resource < ?3
  and state < 2 and lapses_at > ?4 and lapses_at <= ?4 + ttl + ?5
order by resource limit ?6;
