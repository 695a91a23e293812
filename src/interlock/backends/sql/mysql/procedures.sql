-- The steps of `interlock.backends.sql.steps`, each as one procedure, so that each is one round trip.
-- The prefix interlock_ stands for the one that the user has chosen, and v1 for the version of these programs: an older and a newer version of interlock can share the
-- tables while a fleet is updated.
--
-- What all of them have in common:
-- * The slot row of the resource is locked before anything is read. A lock on the (possibly empty) queue itself would let two in, or
--   deadlock on gaps. Only `renew` begins without it: it prolongs rows that stand, and nothing else.
-- * READ COMMITTED, for this transaction alone: each statement sees what was committed before it began, and no gap is locked.
-- * The clock is read after the lock, by a statement of its own; `utc_timestamp` knows no time zone and no summer time.
-- * A guard may have locked a claim's row in a user's open transaction. Such a row still stands, and nothing here waits for it: rows
--   are locked with SKIP LOCKED before they are changed, and a change that must be made all the same goes to interlock_pending.
-- * They run with the rights of their definer: users need EXECUTE and nothing else. A definer who may write to a read-only server, such as root, would
--   go on granting on a primary that was demoted. So each of them refuses that first, as the server refuses others: @refuse_if_read_only@ stands for it.
-- * `messages` and `rings` collect whom to ring: those for the caller's own bell `own` are returned, others are put into
--   interlock_mail, and after the commit `ring` ends the sleep of each process that has mail.

-- name: notify
-- Puts a message into the mail of a bell; one for the caller's own bell goes into `messages`. b: the bell, '' is nobody's.
create procedure interlock_v1_notify(b varbinary(64), message varbinary(1400), own varbinary(64), inout messages longblob, inout rings longblob)
modifies sql data
begin
  if b <> '' then
    if b = own then
      set messages = concat_ws(char(10), nullif(messages, ''), message);
    else
      insert into interlock_mail (bell, message, sent) values (b, message, timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) / 1e6);
      if not find_in_set(b, rings) then set rings = concat_ws(',', nullif(rings, ''), b); end if;
    end if;
  end if;
end;

-- name: ring
-- Ends the sleep of each bell's process, after the commit. The process whose bell it is holds a named lock of the server, so no
-- other connection can be hit: not after a restart, nor on another node. Without it the process finds its mail a little later.
-- rings: bells, separated by commas.
create procedure interlock_v1_ring(rings longblob)
reads sql data
begin
  declare rest longblob default rings;
  declare target bigint;
  declare continue handler for sqlexception begin end;  -- its connection has ended meanwhile (1094), or is another user's (1095)
  while rest <> '' do
    set target = is_used_lock(concat('interlock.', substring_index(rest, ',', 1)));
    set rest = if(locate(',', rest), substring(rest, locate(',', rest) + 1), '');
    if target is not null then kill query target; end if;
  end while;
end;

-- name: watchers
-- Rings the bells of those who watch a topic, but for the caller's own. topic: 'q' and a resource, or 'r' and a register.
create procedure interlock_v1_watchers(about varbinary(1101), t double, own varbinary(64), inout rings longblob)
modifies sql data
begin
  declare b varbinary(64);
  declare messages longblob default '';
  declare done boolean default false;
  declare watching cursor for select bell from interlock_bell where topic = about and lapses_at > t and bell <> own;
  declare continue handler for not found set done = true;
  open watching;
  walk: loop
    fetch watching into b;
    if done then leave walk; end if;
    call interlock_v1_notify(b, about, '', messages, rings);
  end loop;
  close watching;
end;

-- name: apply
-- Moves pending changes into the rows of a resource that no guard locks any more. The slot is locked.
create procedure interlock_v1_apply(r varbinary(1100), t double)
modifies sql data
begin
  declare tok, free, previous bigint default -1;
  declare s tinyint; declare life, l double; declare n mediumblob;
  walk: loop
    set previous = tok, tok = null, free = null;
    select token, state, ttl, lapses_at, note into tok, s, life, l, n from interlock_pending
      where resource = r and token > previous order by token limit 1;
    if tok is null then leave walk; end if;
    select token into free from interlock_claim where resource = r and token = tok for update skip locked;
    if free is not null then
      if s = 2 then
        update interlock_claim set state = 2, permits = 0, rung = 1, note = n, ttl = life, lapses_at = l where resource = r and token = tok;
      elseif s = 1 then
        update interlock_claim set id = concat('lingering-', tok), bell = '', ttl = life, lapses_at = l where resource = r and token = tok;
      else
        update interlock_claim set ttl = life, lapses_at = l, note = coalesce(n, note) where resource = r and token = tok;
      end if;
    end if;
    if free is not null or not exists (select 1 from interlock_claim where resource = r and token = tok) then
      delete from interlock_pending where resource = r and token = tok;
    end if;
  end loop;
end;

-- name: remove
-- Removes a claim that has lapsed, unless a guard has locked its row or a renewal stands beside it. The slot is locked.
-- gone: 1 if it is removed, else 0.
create procedure interlock_v1_remove(r varbinary(1100), tok bigint, t double, out gone int)
modifies sql data
begin
  declare free bigint;
  set gone = 0;
  select token into free from interlock_claim where resource = r and token = tok and lapses_at <= t for update skip locked;
  if free is not null and not exists (select 1 from interlock_pending where resource = r and token = tok and lapses_at > t) then
    delete from interlock_claim where resource = r and token = tok;
    delete from interlock_pending where resource = r and token = tok;
    set gone = 1;
  end if;
end;

