-- publish_all: append messages to several main queues, all or none.
--
-- KEYS  queue  …  list  QUEUE_<key>
-- ARGV  message  …  for each queue how many, and then these
-- REPLY how many were appended
-- NEEDS journal_on_publish

-- Read the queues first: one that is no list then fails before anything is written.
for _, queue in ipairs(KEYS) do
  redis.call('LLEN', queue)
end
if journal_is_full() then return JOURNAL_FULL end
local place, appended = 1, 0
for _, queue in ipairs(KEYS) do
  local count = tonumber(ARGV[place])
  for first = place + 1, place + count, 1000 do
    redis.call('RPUSH', queue, unpack(ARGV, first, math.min(first + 999, place + count)))
  end
  stored(queue)
  place, appended = place + count + 1, appended + count
end
close_journal()
return appended
