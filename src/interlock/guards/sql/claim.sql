-- The absolute form: locks the claim's own row in the user's transaction. {claims} is the quoted name of the store's claim table.
-- While the row is there and locked, the store lets nobody else in, whether the claim has lapsed or not.
-- An heir's token is above the row's: a client passes a lock on with the next of the tokens that were reserved with the grant.
-- On MySQL a locking read locks the gaps between the rows that it passes, too, at its usual level REPEATABLE READ: then nobody could join the queue
-- of the resource, or lock a name beside it. A row that is named by its whole key is locked alone.

-- name: pin.postgresql
-- :resource and :id in hexadecimal digits, as in the fence table; :row, the token by which the store knows the claim. KEY SHARE stops the removal of the row, and does not stop renewals, which
-- change no key.
select token from {claims}
where resource = convert_from(decode(:resource, 'hex'), 'UTF8') and token = :row
  and id = convert_from(decode(:id, 'hex'), 'UTF8') and state = 1
for key share;

-- name: pin.mysql
-- :resource and :id in hexadecimal digits. Reads the newest row at any isolation level.
select token from {claims}
where resource = unhex(:resource) and token = :row and id = unhex(:id) and state = 1
lock in share mode;

-- name: pin.sqlite
-- After `lock`, nobody else writes to the file until the transaction ends.
select token from {claims}
where resource = :resource and token = :row and id = :id and state = 1;

-- name: pin_token.postgresql
-- Only the token is known. A lock of capacity 1 may be passed on within its client, so its row must be signed
-- with the token: `lease.renew()` does that, and nobody inherits the lease afterwards. :signed is how such a note
-- begins. Other claims are never passed on.
select token from {claims}
where resource = convert_from(decode(:resource, 'hex'), 'UTF8') and state = 1
  and (position(:signed in note) = 1 or (capacity > 1 and token = :token))
for key share;

-- name: find_token.mysql
-- The :row that `pin_token_at` locks, read without a lock. A snapshot that is older than the signature does not show it.
select token from {claims}
where resource = unhex(:resource) and state = 1
  and (position(:signed in note) = 1 or (capacity > 1 and token = :token));

-- name: pin_token_at.mysql
select token from {claims}
where resource = unhex(:resource) and token = :row and state = 1
  and (position(:signed in note) = 1 or (capacity > 1 and token = :token))
lock in share mode;

-- name: pin_token.mysql
-- For a row that `find_token` has not found. It locks gaps, which a refusal gives up at once.
select token from {claims}
where resource = unhex(:resource) and state = 1
  and (position(:signed in note) = 1 or (capacity > 1 and token = :token))
lock in share mode;

-- name: seen.mysql
-- Whether the transaction's snapshot shows that the claim holds: if not, it is older than the grant, and may not show what an earlier holder has
-- committed.
select 1 from {claims} where resource = unhex(:resource) and token = :row and state = 1;

-- name: pin_token.sqlite
-- No claim in a SQLite file is passed on, so none is signed.
select token from {claims}
where resource = :resource and state = 1 and token = :token;

-- name: unsigned
-- The claims that :token may belong to: their lease may have been passed on, and they do not say to which token.
-- :block is how many tokens are reserved with a grant, :mark how every signature begins.
select token from {claims}
where resource = :resource and state = 1 and capacity = 1
  and token <= :token and token > :token - :block and position(:mark in note) <> 1;

-- name: unsigned.postgresql
select token from {claims}
where resource = convert_from(decode(:resource, 'hex'), 'UTF8') and state = 1 and capacity = 1
  and token <= :token and token > :token - :block and position(:mark in note) <> 1;

-- name: unsigned.mysql
select token from {claims}
where resource = unhex(:resource) and state = 1 and capacity = 1
  and token <= :token and token > :token - :block and position(:mark in note) <> 1;

-- name: pending.mysql
-- The signature with :token, in a renewal that is kept in the table {{pending}} until the row is free: another transaction locks it.
select token from {pending}
where resource = unhex(:resource) and state = 0 and position(:signed in note) = 1;

-- name: lock.sqlite
-- Changes nothing, and takes the write lock of the lock file.
delete from {claims} where resource is null;

-- name: holder
-- The highest token that holds the resource now; null if nobody does.
select max(token) from {claims} where resource = :resource and state = 1;

-- name: holder.postgresql
select max(token) from {claims} where resource = convert_from(decode(:resource, 'hex'), 'UTF8') and state = 1;

-- name: holder.mysql
select max(token) from {claims} where resource = unhex(:resource) and state = 1;
