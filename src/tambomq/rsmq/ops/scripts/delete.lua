#!lua flags=allow-oom
-- delete: delete messages with their counters.
--
-- KEYS  messages     zset  <ns>:<queue>
--       data         hash  <ns>:<queue>:Q
--       receipts     hash  <ns>:<queue>:receipts
-- ARGV  id, receipt  …     a message, and the receipt that must still be valid, or ''
-- REPLY 1 or 0 for each: deleted, or not found or received again since;
--       nil if the queue does not exist
-- NEEDS receipts, journal_on, journal_on_queue

local messages, data, receipts = KEYS[1], KEYS[2], KEYS[3]

local ids, names = {}, {'vt'}
for i = 1, #ARGV, 2 do
  local id = ARGV[i]
  ids[#ids + 1], names[#names + 1] = id, id .. ':rc'
end
local stored = redis.call('HMGET', data, unpack(names))
if not stored[1] then
  return nil
end
local scores = redis.call('ZMSCORE', messages, unpack(ids))
local records = redis.call('HMGET', receipts, unpack(ids))

local reply, deleted, fields, is_deleted = {}, {}, {}, {}
for i, id in ipairs(ids) do
  local receipt = ARGV[2 * i]
  local ours = receipt == '' or receipt == receipt_of(stored[i + 1], records[i])
  reply[i] = ours and scores[i] and not is_deleted[id] and 1 or 0
  if reply[i] == 1 then
    is_deleted[id] = true
    deleted[#deleted + 1] = id
    local n = #fields
    fields[n + 1], fields[n + 2], fields[n + 3], fields[n + 4] = id, names[i + 1], id .. ':fr', id .. ':why'
  end
end
if #deleted > 0 then
  redis.call('ZREM', messages, unpack(deleted))
  redis.call('HDEL', data, unpack(fields))
  redis.call('HDEL', receipts, unpack(deleted))
  removed_all(deleted)
  close_journal()
end
return reply
