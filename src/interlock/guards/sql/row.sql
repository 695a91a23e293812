-- Rows of the user's own tables that carry a token or a mark. {table} is the quoted name of the table, {key} a condition that
-- names the row, {changes} assignments, each with a comma after it, and {column} the quoted column of the token or the mark.

-- name: update
-- Changes the row unless a higher token was accepted for it before. :token, the values of {key} and {changes}.
update {table} set {changes}{column} = :token where {key} and {column} <= :token;

-- name: update.postgresql
-- Returns whether the row has the token now: a trigger may keep another one.
update {table} set {changes}{column} = :token where {key} and {column} <= :token returning {column} = :token;

-- name: token
-- The token or the mark in the row, which stays locked. On SQLite a change before it has locked the file.
select {column} from {table} where {key} for update;

-- name: token.sqlite
select {column} from {table} where {key};

-- name: look.mysql
-- The token or the mark in the row, which stays locked, and the engine of the table :name in :schema (null for the connection's own), if it has
-- no transactions: null for any other. Then the same as the transaction's snapshot shows it: what is read later comes from there.
(select {column}, 1 as newest, (
  select coalesce(t.engine, 'view') from information_schema.tables t left join information_schema.engines e on e.engine = t.engine
  where t.table_schema = coalesce(:schema, database()) and t.table_name = :name and coalesce(e.transactions, 'NO') <> 'YES'
) as engine from {table} where {key} for update)
union all
(select {column}, 0, null from {table} where {key});

-- name: lock.sqlite
-- Changes nothing, and takes the write lock.
update {table} set {column} = {column} where {key};

-- name: mark
-- Leaves a mark in the row, which `token` has locked. :mark, the values of {key}.
update {table} set {column} = :mark where {key};

-- name: mark.postgresql
-- Returns whether the row has the mark now: a trigger may keep another one.
update {table} set {column} = :mark where {key} returning {column} = :mark;

-- name: marked
select count(*) from {table} where {key} and {column} = :mark;

-- name: update_marked
-- Changes the row if its mark is still ours. A new mark is left, so that the same change cannot be made twice. :mark, :next.
update {table} set {changes}{column} = :next where {key} and {column} = :mark;

-- name: around.postgresql
-- How many savepoints there are around this statement that have written or locked a row. A transaction holds a lock on its own number, and so does
-- each of its savepoints until it is released or rolled back. And whether changes of the table :name go elsewhere: it is a view or a foreign table,
-- or has a rule.
select count(*) - 1, (
  select c.relkind not in ('r', 'p') or exists (select 1 from pg_rewrite r where r.ev_class = c.oid and r.ev_type = '2' and r.is_instead)
  from pg_class c where c.oid = to_regclass(:name)
)
from pg_locks
where pid = pg_backend_pid() and locktype = 'transactionid' and mode = 'ExclusiveLock' and granted;

-- name: engine.mysql
-- The engine of the table :name in :schema (null for the connection's own), if it has no transactions; no row for any other table.
select coalesce(t.engine, 'view') from information_schema.tables t left join information_schema.engines e on e.engine = t.engine
where t.table_schema = coalesce(:schema, database()) and t.table_name = :name and coalesce(e.transactions, 'NO') <> 'YES';
