//! The fields of `v1.Pod` in the protobuf of Kubernetes 1.37 (k8s.io/api at 10b39a39b).
//!
//! Written by `protobuf_table` of the package `pod-index-test-support`, which says how. Do not edit.

use super::schema::Kind::{Bool, Int32, Int64, IntOrString, Json, Message as Object, Quantity, Text, Time};
use super::schema::{Message, inlined, kept, list, map, value};

static MANAGED_FIELDS_ENTRY: Message = Message(&[
    value(1, "manager", Text),
    value(2, "operation", Text),
    value(3, "apiVersion", Text),
    kept(4, "time", Time),
    value(6, "fieldsType", Text),
    kept(7, "fieldsV1", Json),
    value(8, "subresource", Text),
]);

static OWNER_REFERENCE: Message = Message(&[
    kept(1, "kind", Text),
    kept(3, "name", Text),
    kept(4, "uid", Text),
    kept(5, "apiVersion", Text),
    kept(6, "controller", Bool),
    kept(7, "blockOwnerDeletion", Bool),
]);

static OBJECT_META: Message = Message(&[
    value(1, "name", Text),
    value(2, "generateName", Text),
    value(3, "namespace", Text),
    value(4, "selfLink", Text),
    value(5, "uid", Text),
    value(6, "resourceVersion", Text),
    value(7, "generation", Int64),
    value(8, "creationTimestamp", Time),
    kept(9, "deletionTimestamp", Time),
    kept(10, "deletionGracePeriodSeconds", Int64),
    map(11, "labels", Text),
    map(12, "annotations", Text),
    list(13, "ownerReferences", Object(&OWNER_REFERENCE)),
    list(14, "finalizers", Text),
    list(17, "managedFields", Object(&MANAGED_FIELDS_ENTRY)),
]);

static NODE_SELECTOR_REQUIREMENT: Message =
    Message(&[kept(1, "key", Text), kept(2, "operator", Text), list(3, "values", Text)]);

static NODE_SELECTOR_TERM: Message = Message(&[
    list(1, "matchExpressions", Object(&NODE_SELECTOR_REQUIREMENT)),
    list(2, "matchFields", Object(&NODE_SELECTOR_REQUIREMENT)),
]);

static NODE_SELECTOR: Message = Message(&[list(1, "nodeSelectorTerms", Object(&NODE_SELECTOR_TERM))]);

static PREFERRED_SCHEDULING_TERM: Message =
    Message(&[kept(1, "weight", Int32), kept(2, "preference", Object(&NODE_SELECTOR_TERM))]);

static NODE_AFFINITY: Message = Message(&[
    kept(1, "requiredDuringSchedulingIgnoredDuringExecution", Object(&NODE_SELECTOR)),
    list(2, "preferredDuringSchedulingIgnoredDuringExecution", Object(&PREFERRED_SCHEDULING_TERM)),
]);

static LABEL_SELECTOR_REQUIREMENT: Message =
    Message(&[kept(1, "key", Text), kept(2, "operator", Text), list(3, "values", Text)]);

static LABEL_SELECTOR: Message =
    Message(&[map(1, "matchLabels", Text), list(2, "matchExpressions", Object(&LABEL_SELECTOR_REQUIREMENT))]);

static POD_AFFINITY_TERM: Message = Message(&[
    kept(1, "labelSelector", Object(&LABEL_SELECTOR)),
    list(2, "namespaces", Text),
    kept(3, "topologyKey", Text),
    kept(4, "namespaceSelector", Object(&LABEL_SELECTOR)),
    list(5, "matchLabelKeys", Text),
    list(6, "mismatchLabelKeys", Text),
]);

static WEIGHTED_POD_AFFINITY_TERM: Message =
    Message(&[kept(1, "weight", Int32), kept(2, "podAffinityTerm", Object(&POD_AFFINITY_TERM))]);

static POD_AFFINITY: Message = Message(&[
    list(1, "requiredDuringSchedulingIgnoredDuringExecution", Object(&POD_AFFINITY_TERM)),
    list(2, "preferredDuringSchedulingIgnoredDuringExecution", Object(&WEIGHTED_POD_AFFINITY_TERM)),
]);

static POD_ANTI_AFFINITY: Message = Message(&[
    list(1, "requiredDuringSchedulingIgnoredDuringExecution", Object(&POD_AFFINITY_TERM)),
    list(2, "preferredDuringSchedulingIgnoredDuringExecution", Object(&WEIGHTED_POD_AFFINITY_TERM)),
]);

static AFFINITY: Message = Message(&[
    kept(1, "nodeAffinity", Object(&NODE_AFFINITY)),
    kept(2, "podAffinity", Object(&POD_AFFINITY)),
    kept(3, "podAntiAffinity", Object(&POD_ANTI_AFFINITY)),
]);

static CONTAINER_PORT: Message = Message(&[
    value(1, "name", Text),
    value(2, "hostPort", Int32),
    kept(3, "containerPort", Int32),
    value(4, "protocol", Text),
    value(5, "hostIP", Text),
]);

static CONTAINER_RESIZE_POLICY: Message =
    Message(&[kept(1, "resourceName", Text), kept(2, "restartPolicy", Text)]);

static CONTAINER_RESTART_RULE_ON_EXIT_CODES: Message =
    Message(&[value(1, "operator", Text), list(2, "values", Int32)]);

static CONTAINER_RESTART_RULE: Message =
    Message(&[value(1, "action", Text), kept(2, "exitCodes", Object(&CONTAINER_RESTART_RULE_ON_EXIT_CODES))]);

