-- join: a peer receives a key from now on.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

-- Every dispatch goes to all who are there, so a dedicated queue holds the last messages that
-- were dispatched, without a gap. The number of the last one before a peer came says, with the
-- length of its queue, what it has observed: see `set_aside`.
local function join(tally, list)
  local count = redis.pcall('HGET', tally, 'dispatched') or 0
  -- A tally that is none stops its own key, at its next dispatch, and no other.
  if type(count) ~= 'table' then
    redis.call('HSETNX', tally, list, count)
  end
end

-- All peers of a consumer receive a key that it did not receive before.
local function join_all(tally, peers, list_of)
  local count = redis.call('HGET', tally, 'dispatched') or 0
  for first = 1, #peers, 500 do
    local fields = {}
    for place = first, math.min(first + 499, #peers) do
      fields[#fields + 1], fields[#fields + 2] = list_of(peers[place]), count
    end
    redis.call('HSET', tally, unpack(fields))
  end
end

-- Whether a key has room for so many peers more. It has a field for each, and three more.
local function has_room(tally, more, most)
  local known = redis.pcall('HLEN', tally)
  return type(known) ~= 'number' or known + more <= most + 3
end

-- What there would be too much of if a consumer of these keys had a peer more, or nil.
local function refusal(peers, keys, tally_prefix, most_peers, most_receivers)
  if redis.call('SCARD', peers) >= most_peers then
    return 'peers'
  end
  for _, key in ipairs(keys) do
    if not has_room(tally_prefix .. key, 1, most_receivers) then
      return 'receivers'
    end
  end
end