-- name: clear
-- Removes lapsed claims, and corrects rows from before the server's clock was set back. A row that a guard has locked
-- stays. Whoever calls it counts again: a renewal may have come between the count and the removal. The slot is locked.
-- gone: how many were removed.
create procedure interlock_v1_clear(r varbinary(1100), t double, out gone int)
modifies sql data
begin
  declare tok, free, previous bigint default -1;
  declare one int;
  declare l double;
  set gone = 0;
  walk: loop
    set previous = tok, tok = null, free = null;
    select token, lapses_at into tok, l from interlock_claim
      where resource = r and token > previous and (lapses_at <= t or lapses_at > t + ttl + 1) order by token limit 1;
    if tok is null then leave walk; end if;
    if l <= t then
      call interlock_v1_remove(r, tok, t, one);
      set gone = gone + one;
    else
      select token into free from interlock_claim where resource = r and token = tok for update skip locked;
      if free is not null then
        update interlock_claim set lapses_at = t + ttl where resource = r and token = tok and lapses_at > t + ttl + 1;
      end if;
    end if;
  end loop;
end;

-- name: advance
-- Admits and rings the claims that fit now and have not been notified; removes lapsed ones at the front. The first claim that does not
-- fit is rung too if it waits for all holders alike (a semaphore): others may have come in ahead of it, and it knows nothing of
-- their lapses. It stops there, so the cost does not grow with the queue. It begins at the first that waits: one statement counts the holders,
-- unless one of them has lapsed. After 64 it stops, too, and has the next one ask, which goes on from there: readers come by the thousand, and nobody else
-- gets the slot meanwhile. asking: the id of the claim that is not rung. let_in: how many it has let in. The slot is locked.
create procedure interlock_v1_advance(r varbinary(1100), asking varbinary(200), t double, own varbinary(64), inout messages longblob, inout rings longblob, out let_in int)
modifies sql data
whole: begin
  declare tok, previous bigint default -1;
  declare waiter bigint;
  declare taken bigint default 0;
  declare widest, p, c, gone, dead int default 0;
  declare s, rang tinyint; declare l double; declare i varbinary(200); declare b varbinary(64);
  set let_in = 0;
  select token into waiter from interlock_claim where resource = r and state = 0 order by token limit 1;
  if waiter is null then leave whole; end if;
  select coalesce(sum(permits), 0), coalesce(max(permits), 0), coalesce(sum(lapses_at <= t), 0) into taken, widest, dead
    from interlock_claim where resource = r and token < waiter and state < 2;
  if dead = 0 then set tok = waiter - 1; else set taken = 0, widest = 0; end if;
  walk: loop
    set previous = tok, tok = null;
    select token, id, state, permits, capacity, lapses_at, rung, bell into tok, i, s, p, c, l, rang, b from interlock_claim
      where resource = r and token > previous and state < 2 order by token limit 1;
    if tok is null then leave walk; end if;
    if l <= t then
      call interlock_v1_remove(r, tok, t, gone);
      if gone then iterate walk; end if;
    end if;
    set taken = taken + p;
    if taken > c then
      if i <> asking and widest + p <= c and rang = 0 then
        update interlock_claim set rung = 1 where resource = r and token = tok;
        call interlock_v1_notify(b, concat('c', i, ' 0'), own, messages, rings);
      end if;
      leave walk;
    end if;
    if s = 0 and let_in >= 64 then
      if i <> asking and rang = 0 then
        update interlock_claim set rung = 1 where resource = r and token = tok;
        call interlock_v1_notify(b, concat('c', i, ' 0'), own, messages, rings);
      end if;
      leave walk;
    end if;
    set widest = greatest(widest, p);
    if s = 0 then
      set let_in = let_in + 1;
      update interlock_claim set state = 1, since = t, rung = 1 where resource = r and token = tok;
      call interlock_v1_notify(b, concat('c', i, ' ', tok), own, messages, rings);
    end if;
  end loop;
end;

-- name: nudge
-- Rings the claims that stay outside and watched one that leaves, so that they ask again: `to_watch` seen from the other end. Beyond
-- a claim at least as wide as the leaving one nobody can have watched it, so a mutex looks at one row.
-- tok, was, wide: token, state and permits of the leaving claim. let_in: how many `advance` has let in just now; if it has stopped because they are many, those who are
-- left are let in next, and have nothing to ask. At most 64 are rung: the renewals of the others' places look for them. The slot is locked.
create procedure interlock_v1_nudge(r varbinary(1100), tok bigint, was tinyint, wide int, t double, own varbinary(64), inout messages longblob, inout rings longblob, let_in int)
modifies sql data
whole: begin
  declare widest, p, c, rung_now int default 0;
  declare s, rang tinyint; declare i varbinary(200); declare b varbinary(64);
  declare previous bigint;
  if let_in >= 64 then leave whole; end if;
  walk: loop
    set previous = tok, tok = null;
    select token, id, state, permits, capacity, rung, bell into tok, i, s, p, c, rang, b from interlock_claim
      where resource = r and token > previous and state < 2 and lapses_at > t order by token limit 1;
    if tok is null then leave walk; end if;
    if s = 0 and rang = 0 and ((widest = 0 and was = 0) or (wide + p > c and c >= widest + p)) then
      update interlock_claim set rung = 1 where resource = r and token = tok;
      call interlock_v1_notify(b, concat('c', i, ' 0'), own, messages, rings);
      set rung_now = rung_now + 1;
    end if;
    set widest = greatest(widest, p);
    if widest >= wide or rung_now >= 64 then leave walk; end if;
  end loop;
end;

-- name: claim
-- See `steps.CLAIM`. A claim on an idle resource is answered with its token alone. It has few variables: each costs time in every call.
-- The first statement also returns whether the slot knows the resource to be idle, in the lowest bit of the number. Then nothing else is
-- looked at: a look would pass all rows of the resource that were deleted and not purged yet. It is an insert that finds its row there, because an
-- update takes longer.
create procedure interlock_v1_claim(r varbinary(1100), i varbinary(200), its_ttl double, wants int, cap int, queued boolean,
  place_ttl double, block int, b varbinary(64), n mediumblob, w mediumblob)
