-- drop_waiting: delete jobs that were not delivered yet, or that a worker has returned.
--
-- KEYS  stream      stream  {chasqui:<queue>}:stream
--       events      stream  {chasqui:<queue>}:events
-- ARGV  group       consumer group
--       until_      entries later than this stay; '+' for none
--       count       maximum number
--       returned    consumer that owns returned entries
--       events_cap  length cap of the events stream; 0: write no events
-- REPLY how many
-- NEEDS cancelled_event, prefix

local stream, events = KEYS[1], KEYS[2]
local group, until_, count, returned, events_cap = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local function write_cancelled(rows)
  for _, row in ipairs(rows) do
    local known = {}
    -- If a field occurs twice, the first one counts.
    for i = #row[2] - 1, 1, -2 do
      known[row[2][i]] = row[2][i + 1]
    end
    write_cancelled_event(events, events_cap, job_id(known['d'] or ''), known['n'] or '')
  end
end

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
  for _, entry in ipairs(events_cap ~= '0' and entries or {}) do
    write_cancelled(redis.call('XRANGE', stream, entry, entry))
  end
  redis.call('XACK', stream, group, unpack(entries))
  redis.call('XDEL', stream, unpack(entries))
  return #entries
end
local rows = redis.call('XRANGE', stream, from, until_, 'COUNT', count)
for i, row in ipairs(rows) do
  entries[i] = row[1]
end
if #entries > 0 then
  redis.call('XDEL', stream, unpack(entries))
  write_cancelled(rows)
end
return #entries
