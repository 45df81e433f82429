# python3 pods.py SOCKET
import http.client, json, socket, sys

class Agent(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(sys.argv[1])

    def ask(self, method, path, body=None):
        self.request(method, path, body)
        return self.getresponse()

agent = Agent("localhost")  # keep the connection
found = json.load(agent.ask("GET", "/whois?q=kube-system/etcd-node-1"))
print(found["podUID"])

keys = ["default/static-web-node-1", "kube-system/etcd-node-1"]
answers = [json.loads(line) for line in agent.ask("POST", "/whois", "\n".join(keys))]
print(sum(answer["found"] for answer in answers))

events = Agent("localhost").ask("GET", "/api/v1/pods?watch=true")
for _ in range(3):
    event = json.loads(events.readline())
    print(event["type"], event["object"]["metadata"]["name"])
