#!/bin/sh
# Writes the object for the Prometheus operator from rules.yaml, so that both have the same alerts:
#
#   deploy/prometheus/prometheus-rule.sh
set -eu
cd "$(dirname "$0")"
to=../kubernetes/components/prometheus-rule/prometheus-rule.yaml
cat >"$to" <<'END'
# Written by deploy/prometheus/prometheus-rule.sh from deploy/prometheus/rules.yaml.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: pod-index
  namespace: pod-index
  labels: {app.kubernetes.io/name: pod-index}
spec:
END
sed -n '/^groups:/,$ s/^./  &/p' rules.yaml >>"$to"
