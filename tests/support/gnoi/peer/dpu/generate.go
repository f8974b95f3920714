// Package dpu has the structs of dpu.yang, made by `go generate ./...`.
package dpu

//go:generate go run -trimpath github.com/openconfig/ygot/generator -generate_fakeroot -output_file generated.go -package_name dpu dpu.yang
