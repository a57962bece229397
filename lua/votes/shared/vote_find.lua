-- bucket_of and records_of find a voter. buckets is how many there are.
-- needs: buckets
-- gives: bucket_of, records_of

-- Returns the number of a voter's bucket, and the largest power of 2 up to the number of buckets.
local function bucket_of(voter)
  local one, two, three, four = string.byte(voter, 1, 4)
  local hash = ((one * 256 + two) * 256 + three) * 256 + four
  local _, exponent = math.frexp(buckets)
  local half = 2 ^ (exponent - 1)
  local index = hash % (2 * half)
  if index >= buckets then
    index = hash % half
  end
  return index, half
end

-- Finds a voter's records in a bucket. Returns the last 4 bytes of each, and where they begin and where what
-- comes behind them does.
local function records_of(bucket, voter)
  local at = string.find(bucket, voter, 1, true)
  while at and at % 16 ~= 1 do
    at = string.find(bucket, voter, at + 1, true)
  end
  if not at then
    return {}, #bucket + 1, #bucket + 1
  end
  local mine, stop = {}, at
  while string.sub(bucket, stop, stop + 11) == voter do
    mine[#mine + 1] = string.sub(bucket, stop + 12, stop + 15)
    stop = stop + 16
  end
  return mine, at, stop
end
