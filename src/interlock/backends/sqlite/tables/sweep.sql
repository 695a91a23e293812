-- Removing what lapsed where nobody looks any more.

-- name: boot
-- Which start of the machine the claims are of.
select boot, booted from meta;

-- name: new_boot
-- ?1 boot, ?2 booted.
update meta set boot = ?1, booted = ?2;

-- name: drop_claims
delete from claim;

-- name: drop_bells
delete from bell;

-- name: slice_end
-- The last row of a slice of claims, if there are so many. ?1 and ?2 the row before, ?3 rows less one.
select resource, token from claim where (resource, token) > (?1, ?2) order by resource, token limit 1 offset ?3;

-- name: sweep_claims
-- Removes lapsed claims of a slice. ?1 and ?2 the row before, ?3 and ?4 the last, ?5 now, ?6 slack.
delete from claim
where (resource, token) > (?1, ?2) and (resource, token) <= (?3, ?4)
  and (lapses_at <= ?5 or lapses_at > ?5 + ttl + ?6);

-- name: sweep_registers
-- Forgets registers deleted long enough ago. ?1 now, ?2 how far ahead a lapse can be, ?3 at most.
delete from register where name in (
  select name from register where lapses_at is not null and (lapses_at <= ?1 or lapses_at > ?1 + ?2) limit ?3
);

-- name: sweep_bells
-- ?1 now, ?2 how far ahead a lapse can be.
delete from bell where lapses_at <= ?1 or lapses_at > ?1 + ?2;