static LOCAL_OBJECT_REFERENCE: Message = Message(&[value(1, "name", Text)]);

static CONFIG_MAP_ENV_SOURCE: Message =
    Message(&[inlined(1, Object(&LOCAL_OBJECT_REFERENCE)), kept(2, "optional", Bool)]);

static SECRET_ENV_SOURCE: Message =
    Message(&[inlined(1, Object(&LOCAL_OBJECT_REFERENCE)), kept(2, "optional", Bool)]);

static ENV_FROM_SOURCE: Message = Message(&[
    value(1, "prefix", Text),
    kept(2, "configMapRef", Object(&CONFIG_MAP_ENV_SOURCE)),
    kept(3, "secretRef", Object(&SECRET_ENV_SOURCE)),
]);

static CONFIG_MAP_KEY_SELECTOR: Message =
    Message(&[inlined(1, Object(&LOCAL_OBJECT_REFERENCE)), kept(2, "key", Text), kept(3, "optional", Bool)]);

static FILE_KEY_SELECTOR: Message = Message(&[
    kept(1, "volumeName", Text),
    kept(2, "path", Text),
    kept(3, "key", Text),
    kept(4, "optional", Bool),
]);

static OBJECT_FIELD_SELECTOR: Message = Message(&[value(1, "apiVersion", Text), kept(2, "fieldPath", Text)]);

static RESOURCE_FIELD_SELECTOR: Message =
    Message(&[value(1, "containerName", Text), kept(2, "resource", Text), value(3, "divisor", Quantity)]);

static SECRET_KEY_SELECTOR: Message =
    Message(&[inlined(1, Object(&LOCAL_OBJECT_REFERENCE)), kept(2, "key", Text), kept(3, "optional", Bool)]);

static ENV_VAR_SOURCE: Message = Message(&[
    kept(1, "fieldRef", Object(&OBJECT_FIELD_SELECTOR)),
    kept(2, "resourceFieldRef", Object(&RESOURCE_FIELD_SELECTOR)),
    kept(3, "configMapKeyRef", Object(&CONFIG_MAP_KEY_SELECTOR)),
    kept(4, "secretKeyRef", Object(&SECRET_KEY_SELECTOR)),
    kept(5, "fileKeyRef", Object(&FILE_KEY_SELECTOR)),
]);

static ENV_VAR: Message =
    Message(&[kept(1, "name", Text), value(2, "value", Text), kept(3, "valueFrom", Object(&ENV_VAR_SOURCE))]);

static EXEC_ACTION: Message = Message(&[list(1, "command", Text)]);

static HTTP_HEADER: Message = Message(&[kept(1, "name", Text), kept(2, "value", Text)]);

static HTTP_GET_ACTION: Message = Message(&[
    value(1, "path", Text),
    kept(2, "port", IntOrString),
    value(3, "host", Text),
    value(4, "scheme", Text),
    list(5, "httpHeaders", Object(&HTTP_HEADER)),
    kept(6, "protocol", Text),
]);

static SLEEP_ACTION: Message = Message(&[kept(1, "seconds", Int64)]);

static TCP_SOCKET_ACTION: Message = Message(&[kept(1, "port", IntOrString), value(2, "host", Text)]);

static LIFECYCLE_HANDLER: Message = Message(&[
    kept(1, "exec", Object(&EXEC_ACTION)),
    kept(2, "httpGet", Object(&HTTP_GET_ACTION)),
    kept(3, "tcpSocket", Object(&TCP_SOCKET_ACTION)),
    kept(4, "sleep", Object(&SLEEP_ACTION)),
]);

static LIFECYCLE: Message = Message(&[
    kept(1, "postStart", Object(&LIFECYCLE_HANDLER)),
    kept(2, "preStop", Object(&LIFECYCLE_HANDLER)),
    kept(3, "stopSignal", Text),
]);

static GRPC_ACTION: Message =
    Message(&[kept(1, "port", Int32), kept(2, "service", Text), kept(3, "mode", Text)]);

static PROBE_HANDLER: Message = Message(&[
    kept(1, "exec", Object(&EXEC_ACTION)),
    kept(2, "httpGet", Object(&HTTP_GET_ACTION)),
    kept(3, "tcpSocket", Object(&TCP_SOCKET_ACTION)),
    kept(4, "grpc", Object(&GRPC_ACTION)),
]);

static PROBE: Message = Message(&[
    inlined(1, Object(&PROBE_HANDLER)),
    value(2, "initialDelaySeconds", Int32),
    value(3, "timeoutSeconds", Int32),
    value(4, "periodSeconds", Int32),
    value(5, "successThreshold", Int32),
    value(6, "failureThreshold", Int32),
    kept(7, "terminationGracePeriodSeconds", Int64),
]);

static RESOURCE_CLAIM: Message = Message(&[kept(1, "name", Text), value(2, "request", Text)]);

static RESOURCE_REQUIREMENTS: Message = Message(&[
    map(1, "limits", Quantity),
    map(2, "requests", Quantity),
    list(3, "claims", Object(&RESOURCE_CLAIM)),
]);

static APP_ARMOR_PROFILE: Message = Message(&[kept(1, "type", Text), kept(2, "localhostProfile", Text)]);

static CAPABILITIES: Message = Message(&[list(1, "add", Text), list(2, "drop", Text)]);

static SE_LINUX_OPTIONS: Message = Message(&[
    value(1, "user", Text),
    value(2, "role", Text),
    value(3, "type", Text),
    value(4, "level", Text),
]);

