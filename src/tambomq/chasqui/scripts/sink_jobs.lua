#!lua
-- sink_jobs: add the jobs of a chunk, now or for later, all of them and once; each id once, too.
--
-- KEYS  stream         stream  {chasqui:<queue>}:stream
--       events         stream  {chasqui:<queue>}:events
--       delayed        zset    {chasqui:<queue>}:delayed
--       window         zset    {chasqui:<queue>}:idmp:<query>
--       fence          hash    {chasqui:<queue>}:fence:<query>
--       lock           string  {chasqui:<queue>}:promoter:lock
--       scheduler_lock  string  {chasqui:<queue>}:scheduler:lock
--       consumers      string  {chasqui:<queue>}:tambo:consumers
--       workers        set     {chasqui:<queue>}:tambo:workers
--       converted      string  {chasqui:<queue>}:tambo:converted
--       marker, index  …       strings {chasqui:<queue>}:dlid:<id> and didx:<id>, of each job that
--                      is delayed under an id of the caller's
-- ARGV  batch          the chunk's; nothing is written for one that is below the fence's floor
--       token          names the chunk
--       digest         of what is in it
--       keep_s         for how long the fence is kept
--       cap            jobs that the stream may hold
--       overflow       'refuse' what is beyond it, or 'trim' the oldest
--       events_cap     events that are kept; 0 writes none
--       ts             now, in ms
--       dialect        of delayed members: 'page', 'engine', or 'auto', what the queue's signs ask for
--       waiting        how many jobs are not delayed
--       id, ttl, payload, name, run_at  …  a job: its id; seconds during which no other has it, 0 if
--                      it is fresh; envelope or delayed member, as `schedule` has it; name or ''; when it is due, '' for now
-- REPLY 1 added, 0 was added before, -1 another chunk was under this token, -2 its batch is over,
--       -3 there is no room; the leader's name if it could not read the delayed ones

local stream, events, delayed, window, fence = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local lock, scheduler_lock, consumers, workers, converted = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local batch, token, digest, keep_s = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local cap, overflow, events_cap, ts = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local dialect, waiting = ARGV[9], tonumber(ARGV[10])

local known = redis.call('HMGET', fence, token, 'floor')
if known[1] then
  return known[1] == digest and 0 or -1
elseif known[2] and tonumber(batch) < tonumber(known[2]) then
  return -2
end
if room(stream, cap) < waiting and overflow == 'refuse' then
  return -3
end
local shorten = false
if (#ARGV - 10) / 5 > waiting then
  local holder = dialect == 'page' and is_foreign_lock(lock)
  if holder then
    return holder
  end
  shorten = dialect == 'auto' and not has_signs(stream, lock, scheduler_lock, consumers, workers, delayed)
end
-- What is of another type is found before anything is written.
redis.call('ZCARD', delayed)
redis.call('ZCARD', window)

-- Ids are looked up together, and remembered together: one by one it takes three times as long.
local asked, lately, fresh, now = {}, {}, {}, now_ms()
for i = 11, #ARGV, 5 do
  if ARGV[i + 1] ~= '0' and ARGV[i + 4] == '' then
    asked[#asked + 1] = ARGV[i]
  end
end
for n, at in ipairs(#asked > 0 and redis.call('ZMSCORE', window, unpack(asked)) or {}) do
  lately[asked[n]] = at and tonumber(at) > now - window_ms
end

local markers, place = {unpack(KEYS, 11)}, 1
for i = 11, #ARGV, 5 do
  local id, ttl, payload, name, run_at = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4]
  local keyed = ttl ~= '0'
  if run_at ~= '' then
    local marker, index = markers[place], markers[place + 1]
    place = place + (keyed and 2 or 0)
    if not (keyed and redis.call('EXISTS', marker) == 1) then
      payload = shorten and fits_page(payload) and shortened(payload) or payload
      redis.call('ZADD', delayed, run_at, payload)
      note(events, events_cap, 'delayed', id, ts, name, 'delay_ms', run_at - ts)
      if keyed then
        redis.call('SET', marker, '1', 'EX', ttl)
        redis.call('SET', index, payload, 'EX', ttl)
      end
    end
  elseif not lately[id] then
    if name == '' then
      redis.call('XADD', stream, '*', 'd', payload)
    else
      redis.call('XADD', stream, '*', 'd', payload, 'n', name)
    end
    if keyed then
      lately[id], fresh[#fresh + 1], fresh[#fresh + 2] = true, now, id
    end
  end
end
if #fresh > 0 then
  redis.call('ZREMRANGEBYSCORE', window, '-inf', now - window_ms)
  redis.call('ZADD', window, unpack(fresh))
  redis.call('ZREMRANGEBYRANK', window, 0, -1 - window_ids)
  redis.call('PEXPIRE', window, window_ms)
end
if shorten or dialect == 'page' then
  redis.call('DEL', converted)
end
if overflow == 'trim' then
  trim(stream, cap, events, events_cap, ts, 'stream')
end
redis.call('HSET', fence, token, digest)
redis.call('EXPIRE', fence, keep_s)
return 1
