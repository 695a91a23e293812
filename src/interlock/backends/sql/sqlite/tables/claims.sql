-- What is done to claims. Each header says what comes back and, in order, what the plain parameters are. Where one is needed
-- more than once, parameters have names instead; but not in the statements of the quick path, since names cost a look-up each.
-- Never by number: some versions of Python warn of that.

-- name: claim_idle
-- Enters a claim as holder where nobody stands and nobody watches. A transaction by itself.
-- The row: ? resource, ? token, ? id, ? permits, ? capacity, ? ttl, ? lapses_at, ? now, ? note, ? who; then ? token, ? resource,
-- ? topic of the resource's watchers; ? life.
-- One row is changed if it is in; none if the long way must decide (also when the token is not above all): then its state
-- would be null, and the row is ignored. Not `insert ... select`: that copies the row into a table of its own first.
-- unmoved() asks, once the write lock is in hand, whether the files are still those we opened: see inodes.py.
insert or ignore into claim (resource, token, id, permits, capacity, ttl, lapses_at, since, note, who, rung, bell, state, life)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, '', (
  select 1 from meta
  where last < ?
    and not exists (select 1 from claim where resource = ?)
    and not exists (select 1 from bell where topic = ?)
    and unmoved()
), ?);

-- name: release_alone
-- Removes a holder with whom nobody stands, and for whose going nobody listens. A transaction by itself.
-- ? resource, ? id, ? now, ? resource, ? id, ? topic of the resource's watchers, ? life.
-- One row is changed if it is gone; none if the long way must decide.
delete from claim
where resource = ? and id = ? and state = 1 and bell = '' and lapses_at > ?
  and not exists (select 1 from claim where resource = ? and id <> ?)
  and not exists (select 1 from bell where topic = ?)
  and life = ?
  and unmoved();

-- name: queue
-- Every row of a resource in queue order, lapsed and evicted ones too. ? resource.
select token, id, state, permits, capacity, ttl, lapses_at, rung, bell, life
from claim where resource = ? order by token;

-- name: front
-- The first three rows of a resource: token, id, bell, the state if the claim stands and takes the whole capacity (else null), and
-- whether anybody watches the resource. ? now, ? now and the slack, ? topic of the resource's watchers, ? resource.
select token, id, bell, case when lapses_at > ? and lapses_at <= ttl + ? and permits = capacity and state < 2 then state end,
  exists (select 1 from bell where topic = ?)
from claim where resource = ? order by token limit 3;

-- name: mine
-- The row with an id, unless it has lapsed; evicted or not.
select token, id, state, permits, capacity, ttl, lapses_at, rung, bell, life
from claim where resource = :resource and id = :id and lapses_at > :now and lapses_at <= :now + ttl + :slack order by token limit 1;

-- name: ahead
-- Those below a token, counted: how many, their permits, their capacity, the first one's token, how many are in, the
-- highest state, the first lapse, and the latest instant from which a ttl counts. ? resource, ? token.
select count(*), coalesce(sum(permits), 0), max(capacity), min(token), coalesce(sum(state), 0), max(state), min(lapses_at), max(lapses_at - ttl)
from claim where resource = ? and token < ? and state < 2;

-- name: lapsed
-- Tokens of what has lapsed below a token.
select token from claim
where resource = :resource and token < :token and (lapses_at <= :now or lapses_at > :now + ttl + :slack);

-- name: nearest
-- When the nearest below a token lapses that has more than so many permits. ? resource, ? token, ? permits.
select lapses_at from claim where resource = ? and token < ? and permits > ? and state < 2 order by token desc limit 1;

-- name: life_ahead
-- The life of the nearest waiter below a token. ? resource, ? token.
select life from claim where resource = ? and token < ? and state = 0 order by token desc limit 1;

-- name: lives_inside
-- The lives of the holders below a token. ? resource, ? token.
select distinct life from claim where resource = ? and token < ? and state = 1;

-- name: behind
-- As `queue`, from beyond a place on. ? resource, ? token.
select token, id, state, permits, capacity, ttl, lapses_at, rung, bell, life
from claim where resource = ? and token > ? order by token;

-- name: standings
-- As `queue`, with what only an operator asks for. ? resource.
select token, id, state, permits, capacity, ttl, lapses_at, rung, bell, life, since, note, who
from claim where resource = ? order by token;

