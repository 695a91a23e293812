-- A channel that begins with a capital S is a shard's own: it lies in the slot of the keys it tells of.

local function publish(channel, message)
  redis.call(string.byte(channel) == 83 and 'SPUBLISH' or 'PUBLISH', channel, message)
end