static SECCOMP_PROFILE: Message = Message(&[kept(1, "type", Text), kept(2, "localhostProfile", Text)]);

static WINDOWS_SECURITY_CONTEXT_OPTIONS: Message = Message(&[
    kept(1, "gmsaCredentialSpecName", Text),
    kept(2, "gmsaCredentialSpec", Text),
    kept(3, "runAsUserName", Text),
    kept(4, "hostProcess", Bool),
]);

static SECURITY_CONTEXT: Message = Message(&[
    kept(1, "capabilities", Object(&CAPABILITIES)),
    kept(2, "privileged", Bool),
    kept(3, "seLinuxOptions", Object(&SE_LINUX_OPTIONS)),
    kept(4, "runAsUser", Int64),
    kept(5, "runAsNonRoot", Bool),
    kept(6, "readOnlyRootFilesystem", Bool),
    kept(7, "allowPrivilegeEscalation", Bool),
    kept(8, "runAsGroup", Int64),
    kept(9, "procMount", Text),
    kept(10, "windowsOptions", Object(&WINDOWS_SECURITY_CONTEXT_OPTIONS)),
    kept(11, "seccompProfile", Object(&SECCOMP_PROFILE)),
    kept(12, "appArmorProfile", Object(&APP_ARMOR_PROFILE)),
]);

static VOLUME_DEVICE: Message = Message(&[kept(1, "name", Text), kept(2, "devicePath", Text)]);

static VOLUME_MOUNT: Message = Message(&[
    kept(1, "name", Text),
    value(2, "readOnly", Bool),
    kept(3, "mountPath", Text),
    value(4, "subPath", Text),
    kept(5, "mountPropagation", Text),
    value(6, "subPathExpr", Text),
    kept(7, "recursiveReadOnly", Text),
    list(8, "bindMountOptions", Text),
]);

static CONTAINER: Message = Message(&[
    kept(1, "name", Text),
    value(2, "image", Text),
    list(3, "command", Text),
    list(4, "args", Text),
    value(5, "workingDir", Text),
    list(6, "ports", Object(&CONTAINER_PORT)),
    list(7, "env", Object(&ENV_VAR)),
    value(8, "resources", Object(&RESOURCE_REQUIREMENTS)),
    list(9, "volumeMounts", Object(&VOLUME_MOUNT)),
    kept(10, "livenessProbe", Object(&PROBE)),
    kept(11, "readinessProbe", Object(&PROBE)),
    kept(12, "lifecycle", Object(&LIFECYCLE)),
    value(13, "terminationMessagePath", Text),
    value(14, "imagePullPolicy", Text),
    kept(15, "securityContext", Object(&SECURITY_CONTEXT)),
    value(16, "stdin", Bool),
    value(17, "stdinOnce", Bool),
    value(18, "tty", Bool),
    list(19, "envFrom", Object(&ENV_FROM_SOURCE)),
    value(20, "terminationMessagePolicy", Text),
    list(21, "volumeDevices", Object(&VOLUME_DEVICE)),
    kept(22, "startupProbe", Object(&PROBE)),
    list(23, "resizePolicy", Object(&CONTAINER_RESIZE_POLICY)),
    kept(24, "restartPolicy", Text),
    list(25, "restartPolicyRules", Object(&CONTAINER_RESTART_RULE)),
]);

static EPHEMERAL_CONTAINER_COMMON: Message = Message(&[
    kept(1, "name", Text),
    value(2, "image", Text),
    list(3, "command", Text),
    list(4, "args", Text),
    value(5, "workingDir", Text),
    list(6, "ports", Object(&CONTAINER_PORT)),
    list(7, "env", Object(&ENV_VAR)),
    value(8, "resources", Object(&RESOURCE_REQUIREMENTS)),
    list(9, "volumeMounts", Object(&VOLUME_MOUNT)),
    kept(10, "livenessProbe", Object(&PROBE)),
    kept(11, "readinessProbe", Object(&PROBE)),
    kept(12, "lifecycle", Object(&LIFECYCLE)),
    value(13, "terminationMessagePath", Text),
    value(14, "imagePullPolicy", Text),
    kept(15, "securityContext", Object(&SECURITY_CONTEXT)),
    value(16, "stdin", Bool),
    value(17, "stdinOnce", Bool),
    value(18, "tty", Bool),
    list(19, "envFrom", Object(&ENV_FROM_SOURCE)),
    value(20, "terminationMessagePolicy", Text),
    list(21, "volumeDevices", Object(&VOLUME_DEVICE)),
    kept(22, "startupProbe", Object(&PROBE)),
    list(23, "resizePolicy", Object(&CONTAINER_RESIZE_POLICY)),
    kept(24, "restartPolicy", Text),
    list(25, "restartPolicyRules", Object(&CONTAINER_RESTART_RULE)),
]);

static EPHEMERAL_CONTAINER: Message =
    Message(&[inlined(1, Object(&EPHEMERAL_CONTAINER_COMMON)), value(2, "targetContainerName", Text)]);

static EVICTION_RESPONDER: Message = Message(&[kept(1, "name", Text), kept(2, "priority", Int32)]);

static HOST_ALIAS: Message = Message(&[kept(1, "ip", Text), list(2, "hostnames", Text)]);

static POD_DNS_CONFIG_OPTION: Message = Message(&[value(1, "name", Text), kept(2, "value", Text)]);

static POD_DNS_CONFIG: Message = Message(&[
    list(1, "nameservers", Text),
    list(2, "searches", Text),
    list(3, "options", Object(&POD_DNS_CONFIG_OPTION)),
]);

