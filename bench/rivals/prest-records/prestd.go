//go:build tools

// Package tools names the program, so that its libraries are pinned with it.
package tools

import _ "github.com/prest/prest/cmd/prestd"