modifies sql data
begin
  declare t double;
  declare tok bigint default timestampdiff(microsecond, '1970-01-01', utc_timestamp(6));
  declare exit handler for sqlexception begin rollback; resignal; end;
  @refuse_if_read_only@
  set transaction isolation level read committed;
  start transaction;
  insert into interlock_slot values (crc32(r) & 1023, (last_insert_id(tok * 2) >> 1) + block - 1, r, -1)
    on duplicate key update last = (last_insert_id(greatest(last + 1, tok) * 2 + (alone = r and lone = 0)) >> 1) + block - 1,
    lone = if(alone = r and lone = 0, last - block + 1, -1), alone = r;
  set tok = last_insert_id() >> 1, t = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) / 1e6;
  if last_insert_id() & 1 and wants <= cap then
    insert into interlock_claim values (r, tok, i, 1, wants, cap, its_ttl, t + its_ttl, t, 0, '', n, w);
    commit;
    select tok;
  else
    insert into interlock_claim select r, tok, i, 1, wants, cap, its_ttl, t + its_ttl, t, 0, '', n, w from dual
      where wants <= cap and not exists (select 1 from interlock_claim where resource = r)
        and not exists (select 1 from interlock_bell where topic = concat('q', r));
    if row_count() = 1 then
      update interlock_slot set lone = tok where k = crc32(r) & 1023;
      commit;
      select tok;
    else
      call interlock_v1_join(r, i, its_ttl, wants, cap, queued, place_ttl, b, n, w, tok, t);
    end if;
  end if;
end;

-- name: join
-- The rest of `claim`, for a resource that is not idle. Ends the transaction, and returns all columns of the step. tok: a new token; t: now.
-- A new claim reads the queue once; one that stands already, or finds others lapsed, reads what is ahead of it once more.
create procedure interlock_v1_join(r varbinary(1100), i varbinary(200), its_ttl double, wants int, cap int, queued boolean,
  place_ttl double, b varbinary(64), n mediumblob, w mediumblob, tok bigint, t double)
modifies sql data
whole: begin
  declare life, retry, first_lapse, latest, h_since, h_lapses double;
  declare mine, below, taken, ahead, first, free bigint;
  declare dead, others, own_capacity, takes, gone, h_permits int;
  declare stood tinyint;
  declare fits, moved, let_in, cleared, gone_ahead, pending boolean default false;
  declare reason, h_note, h_who mediumblob; declare h_id varbinary(200);
  declare messages, rings longblob default '';
  if exists (select 1 from interlock_pending where resource = r) then
    call interlock_v1_apply(r, t);
    set pending = exists (select 1 from interlock_pending where resource = r);
  end if;
  select sum(state < 2), coalesce(sum(if(state < 2, permits, 0)), 0), max(if(state < 2, capacity, null)), min(if(state < 2, token, null)),
      coalesce(sum(lapses_at <= t), 0), min(if(state < 2, lapses_at, null)), max(if(state < 2, lapses_at - ttl, null)), min(if(id = i and lapses_at > t, token, null))
    into ahead, taken, others, first, dead, first_lapse, latest, mine from interlock_claim where resource = r;
  if pending or mine is not null then
    set free = if(pending, 0, mine), below = if(pending, 9223372036854775807, mine), mine = null;
    select a.token, if(p.state = 2, 2, a.state), a.permits, a.capacity, if(p.state = 2, p.note, a.note) into mine, stood, takes, own_capacity, reason
      from interlock_claim a left join interlock_pending p on p.resource = a.resource and p.token = a.token
      where a.resource = r and a.token between free and below and a.id = i and coalesce(p.lapses_at, a.lapses_at) > t and coalesce(p.state, 0) <> 1
      order by a.token limit 1;
    set free = null;
  end if;
  if stood = 2 then rollback; select 'e', null, null, null, reason, null, null, null, null, null, null, null, null; leave whole; end if;
  set below = coalesce(mine, 9223372036854775807);
  if dead > 0 or latest > t + 1 then
    call interlock_v1_clear(r, t, gone);
    set cleared = true, gone_ahead = gone > 0;
  end if;
  if cleared or mine is not null then
    select count(*), coalesce(sum(permits), 0), max(capacity), min(token), min(lapses_at)
      into ahead, taken, others, first, first_lapse from interlock_claim where resource = r and token < below and state < 2;
  end if;
  set others = coalesce(others, own_capacity);
  if others <> cap then rollback; select 'm', null, others, null, null, null, null, null, null, null, null, null, null; leave whole; end if;
  set takes = coalesce(takes, wants), fits = taken + takes <= cap, life = if(fits, its_ttl, place_ttl);
  if mine is null then
    if fits or queued then
      insert into interlock_claim values (r, tok, i, fits, wants, cap, life, t + life, t, 0, if(fits, '', b), n, w);
      set mine = tok, moved = true;
    end if;
  else
    set let_in = fits and stood = 0, moved = let_in;
    select token into free from interlock_claim where resource = r and token = mine for update skip locked;
    if free is null then
      insert into interlock_pending values (r, mine, 0, life, t + life, null) on duplicate key update ttl = life, lapses_at = greatest(lapses_at, t + life);
    else
      update interlock_claim set since = if(fits and state = 0, t, since), state = fits, rung = 0, bell = if(fits or b = '', bell, b),
        ttl = if(lapses_at > t + ttl + 1 or t + life >= lapses_at, life, ttl), lapses_at = if(lapses_at > t + ttl + 1, t + ttl, greatest(lapses_at, t + life))
        where resource = r and token = mine;
    end if;
  end if;
  if not fits and ahead > 0 then
    select lapses_at - t into retry from interlock_claim where resource = r and token < coalesce(mine, below) and state < 2 and permits > cap - takes
      order by token desc limit 1;
    if retry is null and taken > cap then
      select lapses_at - t into retry from interlock_claim where resource = r and token < coalesce(mine, below) and state < 2 order by token desc limit 1;
    end if;
    set retry = coalesce(retry, first_lapse - t);
    if first_lapse <= t or exists (select 1 from interlock_pending where resource = r) then set retry = least(retry, 0.05); end if;
    select id, permits, t - since, lapses_at - t, note, who into h_id, h_permits, h_since, h_lapses, h_note, h_who
      from interlock_claim where resource = r and token = first;
  end if;
  if gone_ahead or let_in then call interlock_v1_advance(r, i, t, b, messages, rings, gone); end if;
  if gone_ahead or moved then call interlock_v1_watchers(concat('q', r), t, '', rings); end if;
  if gone_ahead or mine is not null then commit; else rollback; end if;
  if rings <> '' then call interlock_v1_ring(rings); end if;
  select if(fits, 'g', 'b'), mine, ahead, retry, null, messages, h_id, if(h_id is null, null, first), h_permits, h_since, h_lapses, h_note, h_who;
