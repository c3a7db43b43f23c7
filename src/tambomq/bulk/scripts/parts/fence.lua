-- fence: write each chunk of a sink once.

-- Return nil if the chunk may be written; else the reply: 0 it was written before, -1 the token was
-- used for another chunk, -2 its batch is below the floor.
local function refused_by_fence(fence, batch, token, digest)
  local known = redis.call('HMGET', fence, token, 'floor')
  if known[1] then
    return known[1] == digest and 0 or -1
  elseif known[2] and tonumber(batch) < tonumber(known[2]) then
    return -2
  end
end

local function remember_chunk(fence, token, digest, keep_s)
  redis.call('HSET', fence, token, digest)
  redis.call('EXPIRE', fence, keep_s)
end
