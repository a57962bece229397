-- Stores the voter's records, and the state of the book. Needs voters, book, index, bucket, at, stop, voter,
-- kinds, slots, changes, buckets, ballots, ended; mine, the records, of which there were count; and slot, the one
-- that was at place.

if place == count and string.sub(mine[#mine] or '', 4) ~= string.sub(slot, 4) then
  mine[#mine + 1] = '\0\0\0' .. string.sub(slot, 4) -- the last turn is kept: no later vote may reuse it
end
redis.call('HSET', voters, index,
  string.sub(bucket, 1, at - 1) .. voter .. table.concat(mine, voter) .. string.sub(bucket, stop))
redis.call('HSET', book, ':state', string.format('%.0f %.0f %.0f %.0f %.0f %.0f', slots - count + #mine,
  changes + 1, buckets, ballots, kinds, ended))
