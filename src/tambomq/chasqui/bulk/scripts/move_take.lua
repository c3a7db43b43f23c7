#!lua flags=allow-oom
-- move_take: let jobs that no worker has leave a queue, and write down what they were.
--
-- KEYS  stream      stream  {chasqui:<queue>}:stream
--       move        hash    {chasqui:<queue>}:move:<id>
--       transit     list    {chasqui:<queue>}:move:<id>:transit
--       events      stream  {chasqui:<queue>}:events
-- ARGV  run         a name for the move, if it is new
--       count       jobs at most
--       room        bytes at which no more are added
--       returned    the consumer whose entries are nobody's
--       events_cap  events that are kept; 0 writes none
-- REPLY the move's name, the batch's number, 0, and the batch: for each job 'w <name>' and its
--       envelope

local stream, move, transit, events = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local run, count, room = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local returned, events_cap = ARGV[4], ARGV[5]

if redis.call('HSETNX', move, 'run', run) == 0 then
  run = redis.call('HGET', move, 'run')
end
local number = tonumber(redis.call('HGET', move, 'number') or 0)
if redis.call('EXISTS', transit) == 1 then
  return {run, number, 0, redis.call('LRANGE', transit, 0, -1)}
end

-- Whatever a group was given has a lower place than what no group was given; and what a worker
-- gave back is nobody's again.
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

local rows, gone, jobs = {}, {}, {}
for _, row in ipairs(found) do
  local body, name = '', ''
  for i = #row[2] - 1, 1, -2 do
    if row[2][i] == 'd' then
      body = row[2][i + 1]
    elseif row[2][i] == 'n' then
      name = row[2][i + 1]
    end
  end
  if room > 0 then
    rows[#rows + 1], rows[#rows + 2] = 'w ' .. name, body
    gone[#gone + 1] = row[1]
    jobs[#jobs + 1], jobs[#jobs + 2] = job_id(body), name
    room = room - #body
  end
end
if #gone > 0 then
  redis.call('RPUSH', transit, unpack(rows))
  redis.call('HSET', move, 'number', number + 1)
  for _, group in ipairs(groups) do
    redis.call('XACK', stream, group, unpack(gone))
  end
  redis.call('XDEL', stream, unpack(gone))
  note_moved(events, events_cap, jobs)
end
return {run, number + 1, 0, rows}
