module github.com/redlatch/redlatch/redlatchprom

go 1.25.0

require github.com/redlatch/redlatch v0.0.0
