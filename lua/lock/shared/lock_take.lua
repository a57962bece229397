-- Takes a lock under the next fence.
-- needs: now, lease, fence, micro, ends, lock, holder
-- gives: ends, fence

ends, fence = now + lease, math.max(fence + 1, micro)
redis.call('HSET', lock, 'holder', holder, 'ends', ends, 'fence', fence)
