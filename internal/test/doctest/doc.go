// Package doctest keeps what is written about the code true. Its tests read the repository: Lua headers, doc comments, imports,
// and the documents' code, links, names and sizes. They fail where the text and the code differ.
package doctest
