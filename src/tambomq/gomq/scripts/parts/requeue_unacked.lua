-- requeue_unacked: put an unacknowledged batch back into its peer's dedicated queues.
--
-- NEEDS unacked_batch, put_back, journal_on_deliver

-- With *key*, only the messages of that key. Returns the bytes that were read.
local function requeue_unacked(handed, acked, list_of, key)
  local size = redis.pcall('STRLEN', handed)
  if size == 0 then
    redis.call('DEL', handed)
    return 0
  end
  local batch, rest = read_unacked(handed), {}
  redis.call('DEL', handed)
  if not batch or batch[1] == acked then
    delivered(batch and batch[2])
    return type(size) == 'number' and size or 0
  end
  local found = batch[2]
  for place = 1, #found, 2 do
    if key == nil or found[place] == key then
      put_back(list_of(found[place]), found[place + 1])
    else
      rest[#rest + 1], rest[#rest + 2] = found[place], found[place + 1]
    end
  end
  if #rest > 0 then
    redis.call('SET', handed, cmsgpack.pack({batch[1], rest}))
  end
  return size
end
