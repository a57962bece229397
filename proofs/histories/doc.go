// Package histories checks that what concurrent callers of the guards see is linearizable, while servers and
// connections break: there is one order of all calls, within the time that each call took, in which a plain
// sequential model gives every caller the answer that they got. The checker is porcupine.
//
// It is a module of its own, so that users of the guards never see the checker. It has tests only.
//
// # Unknown outcomes
//
// A call that returns an error may have happened or not, at any time until the end of the history. So the
// history has it as a call that never returned, which the checker may put anywhere after its begin. At the
// very end, where nobody sees its effect, it stands for a call that never happened. The undo of a failed
// claim is a second call of this kind.
//
// # Time
//
// The guards read a clock of the test, which stands still during a phase of a history and moves between
// phases, when no caller is waiting for an answer: on by one step, or forward and back by any.
package histories
