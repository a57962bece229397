-- Adds a record to those of the voter. Needs kind, the number of the ballot; choice; voter, mine, bucket, at,
-- stop; kept and choices, to which it adds; slots, which it changes. Gives slot, the last 4 bytes of the
-- record, and turn, the last; more, how many records there are more than before; text, the bucket with the
-- record.

local turn = #mine > 0 and (string.byte(mine[#mine], 4) + 1) % 256 or 0
local slot = string.char(math.floor(kind / 65536), math.floor(kind / 256) % 256, kind % 256, turn)
local more = #kept + 1 - #mine
slots = slots + more
kept[#kept + 1] = slot
choices[#choices + 1] = choice
local text
if #mine > 0 then
  text = string.sub(bucket, 1, at - 1) .. voter .. table.concat(kept, voter) .. string.sub(bucket, stop)
else -- the server works through each byte of a text that is made, so no more than this one is
  text = bucket .. voter .. slot
end
