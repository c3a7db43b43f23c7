-- drop_waiting: forget jobs that no worker has been given yet, or that one has given back.
--
-- KEYS  stream    stream  {chasqui:<queue>}:stream
-- ARGV  group     whose
--       until_    entries later than this stay; '+' for none
--       count     at most so many
--       returned  in whose name those lie that were given back
-- REPLY how many

local stream = KEYS[1]
local group, until_, count, returned = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

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
local given_back = redis.pcall('XPENDING', stream, group, '-', until_, count, returned)
for i, row in ipairs(given_back) do
  entries[i] = row[1]
end
if #entries > 0 then
  redis.call('XACK', stream, group, unpack(entries))
  redis.call('XDEL', stream, unpack(entries))
  return #entries
end
for i, row in ipairs(redis.call('XRANGE', stream, from, until_, 'COUNT', count)) do
  entries[i] = row[1]
end
if #entries > 0 then
  redis.call('XDEL', stream, unpack(entries))
end
return #entries
