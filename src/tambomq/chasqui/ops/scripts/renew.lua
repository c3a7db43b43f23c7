-- renew: keep entries in a consumer's hands.
--
-- KEYS  stream    stream  {chasqui:<queue>}:stream
-- ARGV  group     whose
--       consumer  who has them
--       entry     …       each
-- REPLY those that it has no more

local stream = KEYS[1]
local group, consumer = ARGV[1], ARGV[2]

local mine, lost = {}, {}
for i = 3, #ARGV do
  local entry = ARGV[i]
  if owns(stream, group, consumer, entry) then
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