end;

-- name: release
-- See `steps.RELEASE`. Comes back: (stood, messages); or no rows at all for a claim that stood and whose end concerns nobody.
-- A claim that the slot knows to be the only one of its resource is removed by its key, without a look at anything else. If its row is locked, by a
-- guard or a renewal, that delete must not wait: MariaDB gives up at once (1205), and MySQL asks with SKIP LOCKED before. What was done until then
-- is rolled back, because with innodb_rollback_on_timeout the server may have done so, too.
create procedure interlock_v1_release(r varbinary(1100), i varbinary(200), linger double, own varbinary(64), late boolean, hint bigint)
modifies sql data
whole: begin
  declare t double;
  declare tok, removed bigint;
  declare exit handler for sqlexception begin rollback; resignal; end;
  @refuse_if_read_only@
  set transaction isolation level read committed;
  start transaction;
  insert into interlock_slot values (crc32(r) & 1023, last_insert_id(0), '', -1)
    on duplicate key update lone = if(last_insert_id(if(alone = r and lone > 0 and linger <= 0, lone, 0)) > 0, 0, -1);
  set tok = last_insert_id(), t = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) / 1e6;
  if tok > 0 then
    begin
      declare exit handler for 1205 begin end;
      /*!80019 if exists (select 1 from interlock_claim where resource = r and token = tok for update skip locked) then */
      /*M!100600 set statement innodb_lock_wait_timeout = 0 for */
      delete from interlock_claim where resource = r and token = tok and id = i and state < 2 and lapses_at > t and bell = '';
      set removed = row_count();
      /*!80019 end if; */
    end;
    if removed = 1 then
      commit;
      leave whole;
    end if;
    rollback;
    set transaction isolation level read committed;
    start transaction;
    update interlock_slot set lone = -1 where k = crc32(r) & 1023;
    set t = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) / 1e6;
  end if;
  call interlock_v1_depart(r, i, linger, own, late, hint, t);
end;

-- name: depart
-- The rest of `release`. Ends the transaction, and returns all columns of the step. There are two short ways here: for a claim that turns out to be
-- alone, and for a mutex that goes to its next waiter. The second rings as soon as it has written the mail: whoever is woken reads its mail with
-- a lock, and so waits for the commit in place of the ring. t: now. hint: the token of the claim, if it is known: nothing is searched for then, and nothing
-- ahead of it looked at. Nobody stands ahead of the holder of a mutex; rows that were deleted there and not purged yet are many after many hand-overs.
create procedure interlock_v1_depart(r varbinary(1100), i varbinary(200), linger double, own varbinary(64), late boolean, hint bigint, t double)
modifies sql data
whole: begin
  declare tok, ahead, other, target bigint;
  declare p, cap int;
  declare let_in int default 0;
  declare s tinyint;
  declare plain, pinned boolean default false;
  declare b, next_bell varbinary(64);
  declare next_id varbinary(200);
  declare messages, rings longblob default '';
  if hint > 0 then
    select token, state, permits, capacity, bell, (select o.token from interlock_claim o where o.resource = r and o.token > hint order by o.token limit 1),
        not exists (select 1 from interlock_pending where resource = r) and not exists (select 1 from interlock_bell where topic = concat('q', r))
      into tok, s, p, cap, b, other, plain from interlock_claim
      where resource = r and token = hint and id = i and state < 2 and lapses_at > t for update skip locked;
    if plain and other is null then
      set plain = not exists (select 1 from interlock_claim where resource = r and token < hint);
    elseif s = 0 or cap > 1 then
      set plain = false;
    end if;
  end if;
  if tok is null then
    select token, state, permits, capacity, bell, (select o.token from interlock_claim o where o.resource = r and o.token <> c.token order by o.token limit 1),
        not exists (select 1 from interlock_pending where resource = r) and not exists (select 1 from interlock_bell where topic = concat('q', r))
      into tok, s, p, cap, b, other, plain from interlock_claim c
      where resource = r and id = i and state < 2 and lapses_at > t order by token limit 1 for update skip locked;
  end if;
  if plain and linger <= 0 and b in ('', own) then
    if b <> '' then set messages = concat('c', i, ' 0'); end if;  -- somebody may wait for it to go: the waiter of a condition
    if other > tok and cap = 1 then
      select id, bell into next_id, next_bell from interlock_claim
        where resource = r and token = other and state = 0 and lapses_at > t and permits = 1 and capacity = 1;
    end if;
    if other is null or next_id is not null then
      if next_bell <> '' and next_bell <> own then
        insert into interlock_mail (bell, message, sent) values (next_bell, concat('c', next_id, ' ', other), t);
        set target = is_used_lock(concat('interlock.', next_bell));
        if target is not null then
          begin
            declare continue handler for sqlexception begin end;  -- as in `ring`
            kill query target;
          end;
        end if;
      elseif next_bell = own and own <> '' then
        set messages = concat_ws(char(10), nullif(messages, ''), concat('c', next_id, ' ', other));
      end if;
      delete from interlock_claim where resource = r and token = tok;
      if next_id is null then
        update interlock_slot set alone = r, lone = 0 where k = crc32(r) & 1023;
      else
        update interlock_claim set state = 1, since = t, rung = 1 where resource = r and token = other;
      end if;
      commit;
      select 1, messages;
      leave whole;
    end if;
    set messages = '';
  end if;

  if exists (select 1 from interlock_pending where resource = r) then
    call interlock_v1_apply(r, t);
    set tok = null;
    select token, state, permits, capacity, bell into tok, s, p, cap, b from interlock_claim
      where resource = r and id = i and state < 2 and lapses_at > t order by token limit 1 for update skip locked;
  end if;
  if tok is null then  -- it does not stand, or a guard has locked its row, or it lives because of a renewal that could not reach the row
    select a.token, a.state, a.permits, a.capacity, a.bell into tok, s, p, cap, b
      from interlock_claim a left join interlock_pending q on q.resource = a.resource and q.token = a.token
      where a.resource = r and a.id = i and a.state < 2 and coalesce(q.lapses_at, a.lapses_at) > t and coalesce(q.state, 0) = 0 order by a.token limit 1;
    if tok is null then
      if late then
        update interlock_slot set last = last_insert_id(greatest(last + 1, timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)))) where k = crc32(r) & 1023;
        insert into interlock_claim values (r, last_insert_id(), i, 2, 0, 1, 60, t + 60, t, 1, '', 'it was released', '');
        commit;
      else rollback; end if;
      select 0, null; leave whole;
    end if;
    set pinned = true;
  end if;
  if linger > 0 then
    select coalesce(sum(permits), 0) into ahead from interlock_claim where resource = r and token < tok and state < 2;
    if ahead + p > cap then set linger = 0; end if;
  end if;
  if pinned then
    insert into interlock_pending values (r, tok, 1, linger, t + linger, null) on duplicate key update state = 1, ttl = linger, lapses_at = t + linger;
  elseif linger > 0 then
    update interlock_claim set id = concat('lingering-', tok), ttl = linger, lapses_at = t + linger, bell = '' where resource = r and token = tok;
  else
    delete from interlock_claim where resource = r and token = tok;
  end if;
  call interlock_v1_notify(b, concat('c', i, ' 0'), own, messages, rings);  -- somebody may wait for it to go: the waiter of a condition
  if (select state from interlock_claim where resource = r and state < 2 order by token desc limit 1) = 0 then  -- if the last one is in, nobody waits
    call interlock_v1_advance(r, '', t, own, messages, rings, let_in);
  end if;
  call interlock_v1_watchers(concat('q', r), t, '', rings);
  call interlock_v1_nudge(r, tok, s, p, t, own, messages, rings, let_in);
  commit;
  if rings <> '' then call interlock_v1_ring(rings); end if;
  select 1, messages;
