-- join: a peer receives a key from now on.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

-- Every dispatch goes to all who are there, so a dedicated queue holds the last messages that
-- were dispatched, without a gap. The number of the last one before a peer came says, with the
-- length of its queue, what it has observed: see `leave`.
local function join(tally, list)
  local count = redis.pcall('HGET', tally, 'dispatched') or 0
  -- A tally that is none stops its own key, at its next dispatch, and no other.
  if type(count) ~= 'table' then
    redis.call('HSETNX', tally, list, count)
  end
end
