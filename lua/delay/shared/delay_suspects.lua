-- suspects is greater than all moments: in due, a suspect has it added to when it is due, and so stands
-- behind all others.
-- gives: suspects

local suspects = 10000000000000
