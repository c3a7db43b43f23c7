#!lua flags=allow-oom
-- redrive_undo: put redriven jobs that no worker has taken back among the dead letters, as they were.
--
-- KEYS  dlq         stream  {chasqui:<queue>}:dlq
--       stream      stream  {chasqui:<queue>}:stream
--       events      stream  {chasqui:<queue>}:events
--       record      hash    {chasqui:<queue>}:redrive:<id>
--       ledger      stream  {chasqui:<queue>}:redrive:<id>:moved
-- ARGV  after       where to go on in the ledger
--       count       how many of it to look at
--       events_cap  events that are kept; 0 writes none
--       ts          now, in ms
-- REPLY where to go on, '' at the end; how many are back, in workers' hands, and gone; nil if
--       there is no such redrive

local dlq, stream, events, record, ledger = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local after, count, events_cap, ts = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]

if redis.call('EXISTS', record) == 0 then
  return nil
end
redis.call('XLEN', dlq)
-- From now on its own process, should there be one, moves nothing more.
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

local last, back, running, gone = '', 0, 0, 0
local rows = redis.call('XRANGE', ledger, after, '+', 'COUNT', count)
for _, row in ipairs(rows) do
  local fields, entry = row[2], row[2][4]
  last = '(' .. row[1]
  if #redis.call('XRANGE', stream, entry, entry) == 0 then
    gone = gone + 1
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
    note(events, events_cap, 'dlq', job_id(found.d or ''), ts, name, 'reason', reason)
    back = back + 1
  end
end
if back > 0 then
  redis.call('HINCRBY', record, 'undone', back)
end
return {#rows == count and last or '', back, running, gone}
