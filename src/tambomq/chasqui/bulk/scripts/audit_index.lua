#!lua flags=no-writes
-- audit_index: check the index and the marker of a delayed job.
--
-- KEYS  delayed  zset    {chasqui:<queue>}:delayed
--       index    string  {chasqui:<queue>}:didx:<id>
--       marker   string  {chasqui:<queue>}:dlid:<id>
-- ARGV  none
-- REPLY 'member' if the indexed member does not exist, 'marker' if the marker is missing, else ''

local delayed, index, marker = KEYS[1], KEYS[2], KEYS[3]

local member = redis.call('GET', index)
if not member then
  return ''
end
if not redis.call('ZSCORE', delayed, member) then
  return 'member'
end
return redis.call('EXISTS', marker) == 0 and 'marker' or ''
