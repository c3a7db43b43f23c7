-- kept: the batch that was handed to a peer and is not yet acknowledged.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

-- Its name and its content, keys and messages in turn. What is no batch is none.
local function read_kept(handed)
  local sound, batch = pcall(cmsgpack.unpack, redis.pcall('GET', handed))
  if sound and type(batch) == 'table' and type(batch[2]) == 'table' then
    return batch
  end
end
