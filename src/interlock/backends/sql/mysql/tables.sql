-- The tables of interlock on MariaDB and MySQL.
-- The prefix interlock_ of every name stands for the one that the user has chosen. Instants are seconds since 1970 by the server's clock,
-- in UTC. Names, ids and bells are bytes of UTF-8: exact in case, accents and trailing spaces, and sorted by code points, whatever the
-- collation of the database is.

-- name: slot
-- The mutex of the resources and registers whose names hash to it, and the source of their tokens and versions: 1,024 rows for any
-- number of names. Every procedure that changes a queue locks the slot first. `last` is the highest number ever given.
-- alone, lone: what is known of one resource of the slot, so that an idle claim and the release of a lone one need not look for others.
-- lone 0: `alone` has no claims; above 0: if it has a claim, then only this token. In both cases nothing is pending for it and no bell
-- hangs at it. -1: nothing is known. Whoever adds a claim, a pending change or a bell sets it to -1; to remove something changes nothing.
create table if not exists interlock_slot (
  k int not null primary key,
  last bigint not null,
  alone varbinary(1100) not null,
  lone bigint not null
) engine=InnoDB row_format=dynamic;

-- name: slots
insert ignore into interlock_slot
  select a.d + b.d * 4 + c.d * 16 + d.d * 64 + e.d * 256, 0, '', -1
  from (select 0 as d union select 1 union select 2 union select 3) a, (select 0 as d union select 1 union select 2 union select 3) b,
    (select 0 as d union select 1 union select 2 union select 3) c, (select 0 as d union select 1 union select 2 union select 3) d,
    (select 0 as d union select 1 union select 2 union select 3) e;

-- name: claim
-- One row for each claim that stands, in the order of the queue: the token is the place.
-- state: 0 waits, 1 is in (and was notified), 2 was evicted (permits 0; `note` says why).
-- ttl: how far ahead lapses_at was set; a row further ahead is from before the server's clock was set back, and is corrected.
-- since: when it was admitted; for a waiter, when it came.
-- rung: something has changed for this claim since it was last answered.
-- bell: the bell of the process that waits for a change; '' if none does.
create table if not exists interlock_claim (
  resource varbinary(1100) not null,
  token bigint not null,
  id varbinary(200) not null,
  state tinyint not null,
  permits int not null,
  capacity int not null,
  ttl double not null,
  lapses_at double not null,
  since double not null,
  rung tinyint not null,
  bell varbinary(64) not null,
  note mediumblob not null,
  who mediumblob not null,
  primary key (resource, token)
) engine=InnoDB row_format=dynamic;

-- name: pending
-- A change of a claim whose row was locked by a guard in a user's open transaction. It counts at once; the next call that finds the row
-- free moves it there. state: 0 renewed (note: null leaves the note as it is), 1 released, 2 evicted (note: the reason).
create table if not exists interlock_pending (
  resource varbinary(1100) not null,
  token bigint not null,
  state tinyint not null,
  ttl double not null,
  lapses_at double not null,
  note mediumblob,
  primary key (resource, token)
) engine=InnoDB row_format=dynamic;

-- name: register
-- A deleted register has no value, and a lapse: until then its last version can still be read. The answer to an eviction is kept here, too, with
-- a lapse, under the id of the call.
create table if not exists interlock_register (
  name varbinary(1100) not null primary key,
  value longblob,
  version bigint not null,
  writer varbinary(200) not null,
  lapses_at double,
  key (lapses_at)
) engine=InnoDB row_format=dynamic;

-- name: bell
-- Which bells are rung when something changes: topic is 'q' and a resource, or 'r' and a register.
create table if not exists interlock_bell (
  topic varbinary(1101) not null,
  bell varbinary(64) not null,
  lapses_at double not null,
  primary key (topic, bell),
  key (lapses_at)
) engine=InnoDB row_format=dynamic;

-- name: mail
-- What a bell was rung for: written in the transaction that rings, read by the process whose bell it is. `sent` is for the sweep.
create table if not exists interlock_mail (
  n bigint not null auto_increment primary key,
  bell varbinary(64) not null,
  message varbinary(1400) not null,
  sent double not null,
  key (bell)
) engine=InnoDB row_format=dynamic;

-- name: meta
-- One row: the version of these tables and procedures. Version 2 has the tables of version 1, and new procedures beside the old ones: programs
-- of both versions share the claims and registers while a fleet is updated.
create table if not exists interlock_meta (
  one tinyint not null primary key,
  version int not null
) engine=InnoDB;

-- name: version
insert into interlock_meta (one, version) values (1, @version@) on duplicate key update version = greatest(version, @version@);
