-- Refuses a poll whose records are lost. Needs slots, mine, rest, voters, index.

if slots > 0 and #mine == 0 and rest == '' and redis.call('HEXISTS', voters, index) == 0 then
  return redis.error_reply('GATEHOUSE lost: records of ' .. voters .. ': who has voted is unknown')
end
