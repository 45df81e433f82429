// go run pods.go SOCKET
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// lines reads an answer with one JSON object a line, until `each` returns false. An answer that was refused or cut off is an error.
func lines[T any](answer *http.Response, err error, each func(T) bool) error {
	if err != nil {
		return err // the agent is starting, hangs or is gone
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the agent answers %s", answer.Status) // the whole request is refused: no line was answered
	}
	scanner := bufio.NewScanner(answer.Body)
	scanner.Buffer(nil, 4<<20) // an event has a whole pod
	for scanner.Scan() {
		var line T
		if err := json.Unmarshal(scanner.Bytes(), &line); err != nil {
			return err
		}
		if !each(line) {
			return nil
		}
	}
	return scanner.Err()
}

type pod struct {
	Found         bool
	PodUID, Error string
}

type event struct {
	Type   string
	Object struct{ Metadata struct{ Name string } }
}

func main() {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, "unix", os.Args[1])
	}}
	agent := http.Client{Transport: transport, Timeout: 15 * time.Second}
	watcher := http.Client{Transport: transport} // a watch lasts as long as it is open

	answer, err := agent.Get("http://agent/whois?q=kube-system/etcd-node-1")
	err = lines(answer, err, func(found pod) bool {
		fmt.Println(found.PodUID)
		return true
	})
	if err != nil {
		log.Fatal(err)
	}

	count := 0
	keys := strings.NewReader("default/static-web-node-1\nkube-system/etcd-node-1\n")
	answer, err = agent.Post("http://agent/whois", "text/plain", keys)
	err = lines(answer, err, func(found pod) bool {
		if found.Found {
			count++
		}
		return true
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(count)

	events := 0
	answer, err = watcher.Get("http://agent/api/v1/pods?watch=true")
	err = lines(answer, err, func(event event) bool {
		fmt.Println(event.Type, event.Object.Metadata.Name)
		events++
		return events < 3
	})
	if err != nil {
		log.Fatal(err)
	}
}
