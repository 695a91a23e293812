-- One function for each step of interlock that changes claims or registers: one call is one atomic step, and one round trip.
-- Lock order, always: the advisory lock of the resource, then its slot, then rows of claims by token.
-- Every statement of a volatile PL/pgSQL function has its own snapshot at READ COMMITTED: what follows the lock sees what its last owner
-- committed. At any other isolation level it would not, so `enter` refuses them.
-- A template: see schema.sql. @seed@ keeps the keys of this schema apart from those of others. @by_key@ has a function read rows in the order of the key: without
-- statistics the planner takes a resource for a few rows, and reads and sorts all of them to find the first, or the one just ahead.
-- @pinned@ gives a step, and all that it calls, the functions and operators of PostgreSQL, whatever the search path of the session finds before them, and
-- has it fail where a policy would hide rows: either would let two holders in.
-- Names below: r resource, i id, b the bell of the asking client, t now, tok token.

-- Takes the lock of a resource for this transaction; returns the time after that.
-- The lock is waited for at most 10 seconds: a forgotten session that holds it must not fill the server with those who wait.
create or replace function @enter@(key bigint) returns float8 language plpgsql as $$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'interlock needs the isolation level read committed' using errcode = 'IL001';
  end if;
  if not pg_try_advisory_xact_lock(key) then
    perform set_config('lock_timeout', '10s', true);
    perform pg_advisory_xact_lock(key);
  end if;
  return @now@;
end $$;

-- Draws `block` numbers of a resource or register, and returns the first.
create or replace function @draw@(key bigint, t float8, block int) returns bigint language plpgsql as $$
declare first bigint;
begin
  update @slot@ set last = greatest(last + 1, (t * 1e6)::bigint) + block - 1
    where k = (key & 1023)::int returning last - block + 1 into first;
  return first;
end $$;

-- Rings a bell about a claim, or returns the message if the bell is the asking client's own.
create or replace function @ring@(bell text, b text, message text) returns text language plpgsql as $$
begin
  if bell = '' then return ''; end if;
  if bell = b then return E'\n' || message; end if;
  perform pg_notify(bell, message);
  return '';
end $$;

-- Notifies the clients that watch the queue of a resource.
create or replace function @notify@(r text, t float8) returns void language plpgsql as $$
begin
  perform pg_notify(bell, 'q' || r) from @claim@ where resource = r and token < 0 and lapses_at > t;
end $$;

-- Admits and rings the claims that fit now and have not been notified; removes those at the front that have lapsed. A lapsed row that a
-- guard's open transaction has locked (KEY SHARE) is not removed, and still stands.
-- The first claim that does not fit is rung too if it waits for all holders alike (a semaphore): others may have come in ahead of it, and it
-- knows nothing of their lapses. The claim that is `asking` is not rung. messages: for the asking client, each after a newline.
-- It begins at the first that waits: one statement counts the holders, unless one of them has lapsed. After 64 it stops, and has the next one ask, which
-- goes on from there: readers come by the thousand, and nobody else gets the lock of the resource meanwhile.
create or replace function @advance@(r text, t float8, asking text, b text, out messages text, out let_in int) language plpgsql @by_key@ as $$
declare c record; taken bigint := 0; widest int := 0; waiter bigint;
begin
  messages := ''; let_in := 0;
  select token into waiter from @claim@ where resource = r and state = 0 order by token limit 1;
  if waiter is null then return; end if;
  select coalesce(sum(permits), 0), coalesce(max(permits), 0), case when bool_or(lapses_at <= t) then null else waiter end into taken, widest, waiter
    from @claim@ where resource = r and token < waiter and state < 2;
  if waiter is null then taken := 0; widest := 0; waiter := 0; end if;
  for c in select token, id, state, permits, capacity, lapses_at, rung, bell from @claim@
           where resource = r and token >= waiter and state < 2 order by token loop
    if c.lapses_at <= t then
      delete from @claim@ where resource = r and token =
        (select token from @claim@ where resource = r and token = c.token and lapses_at <= t for update skip locked);
      continue when found;
    end if;
    taken := taken + c.permits;
    if taken > c.capacity then
      if c.id <> asking and not c.rung and widest <= c.capacity - c.permits then
        update @claim@ set rung = true where resource = r and token = c.token;
        messages := messages || @ring@(c.bell, b, 'c' || c.id || ' 0');
      end if;
      exit;
    end if;
    if c.state = 0 and let_in >= 64 then
      if c.id <> asking and not c.rung then
        update @claim@ set rung = true where resource = r and token = c.token;
        messages := messages || @ring@(c.bell, b, 'c' || c.id || ' 0');
      end if;
      exit;
    end if;
    widest := greatest(widest, c.permits);
    if c.state = 0 then
      let_in := let_in + 1;
      update @claim@ set state = 1, since = t, rung = true where resource = r and token = c.token;
      messages := messages || @ring@(c.bell, b, 'c' || c.id || ' ' || c.token);
    end if;
  end loop;
