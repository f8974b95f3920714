module dpuplane.io/tests/gnoi

go 1.26.0

require (
	github.com/google/gnxi v0.0.0-20231026134436-d82d9936af15
	github.com/openconfig/gnmi v0.14.1
	github.com/openconfig/gnoi v0.4.1
	github.com/openconfig/goyang v1.6.0
	github.com/openconfig/ygot v0.29.20
	google.golang.org/grpc v1.80.0
)

require (
	github.com/dustin/go-humanize v1.0.0 // indirect
	github.com/golang/glog v1.2.5 // indirect
	github.com/golang/protobuf v1.5.4 // indirect
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/kylelemons/godebug v1.1.0 // indirect
	golang.org/x/exp v0.0.0-20241009180824-f66d83c29e7c // indirect
	golang.org/x/net v0.49.0 // indirect
	golang.org/x/sys v0.40.0 // indirect
	golang.org/x/text v0.33.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260120221211-b8f7ae30c516 // indirect
	google.golang.org/protobuf v1.36.11 // indirect
)