static POD_OS: Message = Message(&[kept(1, "name", Text)]);

static POD_READINESS_GATE: Message = Message(&[kept(1, "conditionType", Text)]);

static POD_RESOURCE_CLAIM: Message = Message(&[
    kept(1, "name", Text),
    kept(3, "resourceClaimName", Text),
    kept(4, "resourceClaimTemplateName", Text),
]);

static POD_SCHEDULING_GATE: Message = Message(&[kept(1, "name", Text)]);

static POD_SCHEDULING_GROUP: Message = Message(&[kept(1, "podGroupName", Text)]);

static SYSCTL: Message = Message(&[kept(1, "name", Text), kept(2, "value", Text)]);

static POD_SECURITY_CONTEXT: Message = Message(&[
    kept(1, "seLinuxOptions", Object(&SE_LINUX_OPTIONS)),
    kept(2, "runAsUser", Int64),
    kept(3, "runAsNonRoot", Bool),
    list(4, "supplementalGroups", Int64),
    kept(5, "fsGroup", Int64),
    kept(6, "runAsGroup", Int64),
    list(7, "sysctls", Object(&SYSCTL)),
    kept(8, "windowsOptions", Object(&WINDOWS_SECURITY_CONTEXT_OPTIONS)),
    kept(9, "fsGroupChangePolicy", Text),
    kept(10, "seccompProfile", Object(&SECCOMP_PROFILE)),
    kept(11, "appArmorProfile", Object(&APP_ARMOR_PROFILE)),
    kept(12, "supplementalGroupsPolicy", Text),
    kept(13, "seLinuxChangePolicy", Text),
]);

static TOLERATION: Message = Message(&[
    value(1, "key", Text),
    value(2, "operator", Text),
    value(3, "value", Text),
    value(4, "effect", Text),
    kept(5, "tolerationSeconds", Int64),
]);

static TOPOLOGY_SPREAD_CONSTRAINT: Message = Message(&[
    kept(1, "maxSkew", Int32),
    kept(2, "topologyKey", Text),
    kept(3, "whenUnsatisfiable", Text),
    kept(4, "labelSelector", Object(&LABEL_SELECTOR)),
    kept(5, "minDomains", Int32),
    kept(6, "nodeAffinityPolicy", Text),
    kept(7, "nodeTaintsPolicy", Text),
    list(8, "matchLabelKeys", Text),
]);

static AWS_ELASTIC_BLOCK_STORE_VOLUME_SOURCE: Message = Message(&[
    kept(1, "volumeID", Text),
    value(2, "fsType", Text),
    value(3, "partition", Int32),
    value(4, "readOnly", Bool),
]);

static AZURE_DISK_VOLUME_SOURCE: Message = Message(&[
    kept(1, "diskName", Text),
    kept(2, "diskURI", Text),
    kept(3, "cachingMode", Text),
    kept(4, "fsType", Text),
    kept(5, "readOnly", Bool),
    kept(6, "kind", Text),
]);

static AZURE_FILE_VOLUME_SOURCE: Message =
    Message(&[kept(1, "secretName", Text), kept(2, "shareName", Text), value(3, "readOnly", Bool)]);

static CSI_VOLUME_SOURCE: Message = Message(&[
    kept(1, "driver", Text),
    kept(2, "readOnly", Bool),
    kept(3, "fsType", Text),
    map(4, "volumeAttributes", Text),
    kept(5, "nodePublishSecretRef", Object(&LOCAL_OBJECT_REFERENCE)),
]);

static CEPH_FS_VOLUME_SOURCE: Message = Message(&[
    list(1, "monitors", Text),
    value(2, "path", Text),
    value(3, "user", Text),
    value(4, "secretFile", Text),
    kept(5, "secretRef", Object(&LOCAL_OBJECT_REFERENCE)),
    value(6, "readOnly", Bool),
]);

static CINDER_VOLUME_SOURCE: Message = Message(&[
    kept(1, "volumeID", Text),
    value(2, "fsType", Text),
    value(3, "readOnly", Bool),
    kept(4, "secretRef", Object(&LOCAL_OBJECT_REFERENCE)),
]);

static KEY_TO_PATH: Message =
    Message(&[kept(1, "key", Text), kept(2, "path", Text), kept(3, "mode", Int32), kept(4, "user", Int64)]);

static CONFIG_MAP_VOLUME_SOURCE: Message = Message(&[
    inlined(1, Object(&LOCAL_OBJECT_REFERENCE)),
    list(2, "items", Object(&KEY_TO_PATH)),
    kept(3, "defaultMode", Int32),
    kept(4, "optional", Bool),
    kept(5, "defaultUser", Int64),
]);

static DOWNWARD_API_VOLUME_FILE: Message = Message(&[
    kept(1, "path", Text),
    kept(2, "fieldRef", Object(&OBJECT_FIELD_SELECTOR)),
    kept(3, "resourceFieldRef", Object(&RESOURCE_FIELD_SELECTOR)),
    kept(4, "mode", Int32),
    kept(5, "user", Int64),
]);

static DOWNWARD_API_VOLUME_SOURCE: Message = Message(&[
    list(1, "items", Object(&DOWNWARD_API_VOLUME_FILE)),
    kept(2, "defaultMode", Int32),
    kept(3, "defaultUser", Int64),
]);

static EMPTY_DIR_VOLUME_SOURCE: Message =
    Message(&[value(1, "medium", Text), kept(2, "sizeLimit", Quantity), kept(3, "mode", Int32)]);