end;

-- name: renew
-- See `steps.RENEW`. items: each is "resource,id,ttl,token,waiting,note,permits;" with resource, id and note in hex, and - for a null. A plain text, because
-- JSON_TABLE would write a temporary table to the disk for each call.
-- Comes back: one row, (answers, reasons, messages): a letter for each item, and the reasons of evicted ones in hex, separated by commas.
-- First all rows that are free are prolonged in one transaction, without the lock on any resource. What is left has gone, is locked
-- by somebody, or asks for more than time: it is decided one by one, each under the lock of its resource.
create procedure interlock_v1_renew(items longtext character set ascii, own varbinary(64))
modifies sql data
begin
  declare r varbinary(1100); declare i varbinary(200);
  declare its_ttl, t double;
  declare reason mediumblob;
  declare rest, item, n_hex longtext character set ascii default items;
  declare shrinks int;
  declare place int default 0;
  declare tok, hint bigint;
  declare s, rang, waiting, asks tinyint;
  declare one varchar(1) character set ascii;
  declare answers, reasons longtext character set ascii default '';
  declare messages, rings longblob default '';
  declare exit handler for sqlexception begin rollback; resignal; end;
  @refuse_if_read_only@
  set transaction isolation level read committed;
  start transaction;
  set t = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) / 1e6;
  while rest <> '' do
    set item = substring_index(rest, ';', 1), tok = null, one = '?';
    set rest = substring(rest, length(item) + 2);
    if item like '%,-,-' then
      set r = unhex(substring_index(item, ',', 1)), i = unhex(substring_index(substring_index(item, ',', 2), ',', -1)),
        its_ttl = substring_index(substring_index(item, ',', 3), ',', -1), hint = substring_index(substring_index(item, ',', 4), ',', -1),
        waiting = substring_index(substring_index(item, ',', 5), ',', -1);
      if hint > 0 then
        select token, state, rung into tok, s, rang from interlock_claim
          where resource = r and token = hint and id = i and state < 2 and lapses_at > t for update skip locked;
      end if;
      if tok is null then
        select token, state, rung into tok, s, rang from interlock_claim
          where resource = r and id = i and state < 2 and lapses_at > t order by token limit 1 for update skip locked;
      end if;
      if s = 0 and not waiting and tok is not null then
        set one = 'x';  -- it only waits, and its caller holds it: somebody made the caller believe that
      elseif tok is not null and not exists (select 1 from interlock_pending where resource = r and token = tok) then
        update interlock_claim set ttl = if(lapses_at > t + ttl + 1 or t + its_ttl >= lapses_at, its_ttl, ttl),
          lapses_at = if(lapses_at > t + ttl + 1, t + ttl, greatest(lapses_at, t + its_ttl)) where resource = r and token = tok;
        set one = 'r';
        if waiting then
          if s = 1 then
            set messages = concat_ws(char(10), nullif(messages, ''), concat('c', i, ' ', tok));
          else
            set s = null, asks = 1;
            select state, lapses_at <= t + least(ttl, its_ttl) / 2 or lapses_at > t + ttl + 1 into s, asks from interlock_claim
              where resource = r and token < tok and state < 2 order by token desc limit 1;
            if s = 1 then call interlock_v1_patrol(r, tok, its_ttl, t, asks); end if;
            if rang or asks then set messages = concat_ws(char(10), nullif(messages, ''), concat('c', i, ' 0')); end if;
          end if;
        end if;
      end if;
    end if;
    set answers = concat(answers, one);
  end while;
  commit;
  if locate('?', answers) then
    set rest = items;
    while rest <> '' do
      set item = substring_index(rest, ';', 1), place = place + 1;
      set rest = substring(rest, length(item) + 2);
      if substring(answers, place, 1) = '?' then
        set r = unhex(substring_index(item, ',', 1)), i = unhex(substring_index(substring_index(item, ',', 2), ',', -1)),
          its_ttl = substring_index(substring_index(item, ',', 3), ',', -1), waiting = substring_index(substring_index(item, ',', 5), ',', -1),
          n_hex = nullif(substring_index(substring_index(item, ',', 6), ',', -1), '-'), shrinks = nullif(substring_index(item, ',', -1), '-');
        call interlock_v1_renew_one(r, i, its_ttl, waiting, unhex(n_hex), shrinks, own, one, reason, messages, rings);
        set answers = insert(answers, place, 1, one);
        if one = 'e' then set reasons = concat(reasons, hex(reason), ','); end if;
      end if;
    end while;
  end if;
  if rings <> '' then call interlock_v1_ring(rings); end if;
  select answers, reasons, messages;
