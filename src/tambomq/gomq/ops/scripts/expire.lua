#!lua flags=allow-oom
-- expire: move the oldest messages of a main queue, if they have expired, to the key of its dead letters.
--
-- KEYS  queue  list  QUEUE_<key>
--       dead   list  QUEUE_<key>-dead
-- ARGV  ttl_s  seconds
--       limit  messages at most, and fewer of large ones
-- REPLY how many, and 1 if there may be more
-- NEEDS message_id, journal_on_move

local queue, dead = KEYS[1], KEYS[2]
local ttl_s, limit = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local oldest = time[1] + time[2] / 1000000 - ttl_s
-- A script that moves larger messages would block the server for too long.
local MAX_BYTES = 1048576

-- The first 32 of the bits of an xid are a time in seconds, in digits of five bits.
local function seconds_of(id)
  local bits = 0
  for i = 1, 7 do
    local digit = tonumber(id:sub(i, i), 32)
    if not digit then
      return nil
    end
    bits = bits * 32 + digit
  end
  return math.floor(bits / 8)
end

-- Read the key first: one of another type then fails before anything is written.
redis.call('LLEN', dead)
local ids, bytes = {}, 0
while #ids < limit and bytes < MAX_BYTES do
  local message = redis.call('LINDEX', queue, 0)
  local id = message and id_of(message)
  -- Elements of other writers may have no time: they wait, and those behind them.
  local sent = id and #id == 20 and seconds_of(id)
  -- The id has whole seconds: too late rather than too early.
  if not sent or sent + 1 > oldest then
    break
  end
  redis.call('LMOVE', queue, dead, 'LEFT', 'RIGHT')
  ids[#ids + 1], bytes = id, bytes + #message
end
moved(ids)
return {#ids, (#ids == limit or bytes >= MAX_BYTES) and 1 or 0}
