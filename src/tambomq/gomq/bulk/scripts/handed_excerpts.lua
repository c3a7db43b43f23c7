#!lua flags=no-writes
-- handed_excerpts: read the messages of one key in a batch that a peer has not acknowledged.
--
-- KEYS  handed  string  HANDED_<consumer>_<peer>
-- ARGV  key
--       first   messages of the key to skip
--       count   messages, at most
--       bytes   of each message
-- REPLY the batch ('' if there is none), how many messages of the key it has, then head, tail and
--       size of each
-- NEEDS unacked_batch, excerpt

local handed = KEYS[1]
local key, first, count, bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

local batch = read_unacked(handed)
if not batch then
  return {'', 0}
end
local reply, total = {tostring(batch[1]), 0}, 0
for i = 1, #batch[2], 2 do
  if batch[2][i] == key and type(batch[2][i + 1]) == 'table' then
    for _, message in ipairs(batch[2][i + 1]) do
      if total >= first and total < first + count then
        local at = #reply
        reply[at + 1], reply[at + 2], reply[at + 3] = excerpt(message, bytes)
      end
      total = total + 1
    end
  end
end
reply[2] = total
return reply