end $$;

-- Rings the claims that stay outside and watched a claim that leaves or shrinks (its token, permits and state before that).
-- Beyond a claim at least as wide nobody can have watched it, so a mutex looks at one row. let_in: how many `advance` has let in just now; if it has stopped
-- because they are many, those who are left are let in next, and have nothing to ask. At most 64 are rung: the renewals of the others' places look for them.
create or replace function @nudge@(r text, t float8, tok bigint, its_permits int, its_state int, b text, let_in int) returns text
language plpgsql @by_key@ as $$
declare c record; widest int := 0; messages text := ''; n int := 0;
begin
  if let_in >= 64 then return ''; end if;
  for c in select token, id, state, permits, capacity, rung, bell from @claim@
           where resource = r and token > tok and state < 2 and lapses_at > t order by token loop
    if c.state = 0 and not c.rung and ((widest = 0 and its_state = 0)
        or (its_permits > c.capacity - c.permits and widest <= c.capacity - c.permits)) then
      update @claim@ set rung = true where resource = r and token = c.token;
      messages := messages || @ring@(c.bell, b, 'c' || c.id || ' 0');
      n := n + 1;
    end if;
    widest := greatest(widest, c.permits);
    exit when widest >= its_permits or n >= 64;
  end loop;
  return messages;
end $$;

-- Enters a claim, or repeats it. Returns 'g' and the token, or an array in JSON:
-- ["b", token or null, ahead, retry, null, messages, id, token, permits, age, lapses in, note, who of the first], ["e", …, reason], ["m", …, capacity].
create or replace function @claim_step@(
  r text, i text, its_ttl float8, wants int, cap int, queued boolean, place_ttl float8, block int, b text, n text, w text
) returns text language plpgsql @pinned@ as $$
declare key constant bigint := hashtextextended(r, @seed@); t float8; tok bigint;
begin
  -- As `enter`, whose call would be a tenth of the work.
  if current_setting('transaction_isolation') <> 'read committed' or not pg_try_advisory_xact_lock(key) then
    t := @enter@(key);
  else
    t := @now@;
  end if;
  if wants > cap or exists (select from @claim@ where resource = r) then
    return @claim_long@(r, i, its_ttl, wants, cap, queued, place_ttl, block, b, n, w, key, t);
  end if;
  update @slot@ set last = greatest(last + 1, (t * 1e6)::bigint) + block - 1
    where k = (key & 1023)::int returning last - block + 1 into tok;
  insert into @claim@ values (r, tok, i, 1, wants, cap, its_ttl, t + its_ttl, t, false, '', n, w);
  return 'g' || tok;
end $$;

-- The same where somebody stands, or watches. A new claim reads the queue once; one that stands already, or finds others lapsed, reads it once more.
create or replace function @claim_long@(
  r text, i text, its_ttl float8, wants int, cap int, queued boolean, place_ttl float8, block int, b text, n text, w text,
  key bigint, t float8
) returns text language plpgsql @by_key@ as $$
declare
  tok bigint; stood int; takes int; reason text; others int; taken bigint; ahead bigint; dead boolean; far boolean; pinned boolean := false;
  watched boolean; fits boolean; messages text := ''; retry float8; first_lapse float8; moved boolean := false; holder record;