static TYPED_LOCAL_OBJECT_REFERENCE: Message =
    Message(&[kept(1, "apiGroup", Text), kept(2, "kind", Text), kept(3, "name", Text)]);

static TYPED_OBJECT_REFERENCE: Message = Message(&[
    kept(1, "apiGroup", Text),
    kept(2, "kind", Text),
    kept(3, "name", Text),
    kept(4, "namespace", Text),
]);

static VOLUME_RESOURCE_REQUIREMENTS: Message =
    Message(&[map(1, "limits", Quantity), map(2, "requests", Quantity)]);

static PERSISTENT_VOLUME_CLAIM_SPEC: Message = Message(&[
    list(1, "accessModes", Text),
    value(2, "resources", Object(&VOLUME_RESOURCE_REQUIREMENTS)),
    value(3, "volumeName", Text),
    kept(4, "selector", Object(&LABEL_SELECTOR)),
    kept(5, "storageClassName", Text),
    kept(6, "volumeMode", Text),
    kept(7, "dataSource", Object(&TYPED_LOCAL_OBJECT_REFERENCE)),
    kept(8, "dataSourceRef", Object(&TYPED_OBJECT_REFERENCE)),
    kept(9, "volumeAttributesClassName", Text),
]);

static PERSISTENT_VOLUME_CLAIM_TEMPLATE: Message = Message(&[
    value(1, "metadata", Object(&OBJECT_META)),
    kept(2, "spec", Object(&PERSISTENT_VOLUME_CLAIM_SPEC)),
]);

static EPHEMERAL_VOLUME_SOURCE: Message =
    Message(&[kept(1, "volumeClaimTemplate", Object(&PERSISTENT_VOLUME_CLAIM_TEMPLATE))]);

static FC_VOLUME_SOURCE: Message = Message(&[
    list(1, "targetWWNs", Text),
    kept(2, "lun", Int32),
    value(3, "fsType", Text),
    value(4, "readOnly", Bool),
    list(5, "wwids", Text),
]);

static FLEX_VOLUME_SOURCE: Message = Message(&[
    kept(1, "driver", Text),
    value(2, "fsType", Text),
    kept(3, "secretRef", Object(&LOCAL_OBJECT_REFERENCE)),
    value(4, "readOnly", Bool),
    map(5, "options", Text),
]);

static FLOCKER_VOLUME_SOURCE: Message =
    Message(&[value(1, "datasetName", Text), value(2, "datasetUUID", Text)]);

static GCE_PERSISTENT_DISK_VOLUME_SOURCE: Message = Message(&[
    kept(1, "pdName", Text),
    value(2, "fsType", Text),
    value(3, "partition", Int32),
    value(4, "readOnly", Bool),
]);

static GIT_REPO_VOLUME_SOURCE: Message =
    Message(&[kept(1, "repository", Text), value(2, "revision", Text), value(3, "directory", Text)]);

static GLUSTERFS_VOLUME_SOURCE: Message =
    Message(&[kept(1, "endpoints", Text), kept(2, "path", Text), value(3, "readOnly", Bool)]);

static HOST_PATH_VOLUME_SOURCE: Message = Message(&[kept(1, "path", Text), kept(2, "type", Text)]);

static ISCSI_VOLUME_SOURCE: Message = Message(&[
    kept(1, "targetPortal", Text),
    kept(2, "iqn", Text),
    kept(3, "lun", Int32),
    value(4, "iscsiInterface", Text),
    value(5, "fsType", Text),
    value(6, "readOnly", Bool),
    list(7, "portals", Text),
    value(8, "chapAuthDiscovery", Bool),
    kept(10, "secretRef", Object(&LOCAL_OBJECT_REFERENCE)),
    value(11, "chapAuthSession", Bool),
    kept(12, "initiatorName", Text),
]);

static IMAGE_VOLUME_SOURCE: Message = Message(&[value(1, "reference", Text), value(2, "pullPolicy", Text)]);

static NFS_VOLUME_SOURCE: Message =
    Message(&[kept(1, "server", Text), kept(2, "path", Text), value(3, "readOnly", Bool)]);

static PERSISTENT_VOLUME_CLAIM_VOLUME_SOURCE: Message =
    Message(&[kept(1, "claimName", Text), value(2, "readOnly", Bool)]);

static PHOTON_PERSISTENT_DISK_VOLUME_SOURCE: Message =
    Message(&[kept(1, "pdID", Text), value(2, "fsType", Text)]);

static PORTWORX_VOLUME_SOURCE: Message =
    Message(&[kept(1, "volumeID", Text), value(2, "fsType", Text), value(3, "readOnly", Bool)]);

static CLUSTER_TRUST_BUNDLE_PROJECTION: Message = Message(&[
    kept(1, "name", Text),
    kept(2, "signerName", Text),
    kept(3, "labelSelector", Object(&LABEL_SELECTOR)),
    kept(4, "path", Text),
    kept(5, "optional", Bool),
    kept(6, "user", Int64),
]);

static CONFIG_MAP_PROJECTION: Message = Message(&[
    inlined(1, Object(&LOCAL_OBJECT_REFERENCE)),
    list(2, "items", Object(&KEY_TO_PATH)),
    kept(4, "optional", Bool),
]);

static DOWNWARD_API_PROJECTION: Message = Message(&[list(1, "items", Object(&DOWNWARD_API_VOLUME_FILE))]);

