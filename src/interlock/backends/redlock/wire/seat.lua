-- What a node of a quorum must not forget is one sorted set, which is lost as a whole or not at all. Included by the scripts.
--
-- = seat holder  the number of a name: the highest ballot that it accepted
-- floor          a name without a number accepts only ballots above it; it is no lower than any number that was merged
--
-- What is no number has a score of 0 or less:
-- seat      -0.2    run id : us; the process that has the vote, and when it got it: this node's process, or it has none
-- run id    -0.1    the process that checked in last
-- since     -ms     when its quarantine began     longest  -ms  the longest ttl it granted, or time that a claim lingers
-- durable    0      every write is on disk before it is answered
-- ready     -start  the start for which it is ready; begun  0  the quorum has begun: see start.lua
-- about     -0.3    a text for those who find this key
--
-- Numbers exist only while the node has a vote. Their names contain the seat, so a vote that names the seat can only meet
-- numbers of that seat: see vote.lua.

local function marks(quorum) -- the seat, and the run id of the process that checked in last
  local seat, run
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', quorum, '-0.2', '-0.1')) do
    if string.sub(member, 1, 4) == 'run ' then run = string.sub(member, 5) else seat = member end
  end
  return seat, run
end

local function seated(seat, run) -- whether the seat is that of this process
  return seat and string.sub(seat, 1, #run + 1) == run .. ':'
end
