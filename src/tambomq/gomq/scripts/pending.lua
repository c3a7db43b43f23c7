-- pending: the main queues that hold messages somebody is there to receive.
--
-- KEYS  subscribed        set  SUBSCRIBED_KEYS
-- ARGV  queue_prefix      how QUEUE_<key> begins, and so on
--       consumers_prefix
--       peers_prefix
--       limit             so many are enough
-- REPLY their keys

local subscribed = KEYS[1]
local queue_prefix, consumers_prefix, peers_prefix = ARGV[1], ARGV[2], ARGV[3]
local limit = tonumber(ARGV[4])

local function is_awaited(key)
  return #lists_of(consumers_prefix .. key, peers_prefix, '') > 0
end

local found = {}
for _, queue in ipairs(redis.call('SMEMBERS', subscribed)) do
  local waiting = redis.pcall('LLEN', queue)
  local key = string.sub(queue, #queue_prefix + 1)
  if type(waiting) == 'number' and waiting > 0 and is_awaited(key) then
    found[#found + 1] = key
  end
  if #found >= limit then
    break
  end
end
return found
