-- join: let a peer receive a key from now on.

-- Every dispatch goes to all current peers, so a dedicated queue holds the last dispatched messages
-- without a gap. The dispatch count at the time a peer joined and the length of its queue determine
-- what it has observed: see `set_aside`.
local function join(tally, list)
  local count = redis.pcall('HGET', tally, 'dispatched') or 0
  -- If the tally is of another type, only this key fails, at its next dispatch.
  if type(count) ~= 'table' then
    redis.call('HSETNX', tally, list, count)
  end
end

-- Subscribe all peers of a consumer to a key that is new to it.
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

-- Whether *more* peers can receive the key. Its tally has a field for each peer, and three others.
local function has_free_receivers(tally, more, max_receivers)
  local known = redis.pcall('HLEN', tally)
  return type(known) ~= 'number' or known + more <= max_receivers + 3
end

-- Return which limit one more peer of a consumer of these keys would exceed, or nil.
local function refusal(peers, keys, tally_prefix, max_peers, max_receivers)
  if redis.call('SCARD', peers) >= max_peers then
    return 'peers'
  end
  for _, key in ipairs(keys) do
    if not has_free_receivers(tally_prefix .. key, 1, max_receivers) then
      return 'receivers'
    end
  end
end
