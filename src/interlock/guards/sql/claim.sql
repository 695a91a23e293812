-- The absolute form: locks the claim's own row in the user's transaction. {claims} is the quoted name of the store's claim table.
-- While the row is there and locked, the store lets nobody else in, whether the claim has lapsed or not.
-- An heir's token is above the row's: a client passes a lock on with the next of the tokens that were reserved with the grant.

-- name: pin.postgresql
-- :resource, :id, :token. KEY SHARE stops the removal of the row, and does not stop renewals, which change no key.
select token from {claims}
where resource = :resource and id = :id and state = 1 and token <= :token
for key share;

-- name: pin.mysql
-- :resource and :id in hexadecimal digits. Reads the newest row at any isolation level.
select token from {claims}
where resource = unhex(:resource) and id = unhex(:id) and state = 1 and token <= :token
lock in share mode;

-- name: pin.sqlite
-- After `lock`, nobody else writes to the file until the transaction ends.
select token from {claims}
where resource = :resource and id = :id and state = 1 and token <= :token;

-- name: pin_token.postgresql
-- As `pin`, where only the token is known: it is the row's, or, of an exclusive claim, one of those reserved with it.
select token from {claims}
where resource = :resource and state = 1 and (token = :token or (permits >= capacity and token < :token))
for key share;

-- name: pin_token.mysql
select token from {claims}
where resource = unhex(:resource) and state = 1 and (token = :token or (permits >= capacity and token < :token))
lock in share mode;

-- name: pin_token.sqlite
select token from {claims}
where resource = :resource and state = 1 and (token = :token or (permits >= capacity and token < :token));

-- name: lock.sqlite
-- Changes nothing, and takes the write lock of the lock file.
delete from {claims} where resource is null;

-- name: holder
-- The highest token that holds the resource now; null if nobody does.
select max(token) from {claims} where resource = :resource and state = 1;

-- name: holder.mysql
select max(token) from {claims} where resource = unhex(:resource) and state = 1;
