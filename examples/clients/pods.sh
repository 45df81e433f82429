#!/usr/bin/env bash
# pods.sh SOCKET
agent() { curl -sS --unix-socket "$1" "http://localhost$2" "${@:3}"; }
agent "$1" '/whois?q=kube-system/etcd-node-1' | grep -o '"podUID":"[^"]*"'
printf '%s\n' default/static-web-node-1 kube-system/etcd-node-1 | agent "$1" /whois --data-binary @- | grep -c '"found":true'
# Without the time, it goes on. The fields of an event have no fixed order, so look for the word anywhere in its line.
agent "$1" '/api/v1/pods?watch=true&timeoutSeconds=1' | head -n 3 | grep -oE '"type":"(ADDED|MODIFIED|DELETED|BOOKMARK|ERROR)"'
