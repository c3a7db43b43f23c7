#!lua
-- sink_jobs: add the jobs of a chunk, waiting or delayed, all or none, exactly once, skipping
-- duplicate ids.
--
-- KEYS  stream          stream  {chasqui:<queue>}:stream
--       events          stream  {chasqui:<queue>}:events
--       delayed         zset    {chasqui:<queue>}:delayed
--       window          zset    {chasqui:<queue>}:idmp:<query>
--       fence           hash    {chasqui:<queue>}:fence:<query>
--       lock            string  {chasqui:<queue>}:promoter:lock
--       scheduler_lock  string  {chasqui:<queue>}:scheduler:lock
--       consumers       string  {chasqui:<queue>}:tambo:consumers
--       workers         set     {chasqui:<queue>}:tambo:workers
--       converted       string  {chasqui:<queue>}:tambo:converted
--       marker, index   …       strings {chasqui:<queue>}:dlid:<id> and didx:<id>, of each job that
--                      is delayed under an id of the caller's
-- ARGV  batch           number of the chunk's batch; below the fence's floor nothing is written
--       token           id of the chunk
--       digest          digest of the chunk's content
--       keep_s          TTL of the fence, in seconds
--       cap             length cap of the stream
--       overflow        at the cap: 'refuse' new jobs, or 'trim' the oldest
--       events_cap      length cap of the events stream; 0: write no events
--       ts              current time, in ms
--       dialect         of delayed members: 'page', 'engine', or 'auto' (engine if one shares the queue)
--       waiting         how many jobs are not delayed
--       id, ttl, payload, name, run_at  …  a job: its id; seconds during which no other has it, 0 if
--                      it is generated; envelope or delayed member, as in `schedule`; name or ''; due
--                      time in ms, '' for now
-- REPLY 1 added, 0 was added before, -1 the token was used for another chunk,
--       -2 its batch is below the floor, -3 the stream is full; the leader's name if it could
--       not read the delayed ones
-- NEEDS fence, dialect, write_event, stream_cap, dedup_window, journal_on, journal_on_queue

local stream, events, delayed, window, fence = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local lock, scheduler_lock, consumers, workers, converted = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local batch, token, digest, keep_s = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local cap, overflow, events_cap, ts, dialect, waiting = ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9], tonumber(ARGV[10])

local refused = refused_by_fence(fence, batch, token, digest)
if refused then
  return refused
end
if free_slots(stream, cap) < waiting and overflow == 'refuse' then
  return -3
end
local has_delayed = (#ARGV - 10) / 5 > waiting
local holder = has_delayed and dialect == 'page' and is_foreign_lock(lock)
if holder then
  return holder
end
local shorten = has_delayed and dialect == 'auto'
  and not has_engine(stream, lock, scheduler_lock, consumers, workers, delayed)
-- Read the keys first: one of another type then fails before anything is written.
redis.call('ZCARD', delayed)
redis.call('ZCARD', window)
-- Look up and remember all ids together: one by one takes three times as long.
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
      if journal_is_full() then return JOURNAL_FULL end
      payload = shorten and fits_page(payload) and shortened(payload) or payload
      if redis.call('ZADD', delayed, run_at, payload) == 1 then
        stored_delayed(id, name, payload, run_at)
      end
      write_event(events, events_cap, 'delayed', id, ts, name, 'delay_ms', run_at - ts)
      if keyed then
        redis.call('SET', marker, '1', 'EX', ttl)
        redis.call('SET', index, payload, 'EX', ttl)
      end
    end
  elseif not lately[id] then
    if journal_is_full() then return JOURNAL_FULL end
    if name == '' then
      redis.call('XADD', stream, '*', 'd', payload)
    else
      redis.call('XADD', stream, '*', 'd', payload, 'n', name)
    end
    stored(id, name, payload)
    if keyed then
      lately[id], fresh[#fresh + 1], fresh[#fresh + 2] = true, now, id
    end
  end
end
close_journal()
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
remember_chunk(fence, token, digest, keep_s)
return 1
