-- promote: let jobs that are due wait for a worker, if this is the leader.
--
-- KEYS  delayed     zset    {chasqui:<queue>}:delayed
--       stream      stream  {chasqui:<queue>}:stream
--       dlq         stream  {chasqui:<queue>}:dlq
--       lock        string  {chasqui:<queue>}:promoter:lock
--       events      stream  {chasqui:<queue>}:events
-- ARGV  holder      who would lead
--       ttl         seconds to lead, unless this is said again
--       batch       at most so many jobs, and about a megabyte
--       cap         jobs that the stream may hold
--       dlq_cap     dead letters that are kept
--       events_cap  events that are kept; 0 writes none
-- REPLY 0 if another leads; else ids of the moved, buried, still delayed, ms until the next is due (-1: none is)

local delayed, stream, dlq, lock, events = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local holder, ttl, batch, cap, dlq_cap, events_cap = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

if not leads(lock, holder, ttl) then
  return 0
end
local clock = redis.call('TIME')
local now = string.format('%.0f', clock[1] * 1000 + math.floor(clock[2] / 1000))
local count = math.min(batch, room(stream, cap))
local moved, buried, kept = {}, 0, {}
-- Few at first: a batch of the largest jobs would stop the server for seconds.
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
for _, member in ipairs(due) do
  local skip, length = prefix(member)
  if not skip then
    -- Nobody can run it; left here, it would be looked at for ever.
    local put = redis.pcall('XADD', dlq, '*', 'd', member, 'source_id', '', 'reason', 'malformed', 'detail', 'bad delayed member')
    if type(put) == 'table' then
      kept[#kept + 1] = member
    else
      note(events, events_cap, 'dlq', '', now, '', 'attempt', '0', 'reason', 'malformed')
      buried = buried + 1
    end
  else
    local envelope, name = member:sub(skip + length + 1), member:sub(skip + 1, skip + length)
    local id = job_id(envelope)
    if length == 0 then
      redis.call('XADD', stream, '*', 'd', envelope)
    else
      redis.call('XADD', stream, '*', 'd', envelope, 'n', name)
    end
    note(events, events_cap, 'waiting', id, now, name)
    moved[#moved + 1] = id
  end
end
if #due > 0 then
  redis.call('ZREMRANGEBYRANK', delayed, 0, #due - 1)
end
-- Where the dead letters should be is something else. Were that an error, all that was moved would
-- be moved again.
for _, member in ipairs(kept) do
  redis.call('ZADD', delayed, now + 60000, member)
end
if buried > 0 then
  trim(dlq, dlq_cap, events, events_cap, now, 'dlq')
end
local head = redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2]
local wait = head and math.max(0, math.min(head - now, 2 ^ 53)) or -1
return {moved, buried, redis.call('ZCARD', delayed), wait}
