-- put_plain: add an entry, on servers without XADD IDMP.
--
-- NEEDS dedup_window

local function is_known(window, id, near)
  return is_in_window(window, id)
end

local function put(stream, window, producer, id, near, ...)
  local entry = redis.call('XADD', stream, '*', ...)
  remember(window, id)
  return entry
end
