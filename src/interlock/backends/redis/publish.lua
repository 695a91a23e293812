-- A channel that begins with a capital S is a shard's own: it lies in the slot of the keys it tells of. Whoever chose it
-- asked a node that has such channels. This one, or this user, may not: that must not end a script half way, and
-- whoever is not told looks again.

local function publish(channel, message)
  if string.byte(channel) == 83 then
    redis.pcall('SPUBLISH', channel, message)
  else
    redis.call('PUBLISH', channel, message)
  end
end
