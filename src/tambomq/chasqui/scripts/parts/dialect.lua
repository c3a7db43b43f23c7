-- dialect: detect a released ChasquiMQ engine on a queue, and convert between the member dialects.
--
-- NEEDS prefix

-- Leaders, consumers and leases of this implementation have these prefixes.
local function is_ours(name)
  local head = name:sub(1, 6)
  return head == 'tambo-' or head == 'spark-'
end

local function is_foreign_lock(lock)
  local holder = redis.call('GET', lock)
  return holder and not is_ours(holder) and holder
end

-- Whether any group has a consumer that is not ours. With more than 16 consumers the answer is
-- cached for a second, unless their number changes.
local function has_foreign_consumer(stream, consumers, workers)
  local groups, shape, total = redis.pcall('XINFO', 'GROUPS', stream), {}, 0
  for i, group in ipairs(groups) do
    shape[i] = group[2] .. ' ' .. group[4]
    total = total + group[4]
  end
  if total == 0 then
    return false
  end
  shape = table.concat(shape, ' ')
  local known = total > 16 and redis.call('GET', consumers)
  if known and known:sub(2) == shape then
    return known:sub(1, 1) == '1'
  end
  local found = false
  for _, group in ipairs(groups) do
    for _, each in ipairs(redis.call('XINFO', 'CONSUMERS', stream, group[2])) do
      found = found or not is_ours(each[2]) and redis.call('SISMEMBER', workers, each[2]) == 0
    end
  end
  if total > 16 then
    redis.call('SET', consumers, (found and '1' or '0') .. shape, 'PX', 1000)
  end
  return found
end

-- Whether the first or the last delayed member is in the engine's dialect.
local function has_foreign_member(delayed)
  for _, rank in ipairs({0, -1}) do
    local member = redis.call('ZRANGE', delayed, rank, rank)[1]
    if member and prefix(member) == 4 then
      return true
    end
  end
  return false
end

-- Whether a released engine shares the queue, judged by its locks, its consumers and, if *delayed* is
-- given, its delayed members.
local function has_engine(stream, lock, scheduler_lock, consumers, workers, delayed)
  return is_foreign_lock(lock) or is_foreign_lock(scheduler_lock)
    or has_foreign_consumer(stream, consumers, workers) or delayed and has_foreign_member(delayed)
end

-- Whether the name of an engine member fits into the page's dialect. The same rule as `keys.fits_page`,
-- in bytes.
local function fits_page(member)
  local _, length = prefix(member)
  return length <= 255 and not member:sub(5, 4 + math.min(3, length)):find('%z')
end

-- Convert a member from the engine's dialect to the page's: one byte for the length of its name.
local function shortened(member)
  return member:sub(1, 1) .. member:sub(5)
end
