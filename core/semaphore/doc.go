// Package semaphore lets at most N requests run at a time, in all processes together: exports that need much
// memory, calls of a partner's service, connections to a printer.
//
// # In a rule
//
// Most callers make a [Guard] with [New] and use it in a rule:
//
//	exports := semaphore.New(gate, "exports", semaphore.Options{Max: 5})
//
// A request takes a permit before its handler runs, and gives it back however it ends. A permit is held under
// a lease, which the process renews for as long as the request runs. So the permits of a process that dies
// are free when their lease is over, and a request may run for longer than a lease.
//
// # Lost leases
//
// A lease may be lost all the same, when Redis or the process stands still for longer than the lease. Then
// somebody else may get the permit, so the request's context ends with the cause [ErrLost]. Work that watches
// its context stops.
//
// # Without HTTP
//
// Without HTTP, call [Guard.Check], [Guard.Hold] and [Guard.Settle].
package semaphore