end;

-- name: patrol
-- Whether the first waiter must ask, because of the holders: `steps.RENEW` says when. Nothing is locked: what changes at this very moment rings by itself, or is
-- seen by the next renewal. place: the token. its_ttl: that of the place, which is renewed again after a third of it.
create procedure interlock_v1_patrol(r varbinary(1100), place bigint, its_ttl double, t double, out asks tinyint)
reads sql data
begin
  select sum(a.lapses_at <= t + least(a.ttl, its_ttl) / 2 or a.lapses_at > t + a.ttl + 1) > 0 or sum(a.permits) + max(w.permits) <= max(w.capacity) into asks
    from interlock_claim w join interlock_claim a on a.resource = r and a.token < place and a.state < 2 where w.resource = r and w.token = place;
end;

-- name: renew_one
-- One renewal under the lock of its resource, as a transaction of its own.
create procedure interlock_v1_renew_one(r varbinary(1100), i varbinary(200), its_ttl double, waiting tinyint, n mediumblob, shrinks int, own varbinary(64),
  out answer varchar(1) character set ascii, out reason mediumblob, inout messages longblob, inout rings longblob)
modifies sql data
begin
  declare t double;
  declare tok, free bigint;
  declare s, changed tinyint; declare p, let_in int; declare b varbinary(64);
  set transaction isolation level read committed;
  start transaction;
  update interlock_slot set lone = -1 where k = crc32(r) & 1023;
  set t = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) / 1e6, tok = null, free = null, answer = 'x', reason = null;
  if exists (select 1 from interlock_pending where resource = r) then call interlock_v1_apply(r, t); end if;
  select a.token, if(q.state = 2, 2, a.state), a.permits, a.bell, if(q.state = 2, q.note, a.note), coalesce(n <> coalesce(q.note, a.note), false)
    into tok, s, p, b, reason, changed
    from interlock_claim a left join interlock_pending q on q.resource = a.resource and q.token = a.token
    where a.resource = r and a.id = i and coalesce(q.lapses_at, a.lapses_at) > t and coalesce(q.state, 0) <> 1 order by a.token limit 1;
  if s = 2 then set answer = 'e';
  elseif tok is not null and (s = 1 or waiting) then
    select token into free from interlock_claim where resource = r and token = tok for update skip locked;
    if free is not null then
      update interlock_claim set ttl = if(lapses_at > t + ttl + 1 or t + its_ttl >= lapses_at, its_ttl, ttl),
        lapses_at = if(lapses_at > t + ttl + 1, t + ttl, greatest(lapses_at, t + its_ttl)),
        note = coalesce(n, note) where resource = r and token = tok;
      set answer = 'r';
    elseif shrinks is null or shrinks >= p then
      insert into interlock_pending values (r, tok, 0, its_ttl, t + its_ttl, n)
        on duplicate key update ttl = its_ttl, lapses_at = greatest(lapses_at, t + its_ttl), note = coalesce(n, note);
      set answer = 'r';
    else set answer = 'n'; end if;
    if answer = 'r' and shrinks < p then
      update interlock_claim set permits = shrinks where resource = r and token = tok;
      call interlock_v1_advance(r, '', t, own, messages, rings, let_in);
      call interlock_v1_nudge(r, tok, s, p, t, own, messages, rings, let_in);
      if s = 0 then
        update interlock_claim set rung = 1 where resource = r and token = tok;
        call interlock_v1_notify(b, concat('c', i, ' 0'), own, messages, rings);  -- a narrower claim watches other claims
      end if;
      set changed = true;
    end if;
    if changed then call interlock_v1_watchers(concat('q', r), t, '', rings); end if;
  end if;
  commit;
end;