static POD_CERTIFICATE_PROJECTION: Message = Message(&[
    value(1, "signerName", Text),
    value(2, "keyType", Text),
    kept(3, "maxExpirationSeconds", Int32),
    value(4, "credentialBundlePath", Text),
    value(5, "keyPath", Text),
    value(6, "certificateChainPath", Text),
    map(7, "userAnnotations", Text),
    kept(8, "user", Int64),
]);

static SECRET_PROJECTION: Message = Message(&[
    inlined(1, Object(&LOCAL_OBJECT_REFERENCE)),
    list(2, "items", Object(&KEY_TO_PATH)),
    kept(4, "optional", Bool),
]);

static SERVICE_ACCOUNT_TOKEN_PROJECTION: Message = Message(&[
    value(1, "audience", Text),
    kept(2, "expirationSeconds", Int64),
    kept(3, "path", Text),
    kept(4, "user", Int64),
]);

static VOLUME_PROJECTION: Message = Message(&[
    kept(1, "secret", Object(&SECRET_PROJECTION)),
    kept(2, "downwardAPI", Object(&DOWNWARD_API_PROJECTION)),
    kept(3, "configMap", Object(&CONFIG_MAP_PROJECTION)),
    kept(4, "serviceAccountToken", Object(&SERVICE_ACCOUNT_TOKEN_PROJECTION)),
    kept(5, "clusterTrustBundle", Object(&CLUSTER_TRUST_BUNDLE_PROJECTION)),
    kept(6, "podCertificate", Object(&POD_CERTIFICATE_PROJECTION)),
]);

static PROJECTED_VOLUME_SOURCE: Message = Message(&[
    list(1, "sources", Object(&VOLUME_PROJECTION)),
    kept(2, "defaultMode", Int32),
    kept(3, "defaultUser", Int64),
]);

static QUOBYTE_VOLUME_SOURCE: Message = Message(&[
    kept(1, "registry", Text),
    kept(2, "volume", Text),
    value(3, "readOnly", Bool),
    value(4, "user", Text),
    value(5, "group", Text),
    value(6, "tenant", Text),
]);

static RBD_VOLUME_SOURCE: Message = Message(&[
    list(1, "monitors", Text),
    kept(2, "image", Text),
    value(3, "fsType", Text),
    value(4, "pool", Text),
    value(5, "user", Text),
    value(6, "keyring", Text),
    kept(7, "secretRef", Object(&LOCAL_OBJECT_REFERENCE)),
    value(8, "readOnly", Bool),
]);

static SCALE_IO_VOLUME_SOURCE: Message = Message(&[
    kept(1, "gateway", Text),
    kept(2, "system", Text),
    kept(3, "secretRef", Object(&LOCAL_OBJECT_REFERENCE)),
    value(4, "sslEnabled", Bool),
    value(5, "protectionDomain", Text),
    value(6, "storagePool", Text),
    value(7, "storageMode", Text),
    value(8, "volumeName", Text),
    value(9, "fsType", Text),
    value(10, "readOnly", Bool),
]);

static SECRET_VOLUME_SOURCE: Message = Message(&[
    value(1, "secretName", Text),
    list(2, "items", Object(&KEY_TO_PATH)),
    kept(3, "defaultMode", Int32),
    kept(4, "optional", Bool),
    kept(5, "defaultUser", Int64),
]);

static STORAGE_OS_VOLUME_SOURCE: Message = Message(&[
    value(1, "volumeName", Text),
    value(2, "volumeNamespace", Text),
    value(3, "fsType", Text),
    value(4, "readOnly", Bool),
    kept(5, "secretRef", Object(&LOCAL_OBJECT_REFERENCE)),
]);

static VSPHERE_VIRTUAL_DISK_VOLUME_SOURCE: Message = Message(&[
    kept(1, "volumePath", Text),
    value(2, "fsType", Text),
    value(3, "storagePolicyName", Text),
    value(4, "storagePolicyID", Text),
]);

static VOLUME_SOURCE: Message = Message(&[
    kept(1, "hostPath", Object(&HOST_PATH_VOLUME_SOURCE)),
    kept(2, "emptyDir", Object(&EMPTY_DIR_VOLUME_SOURCE)),
    kept(3, "gcePersistentDisk", Object(&GCE_PERSISTENT_DISK_VOLUME_SOURCE)),
    kept(4, "awsElasticBlockStore", Object(&AWS_ELASTIC_BLOCK_STORE_VOLUME_SOURCE)),
    kept(5, "gitRepo", Object(&GIT_REPO_VOLUME_SOURCE)),
    kept(6, "secret", Object(&SECRET_VOLUME_SOURCE)),
    kept(7, "nfs", Object(&NFS_VOLUME_SOURCE)),
    kept(8, "iscsi", Object(&ISCSI_VOLUME_SOURCE)),
    kept(9, "glusterfs", Object(&GLUSTERFS_VOLUME_SOURCE)),
    kept(10, "persistentVolumeClaim", Object(&PERSISTENT_VOLUME_CLAIM_VOLUME_SOURCE)),
    kept(11, "rbd", Object(&RBD_VOLUME_SOURCE)),
    kept(12, "flexVolume", Object(&FLEX_VOLUME_SOURCE)),
    kept(13, "cinder", Object(&CINDER_VOLUME_SOURCE)),
    kept(14, "cephfs", Object(&CEPH_FS_VOLUME_SOURCE)),
    kept(15, "flocker", Object(&FLOCKER_VOLUME_SOURCE)),
    kept(16, "downwardAPI", Object(&DOWNWARD_API_VOLUME_SOURCE)),
    kept(17, "fc", Object(&FC_VOLUME_SOURCE)),
    kept(18, "azureFile", Object(&AZURE_FILE_VOLUME_SOURCE)),
    kept(19, "configMap", Object(&CONFIG_MAP_VOLUME_SOURCE)),
    kept(20, "vsphereVolume", Object(&VSPHERE_VIRTUAL_DISK_VOLUME_SOURCE)),
    kept(21, "quobyte", Object(&QUOBYTE_VOLUME_SOURCE)),
    kept(22, "azureDisk", Object(&AZURE_DISK_VOLUME_SOURCE)),
    kept(23, "photonPersistentDisk", Object(&PHOTON_PERSISTENT_DISK_VOLUME_SOURCE)),
    kept(24, "portworxVolume", Object(&PORTWORX_VOLUME_SOURCE)),
    kept(25, "scaleIO", Object(&SCALE_IO_VOLUME_SOURCE)),
    kept(26, "projected", Object(&PROJECTED_VOLUME_SOURCE)),
    kept(27, "storageos", Object(&STORAGE_OS_VOLUME_SOURCE)),
    kept(28, "csi", Object(&CSI_VOLUME_SOURCE)),
    kept(29, "ephemeral", Object(&EPHEMERAL_VOLUME_SOURCE)),
    kept(30, "image", Object(&IMAGE_VOLUME_SOURCE)),
]);

