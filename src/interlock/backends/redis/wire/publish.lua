-- A waiter's channel that begins with a capital S is a shard's own: it lies in the slot of the keys it tells of.
--
-- This user may lack the right to publish, or this server the command. A script that ended here would be half done, so
-- it goes on, and tells its caller: see `muted`. Waiters that nobody wakes look again by themselves.

local muted = false

local function publish(channel, message, command)
  command = command or string.byte(channel) == 83 and 'SPUBLISH' or 'PUBLISH'
  if type(redis.pcall(command, channel, message)) == 'table' then muted = true end
end
