-- renew: reset the idle time of entries that a consumer owns.
--
-- KEYS  stream    stream  {chasqui:<queue>}:stream
-- ARGV  group     consumer group
--       consumer  consumer that owns them
--       entry     …       each
-- REPLY the entries that it no longer owns
-- NEEDS is_owner

local stream = KEYS[1]
local group, consumer = ARGV[1], ARGV[2]

local mine, lost = {}, {}
for i = 3, #ARGV do
  local entry = ARGV[i]
  if is_owner(stream, group, consumer, entry) then
    mine[#mine + 1] = entry
  else
    lost[#lost + 1] = entry
  end
end
if #mine > 0 then
  mine[#mine + 1] = 'JUSTID'
  redis.call('XCLAIM', stream, group, consumer, 0, unpack(mine))
end
return lost