static VOLUME: Message = Message(&[kept(1, "name", Text), inlined(2, Object(&VOLUME_SOURCE))]);

static POD_SPEC: Message = Message(&[
    list(1, "volumes", Object(&VOLUME)),
    list(2, "containers", Object(&CONTAINER)),
    value(3, "restartPolicy", Text),
    kept(4, "terminationGracePeriodSeconds", Int64),
    kept(5, "activeDeadlineSeconds", Int64),
    value(6, "dnsPolicy", Text),
    map(7, "nodeSelector", Text),
    value(8, "serviceAccountName", Text),
    value(9, "serviceAccount", Text),
    value(10, "nodeName", Text),
    value(11, "hostNetwork", Bool),
    value(12, "hostPID", Bool),
    value(13, "hostIPC", Bool),
    kept(14, "securityContext", Object(&POD_SECURITY_CONTEXT)),
    list(15, "imagePullSecrets", Object(&LOCAL_OBJECT_REFERENCE)),
    value(16, "hostname", Text),
    value(17, "subdomain", Text),
    kept(18, "affinity", Object(&AFFINITY)),
    value(19, "schedulerName", Text),
    list(20, "initContainers", Object(&CONTAINER)),
    kept(21, "automountServiceAccountToken", Bool),
    list(22, "tolerations", Object(&TOLERATION)),
    list(23, "hostAliases", Object(&HOST_ALIAS)),
    value(24, "priorityClassName", Text),
    kept(25, "priority", Int32),
    kept(26, "dnsConfig", Object(&POD_DNS_CONFIG)),
    kept(27, "shareProcessNamespace", Bool),
    list(28, "readinessGates", Object(&POD_READINESS_GATE)),
    kept(29, "runtimeClassName", Text),
    kept(30, "enableServiceLinks", Bool),
    kept(31, "preemptionPolicy", Text),
    map(32, "overhead", Quantity),
    list(33, "topologySpreadConstraints", Object(&TOPOLOGY_SPREAD_CONSTRAINT)),
    list(34, "ephemeralContainers", Object(&EPHEMERAL_CONTAINER)),
    kept(35, "setHostnameAsFQDN", Bool),
    kept(36, "os", Object(&POD_OS)),
    kept(37, "hostUsers", Bool),
    list(38, "schedulingGates", Object(&POD_SCHEDULING_GATE)),
    list(39, "resourceClaims", Object(&POD_RESOURCE_CLAIM)),
    kept(40, "resources", Object(&RESOURCE_REQUIREMENTS)),
    kept(41, "hostnameOverride", Text),
    kept(43, "schedulingGroup", Object(&POD_SCHEDULING_GROUP)),
    list(44, "evictionResponders", Object(&EVICTION_RESPONDER)),
]);

static CONTAINER_STATE_RUNNING: Message = Message(&[value(1, "startedAt", Time)]);

static CONTAINER_STATE_TERMINATED: Message = Message(&[
    kept(1, "exitCode", Int32),
    value(2, "signal", Int32),
    value(3, "reason", Text),
    value(4, "message", Text),
    value(5, "startedAt", Time),
    value(6, "finishedAt", Time),
    value(7, "containerID", Text),
]);

static CONTAINER_STATE_WAITING: Message = Message(&[value(1, "reason", Text), value(2, "message", Text)]);

static CONTAINER_STATE: Message = Message(&[
    kept(1, "waiting", Object(&CONTAINER_STATE_WAITING)),
    kept(2, "running", Object(&CONTAINER_STATE_RUNNING)),
    kept(3, "terminated", Object(&CONTAINER_STATE_TERMINATED)),
]);

static LINUX_CONTAINER_USER: Message =
    Message(&[kept(1, "uid", Int64), kept(2, "gid", Int64), list(3, "supplementalGroups", Int64)]);

static CONTAINER_USER: Message = Message(&[kept(1, "linux", Object(&LINUX_CONTAINER_USER))]);

static RESOURCE_HEALTH: Message =
    Message(&[kept(1, "resourceID", Text), value(2, "health", Text), kept(6, "message", Text)]);