-- name: evict
-- See `steps.EVICT`. Returns the victims as one text: for each its columns, separated by commas and with bytes in hexadecimal, and a semicolon.
-- The text is kept among the registers, under the id of the call: a new row among the claims would wait for the gaps that a guard has locked.
create procedure interlock_v1_evict(r varbinary(1100), only_id varbinary(200), reason mediumblob, remembered double, its_call varbinary(200))
modifies sql data
whole: begin
  declare t, life double;
  declare answer, victim longblob default null;
  declare tok, free bigint;
  declare i varbinary(200); declare b varbinary(64);
  declare s tinyint; declare p, let_in int;
  declare messages, rings longblob default '';
  declare done boolean default false;
  declare victims cursor for select token, id, state, ttl, bell,
      concat_ws(',', token, hex(id), permits, capacity, t - since, lapses_at - t, hex(note), hex(who), inside)
    from (select a.*,
      sum(a.permits) over (order by a.token) <= a.capacity as inside
    from interlock_claim a left join interlock_pending q on q.resource = a.resource and q.token = a.token
    where a.resource = r and a.state < 2 and coalesce(q.lapses_at, a.lapses_at) > t and coalesce(q.state, 0) < 2) as standing
    where if(only_id is null, inside, id = only_id) order by token;
  declare leaving cursor for select token, state, permits from (select a.token, a.id, a.state, a.permits,
      sum(a.permits) over (order by a.token) <= a.capacity as inside
    from interlock_claim a left join interlock_pending q on q.resource = a.resource and q.token = a.token
    where a.resource = r and a.state < 2 and coalesce(q.lapses_at, a.lapses_at) > t and coalesce(q.state, 0) < 2) as standing
    where if(only_id is null, inside, id = only_id) order by token;
  declare continue handler for not found set done = true;
  declare exit handler for sqlexception begin rollback; resignal; end;
  @refuse_if_read_only@
  set transaction isolation level read committed;
  start transaction;
  update interlock_slot set lone = -1 where k = crc32(r) & 1023;
  set t = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) / 1e6;
  select value into answer from interlock_register where name = its_call and lapses_at > t;
  if answer is not null then
    rollback;
    select answer;
    leave whole;
  end if;
  if exists (select 1 from interlock_pending where resource = r) then call interlock_v1_apply(r, t); end if;
  set answer = '';
  open victims;
  open leaving;
  marking: loop
    set done = false;
    fetch victims into tok, i, s, life, b, victim;
    if done then leave marking; end if;
    set answer = concat(answer, victim, ';');
    set life = greatest(life, remembered), free = null;
    select token into free from interlock_claim where resource = r and token = tok for update skip locked;
    if free is null then
      insert into interlock_pending values (r, tok, 2, life, t + life, reason) on duplicate key update state = 2, ttl = life, lapses_at = t + life, note = reason;
    else
      update interlock_claim set state = 2, permits = 0, rung = 1, note = reason, ttl = life, lapses_at = t + life where resource = r and token = tok;
    end if;
    call interlock_v1_notify(b, concat('c', i, ' 0'), '', messages, rings);
  end loop;
  close victims;
  call interlock_v1_advance(r, '', t, '', messages, rings, let_in);
  call interlock_v1_watchers(concat('q', r), t, '', rings);
  nudging: loop
    set done = false;
    fetch leaving into tok, s, p;
    if done then leave nudging; end if;
    call interlock_v1_nudge(r, tok, s, p, t, '', messages, rings, let_in);
  end loop;
  close leaving;
  insert into interlock_register values (its_call, answer, 1, its_call, t + remembered);
  commit;
  if rings <> '' then call interlock_v1_ring(rings); end if;
  select answer;
end;

-- name: queue
-- See `steps.QUEUE`.
create procedure interlock_v1_queue(r varbinary(1100), most int)
reads sql data
begin
  declare t double default timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) / 1e6;
  if most is null then set most = 2147483647; end if;
  select a.token, if(q.state = 1, concat('lingering-', a.token), a.id), a.permits, a.capacity, t - a.since, coalesce(q.lapses_at, a.lapses_at) - t,
      coalesce(q.note, a.note), a.who
    from interlock_claim a left join interlock_pending q on q.resource = a.resource and q.token = a.token
    where a.resource = r and a.state < 2 and coalesce(q.lapses_at, a.lapses_at) > t and coalesce(q.state, 0) < 2 order by a.token limit most;
end;

-- name: names
-- See `steps.NAMES`. beyond: the least name above all with this prefix, null if there is none.
create procedure interlock_v1_names(prefix varbinary(1100), beyond varbinary(1100), after varbinary(1100), most int)
reads sql data
begin
  declare t double default timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) / 1e6;
  if beyond is null then
    select distinct resource from interlock_claim where resource > after and resource >= prefix and state < 2 and lapses_at > t order by resource limit most;
  else
    select distinct resource from interlock_claim where resource > after and resource >= prefix and resource < beyond and state < 2 and lapses_at > t
      order by resource limit most;
  end if;
end;

-- name: find
-- See `steps.FIND`. If our bell is in the row already, it only reads. Otherwise it takes the lock of the resource: a bell that is
-- written between the moment in which another call reads the old one and its commit would never be rung.
create procedure interlock_v1_find(r varbinary(1100), i varbinary(200), own varbinary(64), hint bigint)
modifies sql data
whole: begin
  declare lowest bigint default hint;
  declare highest bigint default if(hint > 0, hint, 9223372036854775807);
  declare t, l double default timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) / 1e6;
  declare tok, free bigint;
  declare s, rang tinyint; declare b varbinary(64);
  declare exit handler for sqlexception begin rollback; resignal; end;
  select a.token, a.state, a.rung, coalesce(q.lapses_at, a.lapses_at), a.bell into tok, s, rang, l, b
    from interlock_claim a left join interlock_pending q on q.resource = a.resource and q.token = a.token
    where a.resource = r and a.token between lowest and highest and a.id = i and a.state < 2 and coalesce(q.lapses_at, a.lapses_at) > t
      and coalesce(q.state, 0) = 0 order by a.token limit 1;
  if tok is null then leave whole; end if;
  if own <> '' and b <> own then
    rollback;
    @refuse_if_read_only@
    set transaction isolation level read committed;
    start transaction;
    select last into tok from interlock_slot where k = crc32(r) & 1023 for update;
    set tok = null;
    select token, state, rung, lapses_at into tok, s, rang, l from interlock_claim
      where resource = r and token between lowest and highest and id = i and state < 2 and lapses_at > t order by token limit 1 for update skip locked;
    if tok is null then
      rollback;
      leave whole;  -- it has gone meanwhile, or its row is locked: the caller asks again
    end if;
    update interlock_claim set bell = own where resource = r and token = tok;
    commit;
  end if;
  select s, rang, tok, l - t;
