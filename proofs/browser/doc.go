// Package browser tests the project's pages in a headless Chromium: the refusal pages of pipeline, the pages
// of package operator, and the page of examples/demo, each of whose scenarios is played. Each page is looked
// at light and dark, 390 and 1,280 pixels wide, and audited (audit_test.go): no errors in the console, no
// request to another host, names for all controls, contrast, landmarks, the order of headings, visible focus,
// nothing wider than the window.
//
// It is a module of its own, so that users never see the driver. It has tests only. All of them share one
// browser. Without chromium they are skipped with a banner; with GATEHOUSE_REQUIRE_REDIS=1 they fail.
// GATEHOUSE_BROWSER names another program, such as google-chrome.
//
//	go test -run TestScreenshots -update    # writes docs/images
package browser
