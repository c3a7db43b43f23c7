-- give_back: return entries that a consumer will not run, so that others can claim them at once.
--
-- KEYS  stream             stream  {chasqui:<queue>}:stream
-- ARGV  group              consumer group
--       consumer           consumer that owns them
--       returned           consumer that owns returned entries
--       idle_ms            idle time to set, so that others may claim at once
--       entry, deliveries  …       each, and earlier deliveries
-- REPLY how many it still owned
-- NEEDS is_owner

local stream = KEYS[1]
local group, consumer, returned, idle_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local given = 0
for i = 5, #ARGV, 2 do
  local entry, deliveries = ARGV[i], ARGV[i + 1]
  if is_owner(stream, group, consumer, entry) then
    redis.call('XCLAIM', stream, group, returned, 0, entry, 'IDLE', idle_ms, 'RETRYCOUNT', deliveries, 'JUSTID')
    given = given + 1
  end
end
return given
