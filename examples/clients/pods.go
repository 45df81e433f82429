// go run pods.go SOCKET
package main

import ("bufio"; "context"; "encoding/json"; "fmt"; "net"; "net/http"; "os"; "strings")

func main() {
	agent := http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", os.Args[1])
	}}}
	lines := func(answer *http.Response, err error) *bufio.Scanner {
		if err != nil { panic(err) }
		scanner := bufio.NewScanner(answer.Body)
		scanner.Buffer(nil, 4<<20) // an event has a whole pod
		return scanner
	}
	type pod struct { Found bool; PodUID string }
	answers := lines(agent.Get("http://agent/whois?q=kube-system/etcd-node-1"))
	for answers.Scan() { var found pod; json.Unmarshal(answers.Bytes(), &found); fmt.Println(found.PodUID) }

	keys := strings.NewReader("default/static-web-node-1\nkube-system/etcd-node-1\n")
	answers, count := lines(agent.Post("http://agent/whois", "text/plain", keys)), 0
	for answers.Scan() { var found pod; json.Unmarshal(answers.Bytes(), &found); if found.Found { count++ } }
	fmt.Println(count)

	events := lines(agent.Get("http://agent/api/v1/pods?watch=true"))
	for range 3 {
		events.Scan()
		var event struct { Type string; Object struct { Metadata struct { Name string } } }
		json.Unmarshal(events.Bytes(), &event)
		fmt.Println(event.Type, event.Object.Metadata.Name)
	}
}
