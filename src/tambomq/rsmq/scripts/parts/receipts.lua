-- receipts: for other scripts: which delivery of a message is the last one.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

-- The receipt that counts for a message with this count of receives and this record of a delivery.
-- A client that writes no records changes the count: then the record is of an older delivery.
local function receipt_of(rc, record)
  rc = rc or '0'
  if record and record:sub(1, #rc + 1) == rc .. '-' then
    return record:match('^%S+')
  end
  return rc
end