static RESOURCE_STATUS: Message =
    Message(&[kept(1, "name", Text), list(2, "resources", Object(&RESOURCE_HEALTH))]);

static IMAGE_VOLUME_STATUS: Message = Message(&[value(1, "imageRef", Text)]);

static VOLUME_STATUS: Message = Message(&[kept(1, "image", Object(&IMAGE_VOLUME_STATUS))]);

static VOLUME_MOUNT_STATUS: Message = Message(&[
    kept(1, "name", Text),
    kept(2, "mountPath", Text),
    value(3, "readOnly", Bool),
    kept(4, "recursiveReadOnly", Text),
    kept(5, "volumeStatus", Object(&VOLUME_STATUS)),
]);

static CONTAINER_STATUS: Message = Message(&[
    kept(1, "name", Text),
    value(2, "state", Object(&CONTAINER_STATE)),
    value(3, "lastState", Object(&CONTAINER_STATE)),
    kept(4, "ready", Bool),
    kept(5, "restartCount", Int32),
    kept(6, "image", Text),
    kept(7, "imageID", Text),
    value(8, "containerID", Text),
    kept(9, "started", Bool),
    map(10, "allocatedResources", Quantity),
    kept(11, "resources", Object(&RESOURCE_REQUIREMENTS)),
    list(12, "volumeMounts", Object(&VOLUME_MOUNT_STATUS)),
    kept(13, "user", Object(&CONTAINER_USER)),
    list(14, "allocatedResourcesStatus", Object(&RESOURCE_STATUS)),
    kept(15, "stopSignal", Text),
]);

static HOST_IP: Message = Message(&[kept(1, "ip", Text)]);

static NODE_ALLOCATABLE_MAPPED_RESOURCES: Message =
    Message(&[kept(1, "name", Text), kept(2, "quantity", Quantity)]);

static NODE_ALLOCATABLE_OVERHEAD_RESOURCES: Message =
    Message(&[kept(1, "name", Text), kept(2, "perPod", Quantity), kept(3, "perContainer", Quantity)]);

static NODE_ALLOCATABLE_RESOURCE_CLAIM_STATUS: Message = Message(&[
    kept(1, "resourceClaimName", Text),
    list(2, "containers", Text),
    list(4, "mapping", Object(&NODE_ALLOCATABLE_MAPPED_RESOURCES)),
    list(5, "overhead", Object(&NODE_ALLOCATABLE_OVERHEAD_RESOURCES)),
]);

static POD_CONDITION: Message = Message(&[
    kept(1, "type", Text),
    kept(2, "status", Text),
    value(3, "lastProbeTime", Time),
    value(4, "lastTransitionTime", Time),
    value(5, "reason", Text),
    value(6, "message", Text),
    value(7, "observedGeneration", Int64),
]);

static CONTAINER_EXTENDED_RESOURCE_REQUEST: Message =
    Message(&[kept(1, "containerName", Text), kept(2, "resourceName", Text), kept(3, "requestName", Text)]);

static POD_EXTENDED_RESOURCE_CLAIM_STATUS: Message = Message(&[
    list(1, "requestMappings", Object(&CONTAINER_EXTENDED_RESOURCE_REQUEST)),
    kept(2, "resourceClaimName", Text),
]);

static POD_IP: Message = Message(&[kept(1, "ip", Text)]);

static POD_RESOURCE_CLAIM_STATUS: Message =
    Message(&[kept(1, "name", Text), kept(2, "resourceClaimName", Text)]);

static VOLUME_HEALTH_CONDITION: Message =
    Message(&[kept(1, "status", Text), kept(2, "reason", Text), value(3, "message", Text)]);

static POD_VOLUME_HEALTH: Message = Message(&[
    kept(1, "name", Text),
    list(2, "healthConditions", Object(&VOLUME_HEALTH_CONDITION)),
    value(3, "lastTransitionTime", Time),
]);

static POD_STATUS: Message = Message(&[
    value(1, "phase", Text),
    list(2, "conditions", Object(&POD_CONDITION)),
    value(3, "message", Text),
    value(4, "reason", Text),
    value(5, "hostIP", Text),
    value(6, "podIP", Text),
    kept(7, "startTime", Time),
    list(8, "containerStatuses", Object(&CONTAINER_STATUS)),
    value(9, "qosClass", Text),
    list(10, "initContainerStatuses", Object(&CONTAINER_STATUS)),
    value(11, "nominatedNodeName", Text),
    list(12, "podIPs", Object(&POD_IP)),
    list(13, "ephemeralContainerStatuses", Object(&CONTAINER_STATUS)),
    value(14, "resize", Text),
    list(15, "resourceClaimStatuses", Object(&POD_RESOURCE_CLAIM_STATUS)),
    list(16, "hostIPs", Object(&HOST_IP)),
    value(17, "observedGeneration", Int64),
    kept(18, "extendedResourceClaimStatus", Object(&POD_EXTENDED_RESOURCE_CLAIM_STATUS)),
    map(19, "allocatedResources", Quantity),
    kept(20, "resources", Object(&RESOURCE_REQUIREMENTS)),
    list(21, "nodeAllocatableResourceClaimStatuses", Object(&NODE_ALLOCATABLE_RESOURCE_CLAIM_STATUS)),
    list(22, "volumeHealth", Object(&POD_VOLUME_HEALTH)),
]);

pub(super) static POD: Message = Message(&[
    value(1, "metadata", Object(&OBJECT_META)),
    value(2, "spec", Object(&POD_SPEC)),
    value(3, "status", Object(&POD_STATUS)),
]);