end;

-- name: read
-- See `steps.READ`.
create procedure interlock_v1_read(its_name varbinary(1100))
reads sql data
select value, version from interlock_register
  where name = its_name and (lapses_at is null or lapses_at > timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) / 1e6);

-- name: write
-- See `steps.WRITE`.
create procedure interlock_v1_write(its_name varbinary(1100), expected bigint, new_value longblob, i varbinary(200), own varbinary(64), remembered double)
modifies sql data
whole: begin
  declare t, l double;
  declare number, present bigint;
  declare who varbinary(200);
  declare rings longblob default '';
  declare exit handler for sqlexception begin rollback; resignal; end;
  @refuse_if_read_only@
  set transaction isolation level read committed;
  start transaction;
  update interlock_slot set last = last_insert_id(greatest(last + 1, timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)))) where k = crc32(its_name) & 1023;
  set number = last_insert_id(), t = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) / 1e6;
  select version, writer into present, who from interlock_register where name = its_name and (lapses_at is null or lapses_at > t);
  if who = i then
    rollback;
    select value, version from interlock_register where name = its_name;
    leave whole;
  end if;
  if coalesce(present, 0) <> expected then rollback; leave whole; end if;
  set l = if(new_value is null, t + remembered, null);
  insert into interlock_register values (its_name, new_value, number, i, l)
    on duplicate key update value = new_value, version = number, writer = i, lapses_at = l;
  call interlock_v1_watchers(concat('r', its_name), t, own, rings);
  commit;
  if rings <> '' then call interlock_v1_ring(rings); end if;
  select new_value, number;
end;

-- name: watch
-- See `steps.WATCH`. It takes the lock of the name: the caller looks afterwards, and sees every change that did not ring its bell.
create procedure interlock_v1_watch(about varbinary(1101), b varbinary(64), seconds double)
modifies sql data
begin
  declare t double;
  declare exit handler for sqlexception begin rollback; resignal; end;
  @refuse_if_read_only@
  set transaction isolation level read committed;
  start transaction;
  update interlock_slot set lone = -1 where k = crc32(substring(about, 2)) & 1023;
  set t = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) / 1e6;
  insert into interlock_bell values (about, b, t + seconds) on duplicate key update lapses_at = t + seconds;
  commit;
end;

-- name: listen
-- Returns the mail of a bell, as (n, message). If there is none, it sleeps for so many seconds first and looks once more; `ring` ends the
-- sleep. A ring at any moment is noticed: before the first look the mail is there already, and between the look and the sleep it
-- ends the whole call with error 1317, after which the caller looks again. Both looks wait for mail that is written and not committed yet,
-- because a ring may come before the commit. The session is at READ COMMITTED, so that nobody waits for a look. seen: the numbers of mail that was read before, separated by commas; tidy: whether to remove it.
-- On MariaDB only one process of a server sleeps, and the others wait for the lock that it holds, which `kill query` ends as well. All who call
-- sleep() share a mutex there. A kill that finds it taken wakes its victim, which takes the mutex and then waits for the killer, who tries to get the
-- mutex 20 times and gives up after a second. Until then the killer stands still, and everybody who sleeps or wants to.
create procedure interlock_v1_listen(b varbinary(64), seconds double, seen longtext character set ascii, tidy boolean)
modifies sql data
begin
  if tidy then delete from interlock_mail where bell = b and find_in_set(n, seen); end if;
  if seconds > 0 and not exists (select 1 from interlock_mail where bell = b and not find_in_set(n, seen) lock in share mode) then
    /*M!100600 if get_lock('interlock.asleep', seconds) then */ do sleep(seconds); /*M!100600 end if; */
  end if;
  select n, message from interlock_mail where bell = b and not find_in_set(n, seen) order by n lock in share mode;
end;

-- name: sweep
-- See `steps.SWEEP`. Each lapsed row is removed under the lock of its resource, unless somebody else has that lock.
create procedure interlock_v1_sweep(after_resource varbinary(1100), after_token bigint, slice int)
modifies sql data
begin
  declare t double;
  declare r, last_r varbinary(1100);
  declare tok, last_tok bigint;
  declare k0, one int;
  declare gone int default 0;
  declare done boolean default false;
  declare lapsed cursor for select resource, token from interlock_claim
    where (resource > after_resource or (resource = after_resource and token > after_token)) and lapses_at <= t
      and (last_r is null or resource < last_r or (resource = last_r and token <= last_tok)) limit slice;
  declare continue handler for not found set done = true;
  declare exit handler for sqlexception begin rollback; resignal; end;
  @refuse_if_read_only@
  set transaction isolation level read committed;
  start transaction;
  set t = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) / 1e6, slice = slice - 1;
  select resource, token into last_r, last_tok from interlock_claim
    where resource > after_resource or (resource = after_resource and token > after_token) order by resource, token limit slice, 1;
  open lapsed;
  walk: loop
    set done = false;
    fetch lapsed into r, tok;
    if done then leave walk; end if;
    set k0 = null;
    select k into k0 from interlock_slot where k = crc32(r) & 1023 for update skip locked;
    if k0 is not null then
      call interlock_v1_remove(r, tok, t, one);
      set gone = gone + one;
    end if;
  end loop;
  close lapsed;
  delete from interlock_register where lapses_at <= t limit 1000;
  set gone = gone + row_count();
  delete from interlock_bell where lapses_at <= t limit 1000;
  delete from interlock_mail where n < (select n from (select coalesce(min(n), 0) + 1000 as n from interlock_mail) as oldest) and sent < t - 60;
  commit;
  select gone, last_r, last_tok;
end;
