-- Reads who holds a lock. now comes in microseconds and goes in milliseconds; micro is what came. held is
-- false where the lease is over.
-- needs: now, lock
-- gives: micro, now, ends, fence, held

local micro = now
now = math.floor(micro / 1000)
local record = redis.call('HMGET', lock, 'holder', 'ends', 'fence')
local ends, fence = tonumber(record[2] or 0), tonumber(record[3] or 0)
local held = ends > now and record[1]
