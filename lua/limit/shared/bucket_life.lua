-- life says how long the key of a token bucket has to live.
-- needs: now
-- gives: life

-- The milliseconds until the bucket is full, had all units been taken of the 16th of max in which the last
-- one is. So only the first unit of each 16th needs a new TTL. The extra second covers a pause of the
-- server between the script's start, from which a TTL counts, and its TIME. After the clock was set back, a
-- bucket to which units were given back may be full already.
local function life(since, offset, taken, max, window)
  local parts = math.ceil(taken * 16 / max)
  return math.max(math.ceil((since + offset + parts * window / 16 - now) / 1000), 0) + 1001
end