begin
  select coalesce(bool_or(lapses_at <= t), false), coalesce(bool_or(lapses_at > t + ttl + 1), false), coalesce(bool_or(state = 3), false),
         min(token) filter (where id = i and state < 3 and lapses_at > t),
         max(capacity) filter (where state < 2), coalesce(sum(permits) filter (where state < 2), 0), count(*) filter (where state < 2),
         min(lapses_at) filter (where state < 2)
    into dead, far, watched, tok, others, taken, ahead, first_lapse from @claim@ where resource = r;
  if far then  -- the clock was set back: nobody waits for an hour that will not come, and no holder loses anything of its ttl
    update @claim@ set lapses_at = t + ttl where resource = r and lapses_at > t + ttl + 1;
  end if;
  if tok is not null then
    select state, permits, note into stood, takes, reason from @claim@ where resource = r and token = tok;
  end if;
  if stood = 2 then return json_build_array('e', null, null, null, reason, '', null, null, null, null, null, null, null); end if;
  if dead then
    delete from @claim@ c using (select token from @claim@ where resource = r and lapses_at <= t for update skip locked) d
      where c.resource = r and c.token = d.token;
  end if;
  -- Counted after the removal: whatever is still there stands, whether a guard has locked it or a renewal came in between.
  if dead or far or tok is not null then
    select max(capacity), coalesce(sum(permits) filter (where tok is null or token < tok), 0), count(*) filter (where tok is null or token < tok),
           min(lapses_at) filter (where tok is null or token < tok), coalesce(bool_or(lapses_at <= t), false)
      into others, taken, ahead, first_lapse, pinned from @claim@ where resource = r and state < 2;
  end if;
  if others <> cap then
    if dead then messages := (@advance@(r, t, i, b)).messages; end if;
    return json_build_array('m', null, others, null, null, substr(messages, 2), null, null, null, null, null, null, null);
  end if;
  if tok is null then
    fits := taken + wants <= cap;
    moved := fits or queued;
    if moved then
      tok := @draw@(key, t, block);
      insert into @claim@ values (r, tok, i, fits::int, wants, cap, case when fits then its_ttl else place_ttl end,
        t + case when fits then its_ttl else place_ttl end, t, false, case when fits then '' else b end, n, w);
    end if;
  else
    wants := takes;
    fits := taken + wants <= cap;
    moved := fits and stood = 0;
    update @claim@ c set since = case when fits and state = 0 then t else since end, state = fits::int, rung = false,
      bell = case when fits or b = '' then c.bell else b end,
      ttl = case when t + (case when fits then its_ttl else place_ttl end) > lapses_at then (case when fits then its_ttl else place_ttl end) else ttl end,
      lapses_at = greatest(lapses_at, t + case when fits then its_ttl else place_ttl end)
      where resource = r and token = tok;
  end if;
  if dead or (moved and stood is not null) then messages := (@advance@(r, t, i, b)).messages; end if;
  if watched and (dead or moved) then perform @notify@(r, t); end if;
  if fits and messages = '' then return 'g' || tok; end if;
  if fits then return json_build_array('g', tok, null, null, null, substr(messages, 2), null, null, null, null, null, null, null); end if;
  -- What it must watch: the nearest ahead that cannot share with it; else all holders, or the one just ahead.
  select lapses_at into retry from @claim@ where resource = r and state < 2 and permits > cap - wants
    and (tok is null or token < tok) order by token desc limit 1;
  if retry is null and taken > cap then
    select lapses_at into retry from @claim@ where resource = r and state < 2 and (tok is null or token < tok) order by token desc limit 1;
  end if;
  retry := coalesce(retry, first_lapse, t) - t;
  if pinned then retry := least(retry, 0.05); end if;
  select c.id, c.token, c.permits, t - c.since as age, c.lapses_at - t as left, c.note, c.who into holder from @claim@ c
    where c.resource = r and c.state < 2 and (tok is null or c.token < tok) order by c.token limit 1;
  return json_build_array('b', tok, ahead, greatest(retry, 0.0), null, substr(messages, 2),
    holder.id, holder.token, holder.permits, holder.age, holder.left, holder.note, holder.who);
end $$;

-- Removes a claim and lets others in. Returns 't' if it stood and 'f' if not, and then the messages for the asking client.
-- A claim that stands alone, or hands a mutex to the next, takes the short way. hint: its token if that is known, else 0; then its row is searched for.
create or replace function @release_step@(r text, i text, linger float8, b text, late boolean, hint bigint) returns text language plpgsql @pinned@ as $$
declare
  key constant bigint := hashtextextended(r, @seed@); t float8; tok bigint; next_tok bigint; next_id text; next_bell text;
  highest constant bigint := case when hint > 0 then hint else 9223372036854775807 end;
