#!lua flags=allow-oom
-- redrive_undo: move redriven jobs that were not delivered yet back to the dead letters, unchanged.
--
-- KEYS  dlq         stream  {chasqui:<queue>}:dlq
--       stream      stream  {chasqui:<queue>}:stream
--       events      stream  {chasqui:<queue>}:events
--       record      hash    {chasqui:<queue>}:redrive:<id>
--       ledger      stream  {chasqui:<queue>}:redrive:<id>:moved
-- ARGV  after       ledger position to start from
--       count       how many of it to look at
--       events_cap  length cap of the events stream; 0: write no events
--       ts          current time, in ms
-- REPLY next position, '' at the end; how many were moved back, are active, and were not found; nil if
--       there is no such redrive
-- NEEDS write_event, prefix

local dlq, stream, events, record, ledger = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local after, count, events_cap, ts = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]

if redis.call('EXISTS', record) == 0 then
  return nil
end
redis.call('XLEN', dlq)
-- From now on a redrive process that is still running moves nothing more.
redis.call('HSET', record, 'state', 'undone')

local groups = {}
for _, group in ipairs(redis.call('EXISTS', stream) == 1 and redis.call('XINFO', 'GROUPS', stream) or {}) do
  groups[#groups + 1] = group[2]
end
local function is_pending(entry)
  for _, group in ipairs(groups) do
    if #redis.call('XPENDING', stream, group, entry, entry, 1) > 0 then
      return true
    end
  end
end

local last, back, running, missing = '', 0, 0, 0
local rows = redis.call('XRANGE', ledger, after, '+', 'COUNT', count)
for _, row in ipairs(rows) do
  local fields, entry = row[2], row[2][4]
  last = '(' .. row[1]
  if #redis.call('XRANGE', stream, entry, entry) == 0 then
    missing = missing + 1
  elseif is_pending(entry) then
    running = running + 1
  else
    local found = {}
    for i = 5, #fields, 2 do
      found[fields[i]] = found[fields[i]] or fields[i + 1]
    end
    redis.call('XADD', dlq, '*', unpack(fields, 5))
    redis.call('XDEL', stream, entry)
    redis.call('XDEL', ledger, row[1])
    local name, reason = found.n or '', found.reason or ''
    write_event(events, events_cap, 'dlq', job_id(found.d or ''), ts, name, 'reason', reason)
    back = back + 1
  end
end
if back > 0 then
  redis.call('HINCRBY', record, 'undone', back)
end
return {#rows == count and last or '', back, running, missing}
