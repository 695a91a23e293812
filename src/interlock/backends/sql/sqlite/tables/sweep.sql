-- Removing what lapsed where nobody looks any more.

-- name: boot
-- Which start of the machine the claims are of.
select boot, booted from meta;

-- name: new_boot
-- ? boot, ? booted.
update meta set boot = ?, booted = ?;

-- name: drop_claims
delete from claim;

-- name: drop_bells
delete from bell;

-- name: slice_end
-- The last row of a slice of claims, if there are so many. ? and ? the row before, ? rows less one.
select resource, token from claim where (resource, token) > (?, ?) order by resource, token limit 1 offset ?;

-- name: sweep_claims
-- Removes lapsed claims of a slice. :resource and :token are the row before it, :last_resource and :last_token its last.
delete from claim
where (resource, token) > (:resource, :token) and (resource, token) <= (:last_resource, :last_token)
  and (lapses_at <= :now or lapses_at > :now + ttl + :slack);

-- name: sweep_registers
-- Forgets registers deleted long enough ago. :ahead is how far ahead a lapse can be; at most :limit.
delete from register where name in (
  select name from register where lapses_at is not null and (lapses_at <= :now or lapses_at > :now + :ahead) limit :limit
);

-- name: sweep_bells
-- Takes down the bells that nobody has hung again. :ahead is how far ahead a lapse can be.
delete from bell where lapses_at <= :now or lapses_at > :now + :ahead;