begin
  if current_setting('transaction_isolation') <> 'read committed' or not pg_try_advisory_xact_lock(key) then
    t := @enter@(key);
  else
    t := @now@;
  end if;
  if linger <= 0 then
    -- Skipped if a guard has locked it, and by its place in the heap: the row is locked before that is read.
    delete from @claim@ where ctid =
      (select ctid from @claim@ where resource = r and token between hint and highest and id = i and state = 1 and lapses_at > t and bell in ('', b)
        for update skip locked)
      and not exists (select from @claim@ where resource = r and id <> i);
    if found then return 'tl'; end if;  -- lone: nobody was let in by it
    -- The first two rows in one statement: our own, which fills the capacity, and a claim behind it that waits and will fill it.
    select mine.token, n.token, n.id, n.bell into tok, next_tok, next_id, next_bell
      from (select token, id, state, permits, capacity, lapses_at, bell from @claim@ where resource = r order by token limit 1) mine,
        lateral (select token, id, state, permits, capacity, lapses_at, bell from @claim@
          where resource = r and token > mine.token order by token limit 1) n
      where mine.id = i and mine.state = 1 and mine.permits = mine.capacity and mine.lapses_at > t and mine.bell in ('', b)
        and n.state = 0 and n.permits = n.capacity and n.lapses_at > t;
    if found then
      delete from @claim@ where ctid = (select ctid from @claim@ where resource = r and token = tok for update skip locked);
      if found then
        update @claim@ set state = 1, since = t, rung = true where resource = r and token = next_tok;
        if next_bell = '' then return 't'; end if;
        if next_bell = b then return E't\nc' || next_id || ' ' || next_tok; end if;
        perform pg_notify(next_bell, 'c' || next_id || ' ' || next_tok);
        return 't';
      end if;
    end if;
  end if;
  return @release_long@(r, i, linger, b, late, hint, key, t);
end $$;

create or replace function @release_long@(r text, i text, linger float8, b text, late boolean, hint bigint, key bigint, t float8) returns text
language plpgsql @by_key@ as $$
declare tok bigint; its_state int; its_permits int; cap int; its_bell text; messages text := ''; let_in int := 0;
begin
  -- This waits for a renewal that is just being committed, and not for a guard.
  if hint > 0 then
    select token, state, permits, capacity, bell into tok, its_state, its_permits, cap, its_bell from @claim@
      where resource = r and token = hint and id = i and state < 2 and lapses_at > t for no key update;
  end if;
  if tok is null then
    select token, state, permits, capacity, bell into tok, its_state, its_permits, cap, its_bell from @claim@
      where resource = r and id = i and state < 2 and lapses_at > t for no key update;
  end if;
  if tok is null then
    if late then  -- its request may still arrive: it must not enter then
      insert into @claim@ values (r, @draw@(key, t, 1), i, 2, 0, 0, 60, t + 60, t, true, '', 'withdrawn', '');
    end if;
    return 'f';
  end if;
  if linger > 0 and (select coalesce(sum(permits), 0) + its_permits <= cap from @claim@
                     where resource = r and token < tok and state < 2 and lapses_at > t) then
    update @claim@ set id = 'lingering-' || token, ttl = linger, lapses_at = t + linger, bell = '' where resource = r and token = tok;
  else
    delete from @claim@ where resource = r and token =
      (select token from @claim@ where resource = r and token = tok for update skip locked);
    if not found then  -- a guard's open transaction has locked it: nobody owns it any more, and nobody comes in before that one ends
      update @claim@ set id = 'released-' || token, lapses_at = t, bell = '' where resource = r and token = tok;
    end if;
  end if;
  if its_bell <> b then perform @ring@(its_bell, '', 'c' || i || ' 0'); end if;
  if (select state from @claim@ where resource = r and state < 2 order by token desc limit 1) = 0 then  -- if the last one is in, nobody waits
    select a.messages, a.let_in into messages, let_in from @advance@(r, t, '', b) a;
  end if;
  messages := messages || @nudge@(r, t, tok, its_permits, its_state, b, let_in);
  perform @notify@(r, t);
  return 't' || messages;
end $$;

