-- pending: find main queues that have messages and peers to receive them.
--
-- KEYS  subscribed        set  SUBSCRIBED_KEYS
-- ARGV  cursor            scan cursor
--       count             approximate number of queues
--       queue_prefix      prefix of QUEUE_<key>; likewise the next ones
--       consumers_prefix
--       peers_prefix
-- REPLY next position, and their keys

local subscribed = KEYS[1]
local cursor, count = ARGV[1], tonumber(ARGV[2])
local queue_prefix, consumers_prefix, peers_prefix = ARGV[3], ARGV[4], ARGV[5]

-- A key of another type counts as empty. After too many checks the answer is yes; dispatch decides.
local looks = 2 * count
local function is_awaited(key)
  local page = redis.pcall('SSCAN', consumers_prefix .. key, 0, 'COUNT', 100)
  for _, consumer in ipairs(page[2] or {}) do
    looks = looks - 1
    local size = redis.pcall('SCARD', peers_prefix .. consumer)
    if looks < 0 or type(size) == 'number' and size > 0 then
      return true
    end
  end
  return page[1] ~= nil and page[1] ~= '0'
end

local page = redis.call('SSCAN', subscribed, cursor, 'COUNT', count)
local found = {}
for _, queue in ipairs(page[2]) do
  local waiting = redis.pcall('LLEN', queue)
  local key = string.sub(queue, #queue_prefix + 1)
  if type(waiting) == 'number' and waiting > 0 and is_awaited(key) then
    found[#found + 1] = key
  end
end
return {page[1], found}
