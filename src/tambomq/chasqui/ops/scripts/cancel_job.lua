#!lua flags=allow-oom
-- cancel_job: end a delayed, waiting or running job as cancelled, and list it for its worker.
--
-- KEYS  stream      stream  {chasqui:<queue>}:stream
--       delayed     zset    {chasqui:<queue>}:delayed
--       events      stream  {chasqui:<queue>}:events
--       cancels     stream  {chasqui:<queue>}:tambo:cancels
--       workers     set     {chasqui:<queue>}:tambo:workers
--       marker      string  {chasqui:<queue>}:dlid:<id>
--       index       string  {chasqui:<queue>}:didx:<id>
--       stalls      string  {chasqui:<queue>}:stalls:<id>
--       window      zset    {chasqui:<queue>}:idmp:requests
-- ARGV  entry       stream entry of the job; '' if it is delayed
--       member      its delayed member; '' if it is in the stream
--       returned    consumer that owns returned entries
--       events_cap  length cap of the events stream; 0: write no events
--       id          job id
--       name        job name; '' if none
--       reason      why; '' if none was given
--       request     id of this request: a repeated request has no effect
--       max_len     how many cancelled entries to list for workers
--       ttl         seconds to list them
-- REPLY 1 cancelled, 0 not found there; the owner's name if that consumer does not poll the list
-- NEEDS cancelled_event, dedup_window

local stream, delayed, events, cancels, workers = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local marker, index, stalls, window = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local entry, member, returned, events_cap, id = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local name, reason, request, max_len, ttl = ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10]

-- Only workers of this implementation look for cancelled entries. A Spark query, or a worker of a
-- released engine, would go on, and report a second end of the job.
local function listens(consumer)
  return consumer:sub(1, 6) == 'tambo-' or redis.call('SISMEMBER', workers, consumer) == 1
end

if is_in_window(window, request) then
  return 1
end
-- Read the key first: one of another type then fails before anything is written.
redis.call('XLEN', cancels)
if entry == '' then
  if redis.call('ZREM', delayed, member) == 0 then
    return 0
  end
  redis.call('UNLINK', marker, index)
else
  if #redis.call('XRANGE', stream, entry, entry) == 0 then
    return 0
  end
  local groups, is_active = {}, false
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local row = redis.call('XPENDING', stream, group[2], entry, entry, 1)[1]
    if row and row[2] ~= returned then
      is_active = true
      if not listens(row[2]) then
        return row[2]
      end
    end
    groups[#groups + 1] = row and group[2]
  end
  for _, group in ipairs(groups) do
    redis.call('XACK', stream, group, entry)
  end
  redis.call('XDEL', stream, entry)
  redis.call('DEL', stalls)
  if is_active then
    redis.call('XADD', cancels, 'MAXLEN', '~', max_len, '*', 'entry', entry, 'reason', reason)
    redis.call('EXPIRE', cancels, ttl)
    -- An ACL may forbid the channel; then workers find the entry when they look by themselves.
    redis.pcall('PUBLISH', cancels, '')
  end
end
remember(window, request)
write_cancelled_event(events, events_cap, id, name, reason)
return 1
