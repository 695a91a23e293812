-- The queue of one resource, shared by the scripts. Each script includes it after its quick path.
--
-- holder   string  an exclusive holder, ours or another program's: id \n record; lapses with the key
-- waiters  zset    two members for each claim that waits: id \n record, by its token, and its id, by its lapse
-- records  hash    the sharers, which are holders outside of the holder's key: id -> record; #c capacity, #n number of
--                  sharers, #a number of their permits, #u when this key and lapses expire;
--                  !id -> a mark: = and an operator's reason, or - (released, perhaps before it arrived)
-- lapses   zset    two members for each sharer: @id, by its token, and its id, by its lapse; for each mark !id, by when
--                  it is forgotten
--
-- A lapse is stored as a time on the server's clock in ms plus LAPSES. So all tokens sort before all lapses, and the first
-- member of the waiters is the next to be admitted.
--
-- A record is token \n since (us) \n ttl (ms) \n permits \n channel \n bytes of note \n note who. A claim of 1 permit out
-- of 1 is admitted into the holder's key, all others among the sharers. Waiters that have lapsed do not count; their
-- members are removed when they reach the head of the queue, or when they are many.
--
-- No script may end half way. Redis may refuse a script's first write because of the server's state (memory, disk, replica),
-- and any write because of the user's rights. So one write decides every change: writes before it change nothing that
-- counts, and writes after it only tidy up. A full server lets a script run on if its first write needs no memory: see
-- `ready`.

local RECORD = '^(%d+)\n(%d+)\n(%d+)\n(%d+)\n([^\n]*)\n(%d+)\n(.*)$'
local LAPSES = 8e15 -- above all tokens until the year 2223; every ms above it is still a distinct double
local TOKENS = '(8000000000000000' -- where the tokens end
local SLACK = 30000 -- ms by which the sharers' keys outlive the last lapse, so that not every renewal moves their expiry
local KEPT = 600000 -- ms for which the waiters' key lives if no waiter comes or is renewed
local FOREIGN = 50 -- ms after which the first waiter polls another program's key: its release wakes nobody
local SLICE = 200 -- waiters that one script admits at most: more would block the server
local PAGE = 1000 -- members read at a time
local REMEMBERED = 61000 -- ms for which a released claim cannot enter: no request is under way for longer

local function parse(record)
  local token, since, ttl, permits, channel, length, tail = string.match(record or '', RECORD)
  if not token then return nil end
  return {token = token, since = since, ttl = ttl, permits = tonumber(permits), channel = channel,
    length = tonumber(length), tail = tail}
end

local function pack(r)
  return table.concat({r.token, r.since, r.ttl, r.permits, r.channel, r.length, r.tail}, '\n')
end

local function split(value) -- id and record of a holder's value or of a waiter; another program's value has no record
  local id, rest = string.match(value, '^([^\n]*)\n(.*)$')
  local record = parse(rest)
  if record then return id, record end
  return value, nil
end

-- include publish.lua