-- name: standing
-- One row of `standings`. ? resource, ? token.
select token, id, state, permits, capacity, ttl, lapses_at, rung, bell, life, since, note, who
from claim where resource = ? and token = ?;

-- name: last
-- The highest token or version ever given.
select last from meta;

-- name: enter
-- A new claim at the tail; the trigger claim_numbered raises meta.last to its token.
insert into claim (resource, token, id, state, permits, capacity, ttl, lapses_at, since, rung, bell, life, note, who)
values (:resource, :token, :id, :state, :permits, :capacity, :ttl, :now + :ttl, :now, 0, :bell, :life, :note, :who);

-- name: repeat
-- A claim that stands was asked for again: its caller is answered now, and its lapse moves further away, never nearer.
-- `since` starts anew when it comes in.
update claim
set since = case when state < :state then :now else since end,
    state = :state,
    rung = 0,
    bell = case when :bell = '' then bell else :bell end,
    life = :life,
    ttl = case when :now + :ttl > lapses_at then :ttl else ttl end,
    lapses_at = max(lapses_at, :now + :ttl)
where resource = :resource and token = :token;

-- name: admit
-- A waiter comes in because of somebody else's doing. ? now, ? resource, ? token.
update claim set state = 1, since = ?, rung = 1 where resource = ? and token = ?;

-- name: nudge
-- What a waiter knows is out of date. ? resource, ? token.
update claim set rung = 1 where resource = ? and token = ?;

-- name: drop
-- ? resource, ? token.
delete from claim where resource = ? and token = ?;

-- name: remove_dead
-- Removes the claims of a process that is gone. ? resource, ? life.
delete from claim where resource = ? and life = ? and state < 2;

-- name: outlived
-- Whether any claim of a process stands, on whatever resource. ? life, ? now.
select exists (select 1 from claim where life = ? and state < 2 and lapses_at > ?);

-- name: linger
-- A released holder stays for :seconds under an id that no caller has, even if its process ends.
update claim
set id = 'lingering-' || token, ttl = :seconds, lapses_at = :now + :seconds, bell = '', life = 0
where resource = :resource and token = :token;

-- name: mark
-- An evicted claim takes nothing any more; its row tells its owner why.
update claim
set state = 2, permits = 0, rung = 1, note = :reason, ttl = :seconds, lapses_at = :now + :seconds
where resource = :resource and token = :token;

-- name: find
-- The rows with an id, lapsed and evicted ones too. ? resource, ? id.
select state, rung, token, bell, ttl, lapses_at, note from claim where resource = ? and id = ? order by token desc;

-- name: admitted
-- The claim with an id, if it is in; lapsed or not. It stands in front, so the queue behind it is not read. ? resource, ? id.
select token, ttl, lapses_at from claim where resource = ? and id = ? and state = 1 order by token limit 1;

-- name: tokens
-- Where each claim of a resource stands. ? resource.
select id, token from claim where resource = ?;

-- name: renew
-- Moves a lapse further away, never nearer, and never makes a row. :low and :high are the tokens to look between; :note may be
-- null; :life because whoever renews a claim has it; :least is the least state that counts: 0 for a place, 1 for a holder, who must not
-- take a claim that only waits for a lock that is held. One row is changed if the claim stands.
update claim
set ttl = case when :now + :ttl > lapses_at then :ttl else ttl end,
    lapses_at = max(lapses_at, :now + :ttl),
    note = coalesce(:note, note),
    life = :life
where resource = :resource and token between :low and :high and id = :id
  and state between :least and 1 and lapses_at > :now and lapses_at <= :now + ttl + :slack;

-- name: shrink
-- A claim takes fewer permits from now on.
update claim set permits = :permits where resource = :resource and token = :token;

-- name: listen
-- From now on this bell is rung when the claim's standing changes. One row is changed if the claim stands.
update claim set bell = :bell where resource = :resource and id = :id and state < 2;

-- name: rung
-- Whether each claim was rung, for a notifier that missed the ring, and whose life it must watch; in queue order. ? resource.
select id, rung, state, life from claim where resource = ? and state < 2 order by token;

-- name: names
-- Resources with live claims, in code point order. Beyond :after, from :first on, below :end, at most :limit.
select distinct resource from claim
where resource > :after and resource >= :first and resource < :end
  and state < 2 and lapses_at > :now and lapses_at <= :now + ttl + :slack
order by resource limit :limit;
