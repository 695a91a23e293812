-- The tables of a lock file. Instants are seconds on the boot clock; nothing here is the wall clock's,
-- but for the floor of the numbers in meta.last.

-- name: claim
-- One row for each claim that stands, in queue order: the token is the place.
-- state: 0 waits, 1 is in (and was told), 2 was evicted (permits 0; the row tells its owner, in `note`).
-- ttl: how far ahead lapses_at was set; a row further ahead is of an earlier boot, and dead.
-- since: when it was admitted; for a waiter, when it came.
-- rung: something changed for this claim since it was last answered.
-- bell: the doorbell of the process that waits for a change; '' when nobody does.
-- life: the byte of this file that its process keeps locked while it lives; 0 when nobody can tell. See liveness.py.
create table claim (
  resource text not null,
  token integer not null,
  id text not null,
  state integer not null,
  permits integer not null,
  capacity integer not null,
  ttl real not null,
  lapses_at real not null,
  since real not null,
  rung integer not null,
  bell text not null,
  life integer not null,
  note text not null,
  who text not null,
  primary key (resource, token)
) without rowid;

-- name: register
-- A deleted register has no value, and a lapse: until then its last version can still be read.
create table register (
  name text not null primary key,
  value text,
  version integer not null,
  writer text not null,
  lapses_at real
) without rowid;

-- name: register_gone
create index register_gone on register (lapses_at) where lapses_at is not null;

-- name: bell
-- Who wants to be told: topic is 'q' and a resource, or 'r' and a register.
create table bell (
  topic text not null,
  address text not null,
  lapses_at real not null,
  primary key (topic, address)
) without rowid;

-- name: meta
-- One row. last: the highest token or version ever given. boot, booted: which start of the machine this is.
create table meta (
  one integer primary key check (one = 1),
  last integer not null,
  boot text not null,
  booted real not null
);

-- name: meta_row
insert into meta (one, last, boot, booted) values (1, 0, '', 0.0);

-- name: claim_numbered
-- A trigger, not a statement: a claim on an idle resource is then one statement, and so one transaction.
create trigger claim_numbered after insert on claim
begin
  update meta set last = new.token where last < new.token;
end;

-- name: register_numbered
create trigger register_numbered after insert on register
begin
  update meta set last = new.version where last < new.version;
end;
