-- delayed_member: how a delayed job is stored where a released engine may share the queue.
--
-- NEEDS dialect

-- Return the dialect to store *member* in, the member in it, and whether members of the page's dialect
-- need conversion. *dialect* 'auto' is decided by whether an engine shares the queue.
local function in_dialect(dialect, member, delayed, stream, lock, scheduler_lock, consumers, workers, converted)
  if dialect ~= 'auto' then
    return dialect, member, false
  end
  if not has_engine(stream, lock, scheduler_lock, consumers, workers, delayed) then
    return 'page', shortened(member), false
  end
  return dialect, member, redis.call('GET', converted) ~= '1'
end

-- Note that a member was stored: the one of its id, if *ttl* is not 0 seconds.
local function note_member(dialect, converted, marker, index, member, ttl)
  if dialect == 'page' then
    redis.call('DEL', converted)
  end
  if ttl ~= '0' then
    redis.call('SET', marker, '1', 'EX', ttl)
    redis.call('SET', index, member, 'EX', ttl)
  end
end
