-- prune_consumers: remove our dead consumers that own no entries from their groups.
--
-- KEYS  stream    stream  {chasqui:<queue>}:stream
--       workers   set     {chasqui:<queue>}:tambo:workers
-- ARGV  idle_ms   consumers idle for longer are dead
--       ours      name prefix of our consumers; others of ours are in workers
--       returned  the consumer that is never removed
-- REPLY how many were removed

local stream, workers = KEYS[1], KEYS[2]
local idle_ms, ours, returned = tonumber(ARGV[1]), ARGV[2], ARGV[3]

local count = 0
for _, group in ipairs(redis.pcall('XINFO', 'GROUPS', stream)) do
  for _, each in ipairs(redis.call('XINFO', 'CONSUMERS', stream, group[2])) do
    local name, pending, idle = each[2], each[4], each[6]
    local is_ours = name:sub(1, #ours) == ours or redis.call('SISMEMBER', workers, name) == 1
    if is_ours and name ~= returned and pending == 0 and idle > idle_ms then
      redis.call('XGROUP', 'DELCONSUMER', stream, group[2], name)
      redis.call('SREM', workers, name)
      count = count + 1
    end
  end
end
return count
