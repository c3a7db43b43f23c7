-- promote: move due jobs from the delayed set to the stream, if the caller is the leader.
--
-- KEYS  delayed     zset    {chasqui:<queue>}:delayed
--       stream      stream  {chasqui:<queue>}:stream
--       dlq         stream  {chasqui:<queue>}:dlq
--       lock        string  {chasqui:<queue>}:promoter:lock
--       events      stream  {chasqui:<queue>}:events
--       previous    hash    {chasqui:<queue>}:tambo:previous
-- ARGV  holder      candidate for leader
--       ttl         lock TTL in seconds; each call renews it
--       batch       maximum number of jobs; the batch is also limited to about 1 MB
--       cap         length cap of the stream
--       dlq_cap     length cap of the dead-letter stream
--       events_cap  length cap of the events stream; 0: write no events
-- REPLY 0 if another leads; else the promoted ids, how many were dead-lettered, how many are still
--       delayed, and the ms until the next is due (-1: none)
-- NEEDS acquire_leadership, write_event, prefix, stream_cap

local delayed, stream, dlq, lock, events = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local previous = KEYS[6]
local holder, ttl, batch, cap, dlq_cap, events_cap = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

if not acquire_leadership(lock, holder, ttl) then
  return 0
end
local clock = redis.call('TIME')
local now = string.format('%.0f', clock[1] * 1000 + math.floor(clock[2] / 1000))
local count = math.min(batch, free_slots(stream, cap))
local moved, buried, deferred = {}, 0, {}
-- Start with small pages: a large page of the largest jobs would block the server for seconds.
local due, bytes, page = {}, 0, 4
while #due < count and bytes < 1000000 do
  local more = redis.call('ZRANGEBYSCORE', delayed, '-inf', now, 'LIMIT', #due, math.min(page, count - #due))
  if #more == 0 then
    break
  end
  for _, member in ipairs(more) do
    due[#due + 1] = member
    bytes = bytes + #member
  end
  page = page * 2
end
-- The location of some jobs is recorded (part previous_job). Most queues have no such jobs. A key of
-- another type has none either: an error among the jobs would promote those before it again.
local tracked = #due > 0 and redis.pcall('HLEN', previous)
local tracks = type(tracked) == 'number' and tracked > 0
for _, member in ipairs(due) do
  local skip, length = prefix(member)
  if not skip then
    -- A malformed member can never run; left here, it would be read again on every tick.
    local put = redis.pcall('XADD', dlq, '*', 'd', member, 'source_id', '', 'reason', 'malformed', 'detail', 'bad delayed member')
    if type(put) == 'table' then
      deferred[#deferred + 1] = member
    else
      write_event(events, events_cap, 'dlq', '', now, '', 'attempt', '0', 'reason', 'malformed')
      buried = buried + 1
    end
  else
    local envelope, name = member:sub(skip + length + 1), member:sub(skip + 1, skip + length)
    local id = job_id(envelope)
    local entry
    if length == 0 then
      entry = redis.call('XADD', stream, '*', 'd', envelope)
    else
      entry = redis.call('XADD', stream, '*', 'd', envelope, 'n', name)
    end
    if tracks and redis.call('HEXISTS', previous, id) == 1 then
      redis.call('HSET', previous, id, entry)
    end
    write_event(events, events_cap, 'waiting', id, now, name)
    moved[#moved + 1] = id
  end
end
if #due > 0 then
  redis.call('ZREMRANGEBYRANK', delayed, 0, #due - 1)
end
-- The dead-letter key is of another type. Retry these in a minute: an error here would undo nothing,
-- and all jobs promoted above would be promoted again.
for _, member in ipairs(deferred) do
  redis.call('ZADD', delayed, now + 60000, member)
end
if buried > 0 then
  trim(dlq, dlq_cap, events, events_cap, now, 'dlq')
end
local head = redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2]
local wait = head and math.max(0, math.min(head - now, 2 ^ 53)) or -1
return {moved, buried, redis.call('ZCARD', delayed), wait}