-- Moves lapses further away, never nearer, and never makes a row. Returns 'r' and their number if all were renewed, and messages, each after a newline;
-- else an array in JSON with [answer, reason, messages] for each: r renewed, e evicted, x gone, or only waiting though its caller holds it. hints: tokens, 0 where one is not known.
create or replace function @renew_step@(rs text[], ids text[], ttls float8[], notes text[], ps int[], hints bigint[], waiting boolean[], b text) returns text
language plpgsql @pinned@ as $$
declare t float8; done int[]; n int; messages text; answers jsonb := '[]'; why text; special boolean; told text := '';
begin
  special := exists (select from unnest(notes, ps) as u(note, p) where u.note is not null or u.p is not null);
  if special then  -- in one order, and before any row: others take the lock of a resource first, too
    perform @enter@(k) from (select distinct hashtextextended(u.r, @seed@) k from unnest(rs, notes, ps) as u(r, note, p)
      where u.note is not null or u.p is not null order by 1) keys;
  elsif current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'interlock needs the isolation level read committed' using errcode = 'IL001';
  end if;
  t := @now@;
  with asked as (
    select u.r, u.i, max(u.ttl) as ttl, max(u.note) as note, max(u.hint) as hint, bool_and(u.waits) as waits
    from unnest(rs, ids, ttls, notes, hints, waiting) as u(r, i, ttl, note, hint, waits) group by u.r, u.i),
  found as materialized (  -- by the key if the token is known, and is right
    select a.r, a.i, a.ttl, a.note, a.waits, coalesce(
      (select k.token from @claim@ k where a.hint > 0 and k.resource = a.r and k.token = a.hint and k.id = a.i),
      (select k.token from @claim@ k where k.resource = a.r and k.id = a.i and k.state < 2 and k.lapses_at > t order by k.token limit 1)) as token from asked a),
  standing as (  -- locked by resource and token, as everywhere
    select c.resource, c.token, f.ttl, f.note from found f join @claim@ c on c.resource = f.r and c.token = f.token and c.id = f.i
    where (c.state = 1 or (c.state = 0 and f.waits)) and c.lapses_at > t order by c.resource, c.token for no key update of c),
  renewed as (
    update @claim@ c set
      ttl = case when t + s.ttl > c.lapses_at or c.lapses_at > t + c.ttl + 1 then s.ttl else c.ttl end,
      lapses_at = case when c.lapses_at > t + c.ttl + 1 then t + s.ttl else greatest(c.lapses_at, t + s.ttl) end,
      note = coalesce(s.note, c.note)
    from standing s where c.resource = s.resource and c.token = s.token returning c.resource, c.id)
  select array_agg(u.n::int) into done from renewed d join unnest(rs, ids) with ordinality as u(r, i, n) on u.r = d.resource and u.i = d.id;
  if true = any (waiting) then told := @patrol@(rs, ids, ttls, hints, waiting, t); end if;
  if not special and cardinality(done) = cardinality(rs) then return 'r' || cardinality(rs) || told; end if;
  for n in 1 .. cardinality(rs) loop
    messages := told; told := ''; why := null;
    if n = any (done) then
      if ps[n] is not null then messages := messages || @shrink@(rs[n], ids[n], ps[n], t, b); end if;
      if notes[n] is not null then perform @notify@(rs[n], t); end if;
      answers := answers || jsonb_build_array(jsonb_build_array('r', null, substr(messages, 2)));
    else
      select note into why from @claim@ where resource = rs[n] and id = ids[n] and state = 2 and lapses_at > t limit 1;
      answers := answers || jsonb_build_array(jsonb_build_array(case when why is null then 'x' else 'e' end, why, substr(messages, 2)));
    end if;
  end loop;
  return answers;
end $$;

