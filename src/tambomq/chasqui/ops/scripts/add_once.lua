-- add_once: let a job wait for a worker, unless its id was added before by anybody.
--
-- KEYS  stream      stream  {chasqui:<queue>}:stream
--       events      stream  {chasqui:<queue>}:events
--       added       string  {chasqui:<queue>}:added:<id>
-- ARGV  ttl         seconds to remember the id
--       cap         jobs that the stream may hold
--       overflow    'refuse' what is beyond it, or 'trim' the oldest
--       events_cap  events that are kept; 0 writes none
--       announce    events that are kept if this add is to be one; else 0
--       ts          now, in ms
--       id          the job's
--       payload     its envelope
--       name        its name, '' for none
-- REPLY how many the stream holds, n; -1 if there is no room; -2 - n if the id counts already

local stream, events, added = KEYS[1], KEYS[2], KEYS[3]
local ttl, cap, overflow, events_cap, announce = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local ts, id, payload, name = ARGV[6], ARGV[7], ARGV[8], ARGV[9]

-- What made the id count: so that a call whose reply was lost knows its own work.
local by = redis.sha1hex(payload):sub(1, 8)
local before = redis.call('GET', added)
if before then
  local length = redis.call('XLEN', stream)
  return before == by and length or -2 - length
end
if overflow == 'refuse' and room(stream, cap) < 1 then
  return -1
end
if name == '' then
  redis.call('XADD', stream, '*', 'd', payload)
else
  redis.call('XADD', stream, '*', 'd', payload, 'n', name)
end
redis.call('SET', added, by, 'EX', ttl)
note(events, announce, 'waiting', id, ts, name)
if overflow == 'trim' then
  trim(stream, cap, events, events_cap, ts, 'stream')
end
return redis.call('XLEN', stream)
