package answers

// Text is the human-readable part of a refusal.
type Text struct {
	// Title is a short summary, Detail a sentence that explains it. Empty: the standard English text.
	Title, Detail string
	// Lang is the language of the texts, such as "pt-BR" (RFC 5646). It is used in the Content-Language field
	// and in pages. Empty: no such field, and "en" in pages.
	Lang string
	// Wait and Ready are for pages that say when to come back. Wait precedes the time. Ready is shown when
	// that time has come. Empty: "You can come back at" and "You can try again now." in an English page. A
	// page of another language then has the time without words.
	Wait, Ready string
}
