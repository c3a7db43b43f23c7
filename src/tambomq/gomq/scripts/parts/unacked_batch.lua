-- unacked_batch: read the batch that was delivered to a peer and is not yet acknowledged.

-- Return its id and its content (keys and messages alternate); nil if there is no valid batch.
local function read_unacked(handed)
  local sound, batch = pcall(cmsgpack.unpack, redis.pcall('GET', handed))
  if sound and type(batch) == 'table' and type(batch[1]) == 'string' and type(batch[2]) == 'table' then
    return batch
  end
end