local function tell(q, channel, id, token)
  if channel == q.mine then -- the caller's own: it goes into the reply, which is quicker than a message
    q.told[#q.told + 1] = id
    q.told[#q.told + 1] = token
  else
    publish(channel, id .. ' ' .. token)
  end
end

local allowed = false

local function ready(q) -- a first write that needs no memory and changes nothing: if it is allowed, so are later writes
  if not allowed then redis.call('ZREM', q.w, '') end
  allowed = true
end

local function is(q, id) -- whether this claim is in the holder's key
  return q.held and string.sub(q.held, 1, #id + 1) == id .. '\n'
end

local function plausible(q, at, ttl) -- a lapse too far ahead was made before the server's clock was set back
  if at - q.now > 4 * ttl + 60000 then return q.now + ttl end
  return at
end

-- ---- sharers -----------------------------------------------------------------------------------------------------

local function outlive(q, at) -- make the sharers' keys live until then; called after they were written
  if at > q.expires then
    q.expires = at + SLACK
    redis.call('HSET', q.h, '#u', q.expires)
    for _, key in ipairs({q.h, q.e}) do redis.pcall('PEXPIREAT', key, q.expires - LAPSES) end
  end
end

local function decide(q, fields) -- records and counts change together or not at all
  redis.call('HSET', q.h, '#c', q.c, '#n', q.n, '#a', q.a, unpack(fields))
end

local function share(q, claims) -- make these claims sharers, each with its lapse
  local lapses, fields, latest = {}, {}, 0
  for _, claim in ipairs(claims) do
    for _, part in ipairs({claim.at, claim.id, claim.r.token, '@' .. claim.id}) do
      lapses[#lapses + 1] = part
    end
    fields[#fields + 1] = claim.id
    fields[#fields + 1] = pack(claim.r)
    q.n, q.a, latest = q.n + 1, q.a + claim.r.permits, math.max(latest, claim.at)
  end
  redis.call('ZADD', q.e, unpack(lapses))
  decide(q, fields)
  outlive(q, latest)
end

local function unshare(q, ids) -- remove these sharers, or marks that are to be forgotten
  ready(q)
  local fields, members = {}, {}
  for i, record in ipairs(redis.call('HMGET', q.h, unpack(ids))) do
    local r = parse(record)
    if r then
      q.n, q.a = q.n - 1, q.a - r.permits
      fields[#fields + 1] = ids[i]
      fields[#fields + 1] = ''
    end
    members[#members + 1] = ids[i]
    members[#members + 1] = '@' .. ids[i]
  end
  if #fields > 0 then decide(q, fields) end
  redis.pcall('HDEL', q.h, unpack(ids))
  redis.pcall('ZREM', q.e, unpack(members))
end

local function stretch(q, id, at) -- move a sharer's lapse, only ever to a later time
  if at > tonumber(redis.call('ZSCORE', q.e, id) or 0) then
    redis.call('ZADD', q.e, at, id)
    outlive(q, at)
  end
end

local function mark(q, id, what, at) -- a full server may refuse it: nothing depends on a mark
  if type(redis.pcall('ZADD', q.e, at, '!' .. id)) == 'table' then return end
  if type(redis.pcall('HSET', q.h, '!' .. id, what)) == 'table' then return end
  q.kept = true
  outlive(q, at)
end

-- ---- waiters -----------------------------------------------------------------------------------------------------

local function find(q, id) -- a waiter's member with its record: by its token if the caller knows it, otherwise by a search
  local start = id .. '\n'
  if q.hint then
    local member = redis.call('ZRANGEBYSCORE', q.w, q.hint, q.hint)[1]
    if member and string.sub(member, 1, #start) == start then return member end
  end
  local from, seen = '-inf', nil
  repeat
    seen = redis.call('ZRANGEBYSCORE', q.w, from, TOKENS, 'WITHSCORES', 'LIMIT', 0, PAGE)
    for i = 1, #seen, 2 do
      if string.sub(seen[i], 1, #start) == start then return seen[i] end
    end
    from = '(' .. (seen[#seen] or '')
  until #seen < 2 * PAGE
end

local function leave(q, id, member, live) -- remove a waiter
  redis.call('ZREM', q.w, id, member or id)
  allowed = true
  if live then q.waiting = q.waiting - 1 end
end

local function bury(q, lapsed, all) -- remove lapsed waiters, if there are few waiters or many of them have lapsed
  if q.waiting == 0 then
    ready(q)
    redis.call('DEL', q.w)
  elseif lapsed <= PAGE and all <= 10 * PAGE and (all <= PAGE / 4 or 16 * lapsed >= all) then
    local gone, members = {}, {}
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', q.w, LAPSES, q.now)) do gone[id] = true end
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', q.w, '-inf', TOKENS)) do
      local id = string.match(member, '^[^\n]*')
      if gone[id] then
        members[#members + 1] = id
        members[#members + 1] = member
      end
    end
    if #members > 0 then
      redis.call('ZREM', q.w, unpack(members))
      allowed = true
    end
  end
end

local function keep(w, ms) -- make the waiters' key live for longer than a place of so many ms
  local least = math.max(KEPT / 2, ms + SLACK)
  if redis.call('PTTL', w) < least then redis.pcall('PEXPIRE', w, 2 * least) end
end

local function head_of(q, offset) -- the waiter at this offset from the front
  local member = redis.call('ZRANGE', q.w, offset, offset)[1]
  if member then return split(member) end
end

local function look(q, id, r) -- wake a waiter, so that it asks again
  if r then tell(q, r.channel, id, '0') end
end

-- ---- the rule ----------------------------------------------------------------------------------------------------

local function taken(q) -- permits in use
  if q.held and q.c == 1 then return q.a + 1 end
  return q.a
end

local function hold(q, id, r, left) -- put a claim into the holder's key
  q.held = id .. '\n' .. pack(r)
  redis.call('SET', q.k, q.held, 'PX', left)
end

local function admit(q, id, r, at) -- admit a claim that fits: a new one, or one that waited
  if q.c == 1 and r.permits == 1 then
    hold(q, id, r, at - q.now)
  else
    share(q, {{id = id, r = r, at = at}})
  end
end

local function next_ones(q, many) -- among the first waiters those that fit, and the members of those that have lapsed
  local members = redis.call('ZRANGEBYSCORE', q.w, '-inf', TOKENS, 'LIMIT', 0, many)
  local ids, records, coming, gone = {}, {}, {}, {}
  for i, member in ipairs(members) do ids[i], records[i] = split(member) end
  local lapses, use = #ids > 0 and redis.call('ZMSCORE', q.w, unpack(ids)) or {}, taken(q)
  for i, id in ipairs(ids) do
    local r, at = records[i], tonumber(lapses[i] or 0)
    if not r or at <= q.now or r.permits > q.c then -- or the server evicted the sharers it queued with
      gone[#gone + 1] = id
      gone[#gone + 1] = members[i]
      if at > q.now then q.waiting = q.waiting - 1 end
    elseif use + r.permits > q.c then
      return coming, gone, true
    else
      use = use + r.permits
      coming[#coming + 1] = {id = id, r = r, at = plausible(q, at, tonumber(r.ttl)), member = members[i]}
    end
  end
  return coming, gone, #ids == 0
end

local function enter(q, coming) -- admit waiters for what is left of their place, never for a whole ttl: they may be dead
  local members = {}
  for _, claim in ipairs(coming) do
    claim.r.since = q.us
    members[#members + 1] = claim.id
    members[#members + 1] = claim.member
  end
  if q.c == 1 and coming[1].r.permits == 1 then
    admit(q, coming[1].id, coming[1].r, coming[1].at)
  else
    share(q, coming)
  end
  redis.pcall('ZREM', q.w, unpack(members))
  q.waiting, q.left = q.waiting - #coming, q.left - #coming
  for _, claim in ipairs(coming) do tell(q, claim.r.channel, claim.id, claim.r.token) end
end

local function settle(q) -- admit from the head while claims fit; lapsed waiters are skipped, and nobody overtakes
  local many, over = 1, false
  while q.waiting > 0 and not over do
    local coming, gone
    coming, gone, over = next_ones(q, many)
    if #coming + #gone > 0 then ready(q) end
    if #gone > 0 then redis.call('ZREM', q.w, unpack(gone)) end
    if #coming > 0 and q.left <= 0 then -- a woken waiter admits the next slice; two are woken, since one may be dead
      look(q, coming[1].id, coming[1].r)
      look(q, head_of(q, 1))
      return
    end
    if #coming > 0 then enter(q, coming) end
    many = q.c == 1 and 1 or math.max(1, math.min(50, q.left))
  end
end

-- ---- opening and saving --------------------------------------------------------------------------------------------

local function open(k, h, w, e, mine)
  local t = redis.call('TIME')
  local q = {k = k, h = h, w = w, e = e, mine = mine, told = {}, left = SLICE}
  q.us = t[1] .. string.format('%06d', t[2])
  q.now = LAPSES + t[1] * 1000 + math.floor(t[2] / 1000)
  q.held = redis.call('GET', k)
  local f = redis.call('HMGET', h, '#c', '#n', '#a', '#u')
  q.c, q.n, q.a, q.expires = tonumber(f[1] or 1), tonumber(f[2] or 0), tonumber(f[3] or 0), tonumber(f[4] or 0)
  q.kept = f[1] or f[4]
  local first = redis.call('ZRANGEBYSCORE', e, LAPSES, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  local all = redis.call('ZCARD', w)
  q.waiting = all > 0 and redis.call('ZCOUNT', w, q.now + 1, '+inf') or 0
  if (first and not q.kept) or (q.n > 0 and not first) then -- the server evicted one of the two keys: there are no sharers
    ready(q)
    redis.call('DEL', h, e)
    q.n, q.a, q.expires, first = 0, 0, 0, nil
  end
  local lapsed = {}
  if tonumber(first or q.now + 1) <= q.now then
    lapsed = redis.call('ZRANGEBYSCORE', e, LAPSES, q.now, 'LIMIT', 0, PAGE)
  end
  for i = 1, #lapsed, 100 do unshare(q, {unpack(lapsed, i, math.min(i + 99, #lapsed))}) end
  if all > 2 * q.waiting then bury(q, all / 2 - q.waiting, all) end
  settle(q)
  return q
end

local function save(q) -- called at the end of every script that opened a queue
  if q.n == 0 and q.kept and redis.call('ZCARD', q.e) == 0 then redis.pcall('DEL', q.h) end
  if muted then tell(q, q.mine, '', '0') end
end

local function standing(q) -- the capacity that live claims use, or nil
  if q.n + q.waiting > 0 then return q.c end
  if q.held then return 1 end
end

local function first_lapse(q) -- ms until the first holder lapses
  if q.c == 1 then
    local left = redis.call('PTTL', q.k)
    local _, r = split(q.held or '')
    if not r then return (left < 0 or left > FOREIGN) and FOREIGN or left end
    local most = plausible(q, q.now + left, tonumber(r.ttl)) - q.now
    if most < left then redis.call('PEXPIRE', q.k, most) end
    return most
  end
  local last = redis.call('ZREVRANGEBYSCORE', q.e, '+inf', q.now + 60000, 'WITHSCORES', 'LIMIT', 0, 4)
  for i = 1, #last, 2 do -- sharers with more than a minute left, perhaps by a clock that was set back since
    local r, at = parse(redis.call('HGET', q.h, last[i])), tonumber(last[i + 1])
    local most = r and plausible(q, at, tonumber(r.ttl)) or at
    if most < at then redis.call('ZADD', q.e, most, last[i]) end
  end
  local first = redis.call('ZRANGEBYSCORE', q.e, LAPSES, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  return tonumber(first or 0) - q.now
end

local function retry(q, rank, token) -- ms until the claim ahead of a waiter lapses; no token: it is not queued yet
  local first = first_lapse(q) -- for every waiter: those ahead of it may be dead, and correct no lapse
  if rank == 0 then return math.max(1, first) end
  local ahead = redis.call('ZREVRANGEBYSCORE', q.w, token and '(' .. token or TOKENS, '-inf', 'LIMIT', 0, 1)[1]
  local at = ahead and redis.call('ZSCORE', q.w, string.match(ahead, '^[^\n]*'))
  return math.max(1, tonumber(at or 0) - q.now)
end

local function oldest(q) -- the oldest holder in the format of the holder's key; '' for another program's
  if q.n == 0 then return q.held and select(2, split(q.held)) and q.held or '' end
  local id = string.sub(redis.call('ZRANGE', q.e, 0, 0)[1] or '', 2)
  return id .. '\n' .. (redis.call('HGET', q.h, id) or '')
end
