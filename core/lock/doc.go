// Package lock lets one holder at a time work on a thing, in all processes together: an account, a report
// that takes minutes, a device. Each holder gets a fence: a number that is greater than the fences of all
// earlier holders.
//
// # In a rule
//
// Most callers make a [Guard] with [New] and use it in a rule, whose Who names the owner and whose What names
// the thing:
//
//	account := lock.New(gate, "account", lock.Options{})
//
// A request takes the lock before its handler runs, and gives it back however it ends. Without HTTP, call
// [Guard.Do].
//
// # Fences
//
// The lock is held under a lease, which the process renews while the work runs. A process that stands still
// for longer than the lease loses the lock without knowing it. So does each holder whose grant was not
// replicated before a failover of Redis. Then two may work at a time. So a lock alone saves work that would
// be done twice. Where two at a time would do harm, send the fence along with the write. Let the storage
// refuse a fence that is not greater than the last:
//
//	UPDATE accounts SET balance = $1, fence = $2 WHERE id = $3 AND fence < $2
//
// When no row has changed, somebody else has had the lock since. A holder that writes several times compares
// with <=. [Fence] returns the fence of a request.
package lock
