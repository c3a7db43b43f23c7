#!lua flags=allow-oom
-- move_take: remove undelivered jobs from a queue, and store them as in transit.
--
-- KEYS  stream      stream  {chasqui:<queue>}:stream
--       move        hash    {chasqui:<queue>}:move:<id>
--       transit     list    {chasqui:<queue>}:move:<id>:transit
--       events      stream  {chasqui:<queue>}:events
-- ARGV  run         id of the move, if it is new
--       count       jobs at most
--       free_bytes  maximum total size, in bytes; the last one may exceed it
--       returned    consumer that owns returned entries
--       events_cap  length cap of the events stream; 0: write no events
-- REPLY id of the move, the batch's number, 0, and the batch: for each job 'w <name>' and its
--       envelope
-- NEEDS moved_events, prefix

local stream, move, transit, events = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local run, count, free_bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local returned, events_cap = ARGV[4], ARGV[5]

if redis.call('HSETNX', move, 'run', run) == 0 then
  run = redis.call('HGET', move, 'run')
end
local number = tonumber(redis.call('HGET', move, 'number') or 0)
if redis.call('EXISTS', transit) == 1 then
  return {run, number, 0, redis.call('LRANGE', transit, 0, -1)}
end

-- Entries after every group's last-delivered id are undelivered; with a single group, entries that
-- a worker has returned are too.
local function is_later(a, b)
  local a_ms, a_seq = a:match('(%d+)-(%d+)')
  local b_ms, b_seq = b:match('(%d+)-(%d+)')
  return tonumber(a_ms) > tonumber(b_ms) or (a_ms == b_ms and tonumber(a_seq) > tonumber(b_seq))
end
local found, groups, top = {}, {}, '0-0'
for _, group in ipairs(redis.call('EXISTS', stream) == 1 and redis.call('XINFO', 'GROUPS', stream) or {}) do
  groups[#groups + 1] = group[2]
  top = is_later(group[8], top) and group[8] or top
end
for _, row in ipairs(#groups == 1 and redis.call('XPENDING', stream, groups[1], '-', '+', count, returned) or {}) do
  found[#found + 1] = redis.call('XRANGE', stream, row[1], row[1])[1]
end
for _, row in ipairs(#found < count and redis.call('XRANGE', stream, '(' .. top, '+', 'COUNT', count - #found) or {}) do
  found[#found + 1] = row
end

local rows, taken, jobs = {}, {}, {}
for _, row in ipairs(found) do
  local body, name = '', ''
  for i = #row[2] - 1, 1, -2 do
    if row[2][i] == 'd' then
      body = row[2][i + 1]
    elseif row[2][i] == 'n' then
      name = row[2][i + 1]
    end
  end
  if free_bytes > 0 then
    rows[#rows + 1], rows[#rows + 2] = 'w ' .. name, body
    taken[#taken + 1] = row[1]
    jobs[#jobs + 1], jobs[#jobs + 2] = job_id(body), name
    free_bytes = free_bytes - #body
  end
end
if #taken > 0 then
  redis.call('RPUSH', transit, unpack(rows))
  redis.call('HSET', move, 'number', number + 1)
  for _, group in ipairs(groups) do
    redis.call('XACK', stream, group, unpack(taken))
  end
  redis.call('XDEL', stream, unpack(taken))
  write_moved_events(events, events_cap, jobs)
end
return {run, number + 1, 0, rows}
