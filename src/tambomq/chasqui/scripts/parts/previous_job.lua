-- previous_job: check whether a job is still in the queue, by where it was last stored.
--
-- NEEDS prefix

-- *place* is an entry of the stream, or a delayed member. A member may have been converted to the
-- other dialect meanwhile.
local function is_queued(stream, delayed, place)
  if place:find('^%d+%-%d+$') then
    return #redis.call('XRANGE', stream, place, place) > 0
  end
  local skip = prefix(place)
  local other = skip == 4 and place:sub(1, 1) .. place:sub(5) or place:sub(1, 1) .. '\0\0\0' .. place:sub(2)
  return redis.call('ZSCORE', delayed, place) or redis.call('ZSCORE', delayed, other)
end

-- Forget which job a spec added last. *known* is the value in unless_queued: a digest of the spec, then
-- the id of that job.
local function forget_previous(previous, known)
  if known and #known > 40 then
    redis.call('HDEL', previous, known:sub(41))
  end
end
