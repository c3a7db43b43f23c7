#!lua flags=no-writes
-- state: length, ids and counters of a journal, without its entries.
--
-- KEYS  journal  stream  {tambo:<protocol>:<queue>}:journal
--       state    hash    {tambo:<protocol>:<queue>}:journal:state
-- ARGV  none
-- REPLY how many entries, the first id and the last ever given ('' without one), and the hash

local journal, state = KEYS[1], KEYS[2]
local fields, found = redis.call('HGETALL', state), {}
if redis.call('EXISTS', journal) == 1 then
  local info = redis.call('XINFO', 'STREAM', journal)
  for i = 1, #info, 2 do
    found[info[i]] = info[i + 1]
  end
end
local first = found['first-entry']
return {found['length'] or 0, first and first[1] or '', found['last-generated-id'] or '', fields}
