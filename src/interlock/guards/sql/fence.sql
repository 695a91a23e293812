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
-- :resource in hexadecimal digits: in a database of the encoding SQL_ASCII, sessions of different encodings would write different names.
-- Returns whether the row is the transaction's own (if not, a savepoint has written it, and can undo it alone), whether it has the token (a
-- trigger may keep another one), and whether the table is a temporary one, which no other session sees.
insert into {table} as f (resource, token) values (convert_from(decode(:resource, 'hex'), 'UTF8'), :token)
on conflict (resource) do update set token = excluded.token where f.token <= excluded.token
returning cast(xmin as text) = cast(txid_current() & 4294967295 as text), token = :token,
  (select c.relpersistence = 't' from pg_class c where c.oid = f.tableoid);

-- name: lock.mysql
-- Makes the row if there is none, and locks it. It changes nothing in a row that is there, so that `look` can compare.
-- :resource in hexadecimal digits, so that the character set of the connection does not matter.
insert into {table} (resource, token) values (unhex(:resource), 0) on duplicate key update token = token;

-- name: look.mysql
-- The token that stands in the row, and the engine of the table :name in :schema (null for the connection's own), if it has no transactions: null
-- for any other. It costs no request of its own, because the same name may be another table at the next guard. Then the token as the transaction's
-- snapshot shows it: what is read later comes from there.
(select token, 1 as newest, (
  select coalesce(t.engine, 'view') from information_schema.tables t left join information_schema.engines e on e.engine = t.engine
  where t.table_schema = coalesce(:schema, database()) and t.table_name = :name and coalesce(e.transactions, 'NO') <> 'YES'
) as engine from {table} where resource = unhex(:resource) for update)
union all
(select token, 0, null from {table} where resource = unhex(:resource));

-- name: note.mysql
update {table} set token = :token where resource = unhex(:resource);

-- name: accepted
-- The token that stands in the row, which `accept` has locked.
select token from {table} where resource = :resource;

-- name: accepted.postgresql
select token from {table} where resource = convert_from(decode(:resource, 'hex'), 'UTF8');

-- name: accepted.mysql
select token from {table} where resource = unhex(:resource) for update;

-- name: shadows.sqlite
-- Tables of this connection alone that have the :name. They come before those of the database.
select count(*) from sqlite_temp_master where name = :name collate nocase;
