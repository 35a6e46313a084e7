// Package doctest keeps what is written about the code true: its tests read the repository itself, Lua headers,
// README code, links, doc comments and imports, and fail where the text and the code differ.
package doctest
