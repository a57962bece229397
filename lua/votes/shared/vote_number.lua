-- number reads the ballot's number from the last 4 bytes of a record.
-- gives: number

local function number(slot)
  local high, middle, low = string.byte(slot, 1, 3)
  return (high * 256 + middle) * 256 + low
end
