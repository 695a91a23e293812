-- The fence table: the highest token that was accepted for each resource. {table} is its quoted name.
-- A statement is looked up as `name.dialect` first, and as `name` if there is none.

-- name: create.postgresql
create table if not exists {table} (
  resource text collate "C" primary key,
  token bigint not null
);

-- name: create.mysql
-- varbinary: names are exact in case, accents and trailing spaces, and one of 1,024 bytes fits the index.
create table if not exists {table} (
  resource varbinary(1024) primary key,
  token bigint not null
) engine = InnoDB row_format = dynamic;

-- name: create.sqlite
create table if not exists {table} (
  resource text primary key,
  token integer not null
) without rowid;

-- name: accept
-- Accepts a token unless a higher one was accepted before, and locks the row until the transaction ends, either way.
-- :resource, :token. One row is changed if it is accepted; none if it is stale.
insert into {table} as f (resource, token) values (:resource, :token)
on conflict (resource) do update set token = excluded.token where f.token <= excluded.token;

-- name: accept.postgresql
-- Returns whether the row is the transaction's own; if not, a savepoint has written it, and can undo it alone.
insert into {table} as f (resource, token) values (:resource, :token)
on conflict (resource) do update set token = excluded.token where f.token <= excluded.token
returning cast(xmin as text) = cast(txid_current() & 4294967295 as text);

-- name: accept.mysql
-- :resource in hexadecimal digits, so that the character set of the connection does not matter. The row count says nothing:
-- 0 stands for a stale token and for the same one again, and clients that count found rows count otherwise.
insert into {table} (resource, token) values (unhex(:resource), :token)
on duplicate key update token = greatest(token, :token);

-- name: accepted
-- The token that stands in the row, which `accept` has locked.
select token from {table} where resource = :resource;

-- name: accepted.mysql
-- A locking read: a plain one at REPEATABLE READ might show the row as it was before. And the engine of the table :name in :schema (null for the
-- connection's own), if it has no transactions: null for any other. It costs no second request, because the same name may be another table
-- at the next guard.
select token, (
  select t.engine from information_schema.tables t join information_schema.engines e on e.engine = t.engine
  where t.table_schema = coalesce(:schema, database()) and t.table_name = :name and coalesce(e.transactions, 'NO') <> 'YES'
) from {table} where resource = unhex(:resource) for update;
