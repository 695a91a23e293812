-- The tables of interlock in PostgreSQL. Instants are seconds since 1970 on the clock of the server.
-- A template: @claim@, @slot@ and so on are quoted names with the chosen schema and prefix, @now@ is the clock.

create schema if not exists @schema@;

-- Which version of these tables and functions this is. Version 2 has the tables of version 1, and new functions beside the old ones: programs
-- of both versions share the claims and registers while a fleet is updated.
create table if not exists @meta@ (one boolean primary key default true check (one), version int not null);
insert into @meta@ as m (version) values (@version@) on conflict (one) do update set version = greatest(m.version, excluded.version);

-- Where tokens come from. A resource belongs to slot hash(resource) % 1024: there are O(1) rows for any number of names, and only names that
-- share a slot wait for one another's commit.
create table if not exists @slot@ (k int primary key, last bigint not null) with (fillfactor = 25);
insert into @slot@ select g, 0 from generate_series(0, 1023) g on conflict do nothing;

-- One row for each claim, in queue order: the token is the place.
-- state: 0 waits, 1 is in, 2 was evicted or withdrawn (permits 0; `note` tells its owner why), 3 watches the queue (a negative token).
-- ttl: how far ahead lapses_at was set. since: when it was admitted; for a waiter, when it came.
-- rung: something changed for this claim since it was last answered. bell: the channel of the client that listens for it, or ''.
-- No index but the primary key: that keeps updates heap-only (HOT).
create table if not exists @claim@ (
  resource text collate "C" not null,
  token bigint not null,
  id text collate "C" not null,
  state smallint not null,
  permits int not null,
  capacity int not null,
  ttl float8 not null,
  lapses_at float8 not null,
  since float8 not null,
  rung boolean not null,
  bell text not null,
  note text not null,
  who text not null,
  primary key (resource, token)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- A deleted register has no value, and a lapse: until then its last version can still be read. The answer to an eviction is kept here, too, with
-- a lapse, under the id of the call.
create table if not exists @register@ (
  name text collate "C" primary key,
  value text,
  version bigint not null,
  writer text not null,
  lapses_at float8
) with (fillfactor = 70);
create index if not exists @register_gone@ on @register@ (lapses_at) where lapses_at is not null;

-- The clients that watch registers.
create table if not exists @bell@ (
  name text collate "C",
  address text,
  lapses_at float8 not null,
  primary key (name, address)
);
