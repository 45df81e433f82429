"""Follows pods with the Python client for Kubernetes until they match a file, or until a timeout.

Arguments: the server's URL, a label selector (may be empty), the file, the timeout in seconds. The file may appear later. It
has a JSON object with the label `change` of each pod, by NAMESPACE/NAME.
"""
import json
import pathlib
import sys
import time

from kubernetes import client, watch
from kubernetes.client.rest import ApiException

host, selector, expected, patience = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3]), float(sys.argv[4])
v1 = client.CoreV1Api(client.ApiClient(client.Configuration(host=host)))
pods, version, counts = {}, None, {"lists": 0, "watches": 0, "events": 0, "gone": 0, "cut": 0}


def key(pod):
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def theirs(pod):
    return pod.metadata.labels["change"]


def follow():
    """Lists if necessary, then watches for a second or two."""
    global pods, version
    if version is None:
        listed = {}
        page = v1.list_pod_for_all_namespaces(label_selector=selector, limit=50)
        while True:
            listed.update({key(pod): theirs(pod) for pod in page.items})
            if not page.metadata._continue:
                break
            page = v1.list_pod_for_all_namespaces(label_selector=selector, limit=50, _continue=page.metadata._continue)
        pods, version = listed, page.metadata.resource_version
        counts["lists"] += 1
    counts["watches"] += 1
    stream = watch.Watch().stream(
        v1.list_pod_for_all_namespaces, label_selector=selector, resource_version=version, timeout_seconds=2,
        allow_watch_bookmarks=True,
    )
    for event in stream:
        counts["events"] += 1
        pod = event["object"]
        if event["type"] == "BOOKMARK":
            version = pod["metadata"]["resourceVersion"] if isinstance(pod, dict) else pod.metadata.resource_version
            continue
        if event["type"] == "DELETED":
            del pods[key(pod)]
        else:
            assert (event["type"] == "ADDED") == (key(pod) not in pods), f"{event['type']} of {key(pod)}"
            pods[key(pod)] = theirs(pod)
        version = pod.metadata.resource_version


deadline = time.monotonic() + patience
while not (expected.exists() and json.loads(expected.read_text()) == pods):
    if time.monotonic() > deadline:
        sys.exit(f"knows {len(pods)} pods: {pods}")
    try:
        follow()
    except ApiException as error:
        # Expired (410); or a request too soon after the agent restarted.
        if error.status == 410:
            counts["gone"] += 1
            version = None
        elif error.status != 503:
            raise
        time.sleep(0.05)
    except Exception as error:  # A cut connection has many error types.
        if isinstance(error, (AssertionError, KeyError, AttributeError)):
            raise
        counts["cut"] += 1
        time.sleep(0.05)
print(f"{len(pods)} pods; {counts}")
