//go:build pinned

// Package pinned imports the mock of a BMC, so that `go mod tidy` keeps its module.
package pinned

import (
	_ "github.com/ironcore-dev/metal-operator/bmc/mock"
)
