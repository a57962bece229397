// Package lease has sliding windows whose units a process fetches ahead. It is for a large limit and many
// attempts of one actor and resource, such as a tenant's: most of them are decided without asking Redis.
//
//	tenants := lease.New(gate, "tenants", limit.PerSecond(5000))
//
// The upper bound stays exact: there are never more than Max units in any window, however many processes
// there are. What is not exact is who is refused near the limit: an attempt may be refused while another
// process has units in hand. Those are units that it has fetched and not handed out.
//
// # How long units are in hand
//
// The limit counts by parts of its window, 20 unless it has a Resolution: a unit counts as taken at the end
// of the part in which it was fetched. A process hands it out until then at the latest, by its own clock,
// from the moment at which it asked. Units that it has not used go back to Redis with its next call, one
// part later at the latest, and in [core.Drain]. When a process dies, or a reply is lost, the units count as
// taken until they leave the window.
//
// A process asks for twice as many units as before when they did not last for a part, and for half as many
// when most were left. One call gets at most a part of what is left: left / (2 * processes), where the
// number of processes is what others have taken of late, by what this one has; Redis knows no processes, so a
// call costs it the same with one and with a thousand. Where a part has fewer than 8 units (Max < 8 *
// Resolution), little is left, or fewer than two attempts come to the process in a part, each one asks Redis.
//
// # What a process keeps
//
// A guard keeps 65,536 actors and resources, at most 500 bytes each and the tag in their keys, whatever the
// length of their texts. The one that was asked about least recently gives way, and its units go back. One
// that is not asked about for two parts is forgotten. An actor's first attempt fetches nothing ahead. One
// sweep per part gives back what is left of all actors, in pipelines of 256 calls, and so does Drain.
//
// # Decisions
//
// A decision about a unit in hand has the source [core.SourceLease]. Its Remaining, and that of the decision
// that came with the last call, is what that call left in Redis plus what is in hand; other processes may
// have taken some of it since. Likewise, the RetryAfter of a refusal is only an upper bound, since units may
// come back before. So a refusal is remembered for a part of the window at most. [Guard.Peek] counts what
// this process has in hand as left, and what others have as taken. After a [Guard.Reset] other processes may
// still hand out what they have in hand.
//
// # Clocks and failovers
//
// The clocks of the process and the server may run at speeds that differ by 3 percent. An attempt is decided
// at the moment when the process reads its clock. If the process is stopped right after that, or its machine
// is suspended, the attempt that was allowed still goes on when the process does. When the server's clock is
// set, units that were in hand then may be handed out, up to one part later, although they no longer count:
// set back, no window has more than Max and these units; set forward, that holds for windows that begin
// later. A failover of Redis loses the units that the former primary alone has counted, those in hand
// included, and so many more than Max may be admitted: see seckill.Fast. An engine without Redis has no need
// for leases and ignores them.
package lease
