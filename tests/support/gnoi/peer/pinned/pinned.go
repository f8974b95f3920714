//go:build pinned

// Package pinned imports the generator of dpu's structs, so that `go mod tidy` keeps its modules.
package pinned

import (
	_ "github.com/openconfig/ygot/generator"
)
