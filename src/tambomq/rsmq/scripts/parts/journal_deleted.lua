-- journal_deleted: for the twins of delete and delete_one: tell who was deleted.
--
-- KEYS  none
-- ARGV  id, receipt  …  of each
-- REPLY none

after = function(reply)
  local flags = type(reply) == 'table' and reply or {reply}
  for i = 1, #ARGV, 2 do
    if flags[(i + 1) / 2] == 1 then
      tell(0, 'deleted', ARGV[i])
    end
  end
end
