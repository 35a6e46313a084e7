// Package gridtest holds what all objects of the grid are tested for: a model by random operations with lost replies, bad
// input, keys of other kinds, errors.
package gridtest