-- Messages for the waiters of places that were renewed, each after a newline: `steps.RENEW` says who gets one. It looks at the claim just ahead of each place,
-- and only for the first waiter at all holders. Nothing is locked: what changes at this very moment rings by itself, or is seen by the next renewal.
create or replace function @patrol@(rs text[], ids text[], ttls float8[], hints bigint[], waiting boolean[], t float8) returns text language sql @by_key@ as $$
  select coalesce(string_agg(E'\nc' || c.id || ' ' || case when c.state = 1 then c.token else 0 end, ''), '')
  from unnest(rs, ids, ttls, hints, waiting) as u(r, i, ttl, hint, waits)
  join @claim@ c on c.resource = u.r and c.token = u.hint and c.id = u.i and c.state < 2 and c.lapses_at > t  -- one that has lapsed was not renewed
  left join lateral (
    select a.state, a.lapses_at <= t + least(a.ttl, u.ttl) / 2 or a.lapses_at > t + a.ttl + 1 as late from @claim@ a
    where a.resource = u.r and a.token < u.hint and a.state < 2 order by a.token desc limit 1) ahead on true
  left join lateral (
    select bool_or(h.lapses_at <= t + least(h.ttl, u.ttl) / 2 or h.lapses_at > t + h.ttl + 1) as late, sum(h.permits) as taken from @claim@ h
    where ahead.state = 1 and h.resource = u.r and h.token < u.hint and h.state < 2) holders on true
  where u.waits and (c.state = 1 or c.rung or ahead.state is null or case ahead.state when 0 then ahead.late else holders.late or holders.taken + c.permits <= c.capacity end)
$$;

-- Lets a claim take fewer permits, and rings those whom this admits or who watched it.
create or replace function @shrink@(r text, i text, p int, t float8, b text) returns text language plpgsql as $$
declare tok bigint; its_state int; its_permits int; messages text; let_in int; its_bell text; was_rung boolean;
begin
  select token, state, permits, bell, rung into tok, its_state, its_permits, its_bell, was_rung from @claim@
    where resource = r and id = i and state < 2 and lapses_at > t;
  if tok is null or its_permits <= p then return ''; end if;
  update @claim@ set permits = p where resource = r and token = tok;
  select a.messages, a.let_in into messages, let_in from @advance@(r, t, '', b) a;
  messages := messages || @nudge@(r, t, tok, its_permits, its_state, b, let_in);
  if its_state = 0 and not was_rung then  -- a narrower claim watches other claims
    update @claim@ set rung = true where resource = r and token = tok and state = 0 and not rung;
    if found then messages := messages || @ring@(its_bell, b, 'c' || i || ' 0'); end if;
  end if;
  perform @notify@(r, t);
  return messages;
end $$;

-- Marks one claim, or all holders if i is null, as evicted. Returns the victims in JSON, as steps.EVICT says. its_call: the id under which this answer is kept, among the registers.
-- A victim whose row a guard's open transaction has locked raises IL002, and nothing is done: the caller asks again.
create or replace function @evict_step@(r text, i text, why text, remembered float8, its_call text) returns text language plpgsql @pinned@ as $$
declare
  key constant bigint := hashtextextended(r, @seed@); t constant float8 := @enter@(key);
  c record; taken bigint := 0; met jsonb := '[]'; gone bigint[] := '{}'; n int; let_in int; its_permits int[] := '{}'; its_state int[] := '{}';
begin
  select value into c from @register@ where name = its_call and lapses_at > t;
  if found then
    update @register@ set writer = writer where name = its_call;  -- as in `write_step`
    return c.value;
  end if;
  for c in select * from @claim@ where resource = r and state < 2 and lapses_at > t order by token loop
    taken := taken + c.permits;
    exit when i is null and taken > c.capacity;
    continue when i is not null and c.id <> i;
    perform from @claim@ where resource = r and token = c.token for update skip locked;
    if not found then
      raise exception 'the claim is locked by an open transaction' using errcode = 'IL002';
    end if;
    met := met || jsonb_build_array(jsonb_build_array(c.token, c.id, c.permits, c.capacity, t - c.since, least(c.lapses_at - t, c.ttl), c.note,
      c.who, taken <= c.capacity));
    gone := gone || c.token; its_permits := its_permits || c.permits; its_state := its_state || c.state::int;
    update @claim@ set state = 2, permits = 0, rung = true, note = why, ttl = greatest(remembered, c.ttl),
      lapses_at = t + greatest(remembered, c.ttl) where resource = r and token = c.token;
    perform @ring@(c.bell, '', 'c' || c.id || ' 0');
  end loop;
  if cardinality(gone) > 0 then
    select a.let_in into let_in from @advance@(r, t, '', '') a;
    perform @notify@(r, t);
    for n in 1 .. cardinality(gone) loop
      perform @nudge@(r, t, gone[n], its_permits[n], its_state[n], '', let_in);
    end loop;
  end if;
  insert into @register@ (name, value, version, writer, lapses_at) values (its_call, met, 1, its_call, t + remembered);
  return met;
end $$;

