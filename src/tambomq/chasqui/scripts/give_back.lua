-- give_back: let others claim entries at once that a consumer has and will not run.
--
-- KEYS  stream             stream  {chasqui:<queue>}:stream
-- ARGV  group              whose
--       consumer           who has them
--       returned           in whose name they lie from now on
--       idle_ms            after so long a silence anybody may claim
--       entry, deliveries  …       each, and how often it was delivered before
-- REPLY how many were still in its hands

local stream = KEYS[1]
local group, consumer, returned, idle_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local given = 0
for i = 5, #ARGV, 2 do
  local entry, deliveries = ARGV[i], ARGV[i + 1]
  if owns(stream, group, consumer, entry) then
    redis.call('XCLAIM', stream, group, returned, 0, entry, 'IDLE', idle_ms, 'RETRYCOUNT', deliveries, 'JUSTID')
    given = given + 1
  end
end
return given
