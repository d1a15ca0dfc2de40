// The judge of status.json: the structs of the contract document and Go's own encoding/json.
//
//	echo:      reads a JSON array of statuses, writes them again, one file each, as the original does
//	generate N: writes N statuses with all kinds of values
package main

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"time"
)

type ArcStatus struct {
	Registered    bool      `json:"registered"`
	Connected     bool      `json:"connected"`
	MachineName   string    `json:"machineName"`
	ResourceID    string    `json:"resourceId,omitempty"`
	Location      string    `json:"location,omitempty"`
	ResourceGroup string    `json:"resourceGroup,omitempty"`
	LastHeartbeat time.Time `json:"lastHeartbeat,omitempty"`
	AgentVersion  string    `json:"agentVersion,omitempty"`
}

type LastUpdatedBy string
type LastUpdatedReason string

const (
	LastUpdatedByUnspecified                  LastUpdatedBy = ""
	LastUpdatedByStatusCollectionLoop         LastUpdatedBy = "StatusCollectionLoop"
	LastUpdatedByDriftDetectionAndRemediation LastUpdatedBy = "DriftDetectionAndRemediation"

	LastUpdatedReasonUnspecified            LastUpdatedReason = ""
	LastUpdatedReasonPeriodicStatusLoop     LastUpdatedReason = "perodicStatusLoop"
	LastUpdatedReasonKubernetesVersionDrift LastUpdatedReason = "kubernetesVersionDrift"
)

type NodeStatus struct {
	KubeletVersion    string            `json:"kubeletVersion"`
	RuncVersion       string            `json:"runcVersion"`
	ContainerdVersion string            `json:"containerdVersion"`
	KubeletRunning    bool              `json:"kubeletRunning"`
	KubeletReady      string            `json:"kubeletReady"`
	ContainerdRunning bool              `json:"containerdRunning"`
	ArcStatus         ArcStatus         `json:"arcStatus"`
	LastUpdated       time.Time         `json:"lastUpdated"`
	LastUpdatedBy     LastUpdatedBy     `json:"lastUpdatedBy,omitempty"`
	LastUpdatedReason LastUpdatedReason `json:"lastUpdatedReason,omitempty"`
	AgentVersion      string            `json:"agentVersion"`
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// emit writes the file of each status as a string of a JSON array, so that its bytes are kept.
func emit(all []NodeStatus) {
	files := make([]string, 0, len(all))
	for _, status := range all {
		file, err := json.MarshalIndent(status, "", "  ")
		fail(err)
		files = append(files, string(file))
	}
	fail(json.NewEncoder(os.Stdout).Encode(files))
}

func text(r *rand.Rand) string {
	texts := []string{"", "1.36.3", "unknown", "node \"1\"", "<b>&amp;", "ä\u2028\n\t", "\\", "\u0001"}
	return texts[r.Intn(len(texts))]
}

func moment(r *rand.Rand) time.Time {
	if r.Intn(4) == 0 {
		return time.Time{}
	}
	zones := []*time.Location{time.UTC, time.FixedZone("x", 7200), time.FixedZone("y", -16200)}
	nanos := []int64{0, 1, 120000000, 999999999}
	return time.Unix(r.Int63n(4e9), nanos[r.Intn(len(nanos))]).In(zones[r.Intn(len(zones))])
}

func generate(count int) []NodeStatus {
	r := rand.New(rand.NewSource(7))
	by := []LastUpdatedBy{LastUpdatedByUnspecified, LastUpdatedByStatusCollectionLoop,
		LastUpdatedByDriftDetectionAndRemediation, "somebody"}
	why := []LastUpdatedReason{LastUpdatedReasonUnspecified, LastUpdatedReasonPeriodicStatusLoop,
		LastUpdatedReasonKubernetesVersionDrift, "something"}
	all := make([]NodeStatus, 0, count)
	for i := 0; i < count; i++ {
		all = append(all, NodeStatus{text(r), text(r), text(r), r.Intn(2) == 0, text(r), r.Intn(2) == 0,
			ArcStatus{r.Intn(2) == 0, r.Intn(2) == 0, text(r), text(r), text(r), text(r), moment(r), text(r)},
			moment(r), by[r.Intn(len(by))], why[r.Intn(len(why))], text(r)})
	}
	return all
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == "generate" {
		count, err := strconv.Atoi(os.Args[2])
		fail(err)
		emit(generate(count))
		return
	}
	var all []NodeStatus
	decoder := json.NewDecoder(os.Stdin)
	decoder.DisallowUnknownFields()
	fail(decoder.Decode(&all))
	emit(all)
}
