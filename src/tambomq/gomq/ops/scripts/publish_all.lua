-- publish_all: append to several main queues, or to none.
--
-- KEYS  queue  …  list  QUEUE_<key>
-- ARGV  message  …  for each queue how many, and then these
-- REPLY how many were appended

-- One that is no list is found before anything is written.
for _, queue in ipairs(KEYS) do
  redis.call('LLEN', queue)
end
local place, appended = 1, 0
for _, queue in ipairs(KEYS) do
  local count = tonumber(ARGV[place])
  for first = place + 1, place + count, 1000 do
    redis.call('RPUSH', queue, unpack(ARGV, first, math.min(first + 999, place + count)))
  end
  place, appended = place + count + 1, appended + count
end
return appended
