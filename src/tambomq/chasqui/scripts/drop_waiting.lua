-- drop_waiting: forget jobs that no worker has been given yet.
--
-- KEYS  stream  stream  {chasqui:<queue>}:stream
-- ARGV  group   whose
--       until_  entries later than this stay; '+' for none
--       count   at most so many
-- REPLY how many

local stream = KEYS[1]
local group, until_, count = ARGV[1], ARGV[2], ARGV[3]

local from = '-'
local groups = redis.pcall('XINFO', 'GROUPS', stream)
if groups.err then
  return 0
end
for _, row in ipairs(groups) do
  local known = {}
  for i = 1, #row, 2 do
    known[row[i]] = row[i + 1]
  end
  if known['name'] == group then
    from = '(' .. known['last-delivered-id']
  end
end
local entries = {}
for i, row in ipairs(redis.call('XRANGE', stream, from, until_, 'COUNT', count)) do
  entries[i] = row[1]
end
if #entries > 0 then
  redis.call('XDEL', stream, unpack(entries))
end
return #entries
