#!lua flags=no-writes
-- stream_state: length and ids of a stream, without its entries.
--
-- KEYS  stream  stream  any
-- ARGV  none
-- REPLY nothing, or first id ('' if it is empty), last id ever given, length, entries ever added

local stream = KEYS[1]
if redis.call('EXISTS', stream) == 0 then
  return {}
end
local info, found = redis.call('XINFO', 'STREAM', stream), {}
for i = 1, #info, 2 do
  found[info[i]] = info[i + 1]
end
local first = found['first-entry']
return { first and first[1] or '', found['last-generated-id'], found['length'], found['entries-added'] }
