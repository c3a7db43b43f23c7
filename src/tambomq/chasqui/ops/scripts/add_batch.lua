-- add_batch: add jobs to the stream, all or none, skipping duplicate ids.
--
-- KEYS  stream             stream  {chasqui:<queue>}:stream
--       events             stream  {chasqui:<queue>}:events
--       window             zset    {chasqui:<queue>}:idmp:<producer>
-- ARGV  batch              unique id of the batch
--       producer           deduplication scope of the ids
--       cap                length cap of the stream
--       overflow           at the cap: 'refuse' new jobs, or 'trim' the oldest
--       events_cap         length cap of the events stream; 0: write no events
--       announce           length cap of the events stream if `waiting` is to be written; else 0
--       ts                 current time, in ms
--       id, payload, name  …       a job; name '' for none
-- REPLY length of the stream; -1 if the stream is full
-- NEEDS write_event, put_*, stream_cap, dedup_window, journal_on, journal_on_queue

local stream, events, window = KEYS[1], KEYS[2], KEYS[3]
local batch, producer, cap, overflow = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local events_cap, announce, ts = ARGV[5], ARGV[6], ARGV[7]

if is_in_window(window, batch) then
  return redis.call('XLEN', stream)
end
if overflow == 'refuse' and free_slots(stream, cap) < (#ARGV - 7) / 3 then
  return -1
end
for i = 8, #ARGV, 3 do
  local id, payload, name = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if not is_known(window, id, true) then
    if journal_is_full() then return JOURNAL_FULL end
    local before = redis.call('XLEN', stream)
    if name == '' then
      put(stream, window, producer, id, true, 'd', payload)
    else
      put(stream, window, producer, id, true, 'd', payload, 'n', name)
    end
    if redis.call('XLEN', stream) > before then
      stored(id, name, payload)
      write_event(events, announce, 'waiting', id, ts, name)
    end
  end
end
close_journal()
remember(window, batch)
if overflow == 'trim' then
  trim(stream, cap, events, events_cap, ts, 'stream')
end
return redis.call('XLEN', stream)