-- Writes a register if its version is still v. Returns [value, version] in JSON, or null.
create or replace function @write_step@(n text, v bigint, val text, i text, b text, remembered float8) returns text language plpgsql @pinned@ as $$
declare
  key constant bigint := hashtextextended(n, @seed@ + 1); t constant float8 := @enter@(key);
  old_value text; old_version bigint; old_writer text; new_version bigint;
begin
  select value, version, writer into old_value, old_version, old_writer from @register@
    where name = n and (lapses_at is null or lapses_at > t);
  if old_writer = i then
    -- A commit of its own, which waits for the standby again: the first may have been ended while it waited.
    update @register@ set writer = writer where name = n;
    return json_build_array(old_value, old_version);
  end if;
  if coalesce(old_version, 0) <> v then return null; end if;
  new_version := @draw@(key, t, 1);
  insert into @register@ values (n, val, new_version, i, case when val is null then t + remembered end)
    on conflict (name) do update set value = excluded.value, version = excluded.version, writer = excluded.writer, lapses_at = excluded.lapses_at;
  perform pg_notify(address, 'r' || n) from @bell@ where name = n and lapses_at > t and address <> b;
  return json_build_array(val, new_version);
end $$;

-- Looks for a claim by its id, and writes a bell into its row unless it is ''. Returns [state, rung, token, lapses in] in JSON, or null.
create or replace function @find_step@(r text, i text, b text, hint bigint) returns text language plpgsql @pinned@ as $$
declare t constant float8 := @now@; c record; highest constant bigint := case when hint > 0 then hint else 9223372036854775807 end;
begin
  select state, rung::int as rung, token, lapses_at, bell into c from @claim@
    where resource = r and token between hint and highest and id = i and state < 2 and lapses_at > t order by token desc limit 1;
  if not found then return null; end if;
  if b <> '' and c.bell <> b then
    update @claim@ set bell = b where resource = r and token = c.token and state < 2;
    if not found then return null; end if;
  end if;
  return json_build_array(c.state, c.rung, c.token, c.lapses_at - t);
end $$;

-- Has a bell rung at changes of a queue (q) or a register (r), for so many seconds. Under the lock: a change that does not see the bell has been
-- committed before this returns, and whoever looks next sees the change.
create or replace function @watch_step@(kind text, n text, b text, seconds float8) returns void language plpgsql @pinned@ as $$
declare key constant bigint := hashtextextended(n, case kind when 'q' then @seed@ else @seed@ + 1 end); t constant float8 := @enter@(key);
begin
  if kind = 'q' then
    insert into @claim@ values (n, -1 - (hashtextextended(b, @seed@) & 9007199254740991), 'watch', 3, 0, 0, seconds, t + seconds, t, false, b, '', '')
      on conflict (resource, token) do update set lapses_at = excluded.lapses_at;
  else
    insert into @bell@ values (n, b, t + seconds) on conflict (name, address) do update set lapses_at = excluded.lapses_at;
  end if;
end $$;

-- Removes what has lapsed in a slice of the claims, and old registers and bells. Returns [gone, last resource or null, last token] in JSON.
create or replace function @sweep_step@(r text, tok bigint, slice int) returns text language plpgsql @pinned@ as $$
declare t constant float8 := @now@; last_r text; last_tok bigint; n int; gone int;
begin
  select resource, token into last_r, last_tok from @claim@ where (resource, token) > (r, tok) order by resource, token offset slice - 1 limit 1;
  with lapsed as (
    select resource, token from @claim@ where (resource, token) > (r, tok) and (last_r is null or (resource, token) <= (last_r, last_tok))
      and lapses_at <= t order by resource, token limit slice for update skip locked)
  delete from @claim@ c using lapsed l where c.resource = l.resource and c.token = l.token;
  get diagnostics gone = row_count;
  update @claim@ set lapses_at = t + ttl where (resource, token) > (r, tok)
    and (last_r is null or (resource, token) <= (last_r, last_tok)) and lapses_at > t + ttl + 1;
  delete from @register@ where name in (select name from @register@ where lapses_at <= t limit slice for update skip locked);
  get diagnostics n = row_count;
  delete from @bell@ where (name, address) in (select name, address from @bell@ where lapses_at <= t limit slice for update skip locked);
  return json_build_array(gone + n, last_r, last_tok);
end $$;
