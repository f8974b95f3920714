package main

import (
	"context"
	"strings"
	"sync"
	"time"

	gnxi "github.com/google/gnxi/gnoi/os"
	ospb "github.com/google/gnxi/gnoi/os/pb"
	syspb "github.com/openconfig/gnoi/system"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const factory = "factory"

// A device is gnxi's store of images with what it lacks: configurations, reboots, and their status.
type device struct {
	mu      sync.Mutex
	reboot  time.Duration
	images  *gnxi.Server
	configs map[string]string
	planned []string // outcomes of the next activations and reboots: fail, lie, hang, mute
	boots   uint32
	began   time.Time
	until   time.Time
	failed  string
	State
}

// State is what tests read of a device.
type State struct {
	Installs int    // activations that began
	Restarts int    // reboots that were asked for
	Running  string // the version of the running image
	Config   string // the configuration of the last activation
	Rotated  int    // certificates that the device has kept
}

func newDevice(reboot time.Duration) *device {
	d := &device{reboot: reboot}
	d.renew()
	return d
}

// renew makes it a device as delivered.
func (d *device) renew() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.images = gnxi.NewServer(&gnxi.Settings{FactoryVersion: factory, ReceiveChunkSizeAck: 1 << 16})
	d.configs, d.planned, d.failed = map[string]string{}, nil, ""
	d.boots, d.began, d.until, d.State = 0, time.Time{}, time.Time{}, State{}
}

func (d *device) plan(outcome string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.planned = append(d.planned, outcome)
}

func (d *device) state() State {
	d.mu.Lock()
	defer d.mu.Unlock()
	state := d.State
	running, _ := d.images.Verify(context.Background(), nil)
	state.Running = running.Version
	return state
}

func (d *device) store() *gnxi.Server {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.images
}

// next takes the planned outcome of the next activation or reboot.
func (d *device) next() string {
	if len(d.planned) == 0 {
		return ""
	}
	outcome := d.planned[0]
	d.planned = d.planned[1:]
	return outcome
}

// begin begins a reboot with this outcome.
func (d *device) begin(outcome string) {
	d.boots++
	d.began = time.Now()
	d.until = d.began.Add(d.reboot)
	d.failed = ""
	switch outcome {
	case "fail":
		d.failed = "the image was not written"
	case "hang":
		d.until = d.began.Add(time.Hour)
	}
}

type osService struct {
	ospb.UnimplementedOSServer
	*device
}

// replayed is a stream whose first message was read already.
type replayed struct {
	ospb.OS_InstallServer
	first *ospb.InstallRequest
}

func (r *replayed) Recv() (*ospb.InstallRequest, error) {
	if first := r.first; first != nil {
		r.first = nil
		return first, nil
	}
	return r.OS_InstallServer.Recv()
}

// Install leaves images to gnxi. A configuration is kept as it comes.
func (s osService) Install(stream ospb.OS_InstallServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	version := first.GetTransferRequest().GetVersion()
	if !strings.HasSuffix(version, ".cfg") {
		return s.store().Install(&replayed{stream, first})
	}
	ready := &ospb.InstallResponse_TransferReady{TransferReady: &ospb.TransferReady{}}
	if err := stream.Send(&ospb.InstallResponse{Response: ready}); err != nil {
		return err
	}
	content, err := gnxi.ReceiveOS(stream)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.configs[version] = content.String()
	s.mu.Unlock()
	validated := &ospb.InstallResponse_Validated{Validated: &ospb.Validated{Version: version}}
	return stream.Send(&ospb.InstallResponse{Response: validated})
}

// Activate takes IMAGE;CONFIGURATION, as DMS does, and reboots into it.
func (s osService) Activate(ctx context.Context, request *ospb.ActivateRequest) (*ospb.ActivateResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().Before(s.until) {
		return nil, status.Error(codes.Unavailable, "a reboot is in progress")
	}
	image, config, _ := strings.Cut(request.GetVersion(), ";")
	content, known := s.configs[config]
	if !known {
		return &ospb.ActivateResponse{Response: &ospb.ActivateResponse_ActivateError{
			ActivateError: &ospb.ActivateError{Type: ospb.ActivateError_NON_EXISTENT_VERSION, Detail: config},
		}}, nil
	}
	outcome := s.next()
	response := &ospb.ActivateResponse{Response: &ospb.ActivateResponse_ActivateOk{}}
	if outcome != "fail" && outcome != "lie" {
		var err error
		response, err = s.images.Activate(ctx, &ospb.ActivateRequest{Version: image})
		if err != nil || response.GetActivateError() != nil {
			return response, err
		}
	}
	s.Installs++
	s.Config = content
	s.begin(outcome)
	if outcome == "mute" {
		return nil, status.Error(codes.Unavailable, "the answer is lost")
	}
	return response, nil
}

func (s osService) Verify(ctx context.Context, request *ospb.VerifyRequest) (*ospb.VerifyResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().Before(s.until) {
		return nil, status.Error(codes.Unavailable, "a reboot is in progress")
	}
	return s.images.Verify(ctx, request)
}

type systemService struct {
	syspb.UnimplementedSystemServer
	*device
}

func (s systemService) Reboot(context.Context, *syspb.RebootRequest) (*syspb.RebootResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().Before(s.until) {
		return nil, status.Error(codes.AlreadyExists, "a reboot is in progress")
	}
	s.Restarts++
	outcome := s.next()
	s.begin(outcome)
	if outcome == "mute" {
		return nil, status.Error(codes.Unavailable, "the answer is lost")
	}
	return &syspb.RebootResponse{}, nil
}

func (s systemService) RebootStatus(
	context.Context, *syspb.RebootStatusRequest,
) (*syspb.RebootStatusResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := &syspb.RebootStatusResponse{Active: time.Now().Before(s.until), Count: s.boots}
	if !s.began.IsZero() {
		answer.When = uint64(s.began.UnixNano())
	}
	if !answer.Active && s.boots > 0 {
		answer.Status = &syspb.RebootStatus{Status: syspb.RebootStatus_STATUS_SUCCESS}
		if s.failed != "" {
			answer.Status = &syspb.RebootStatus{Status: syspb.RebootStatus_STATUS_FAILURE, Message: s.failed}
		}
	}
	return answer, nil
}
