-- Gives index, half, mine, bucket, at, stop. Needs voters, voter, and buckets, the number of buckets.

-- Finds the bucket, and in it the voter's records: mine holds the last 4 bytes of each. They stand from at to
-- before stop.
local function find()
  local one, two, three, four = string.byte(voter, 1, 4)
  local hash = ((one * 256 + two) * 256 + three) * 256 + four
  local _, exponent = math.frexp(buckets)
  local half = 2 ^ (exponent - 1)
  local index = hash % (2 * half)
  if index >= buckets then
    index = hash % half
  end
  local bucket = redis.call('HGET', voters, index) or ''
  local at = string.find(bucket, voter, 1, true)
  while at and at % 16 ~= 1 do
    at = string.find(bucket, voter, at + 1, true)
  end
  if not at then
    return index, half, {}, bucket, #bucket + 1, #bucket + 1
  end
  local mine, stop = {}, at
  while string.sub(bucket, stop, stop + 11) == voter do
    mine[#mine + 1] = string.sub(bucket, stop + 12, stop + 15)
    stop = stop + 16
  end
  return index, half, mine, bucket, at, stop
end
