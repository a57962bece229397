// Package adaptertest tests an adapter: a package that mounts Gatehouse's rules in a web framework. Its
// checks are about what clients get, which handlers run, and what the guards have taken afterwards.
//
// # What an adapter has
//
// An adapter translates; package [pipeline] decides and answers. The example is a whole one, for net/http.
//
//   - A middleware. It makes a [keyfuncs.Request] with what the framework knows of the request
//     ([keyfuncs.Facts]: pattern, path parameters, values of a login), and calls [pipeline.Pipeline.Enter].
//     A refusal answers by itself, and no handler runs. Otherwise the next handler gets the context of the
//     [pipeline.Passage], and its writer in place of the framework's.
//   - The end of the request. Passage.Abort is deferred, for panics. Passage.Leave gets the status that the
//     framework sends if the handler has sent none.
//   - Functions for handlers. Decision, Take and Spend call those of package pipeline with the context of the
//     request. Page serves a [pipeline.Page], such as that of deferred requests, to a keyfuncs.Request that
//     has the same facts.
//   - If you like, PerIP: the most common limit in one line.
//
// # How to test it
//
// A test says how to build an application with the framework ([Framework]), and runs the checks:
//
//	func TestAdapter(t *testing.T) {
//		adaptertest.Run(t, adaptertest.Framework{Build: build, Mount: mount})
//	}
//
// [Framework.Without] names the rows that cannot hold, as in a framework that sends nothing before its
// handlers have returned. Users should read of them, too.
//
// The checks need no set-up, because they run on a Redis inside the process. With Framework.Redis, those that
// need no clock of their own run on your server.
//
// [RunBehind] tests the adapter behind middlewares of the framework that end the context of a request, answer
// in place of its handler, or recover from panics.
package adaptertest
