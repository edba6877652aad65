"""The messages of all services that the agent speaks, built from their fields when this module is imported.

The lines are proto3; their numbers and types are the contract. There is no generated code: it would be tied to one
version of protobuf, and changing it would need a compiler.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

if TYPE_CHECKING:
    Handlers = Mapping[str, grpc.RpcMethodHandler[Any, Any]]
else:  # the class takes no parameters at run time
    Handlers = Mapping[str, grpc.RpcMethodHandler]

_FIELD = re.compile(r"(?:(repeated|optional) )?(?:map<string, (\w+)>|(\w+)) (\w+) = (\d+)")
_TYPES = descriptor_pb2.FieldDescriptorProto
# An enumeration is an int32 on the wire, so it is one here.
_SCALARS = {
    "string": _TYPES.TYPE_STRING,
    "bool": _TYPES.TYPE_BOOL,
    "int32": _TYPES.TYPE_INT32,
    "int64": _TYPES.TYPE_INT64,
}

_pool = descriptor_pool.DescriptorPool()  # not the default pool: another package may define the same messages


class Method(NamedTuple):
    """One call of a service: its path, and how its messages become bytes and back."""

    path: str
    request: Any
    reply: Any

    def unary(self, answer: Callable[[Any, Any], Any]) -> grpc.RpcMethodHandler[Any, Any]:
        """A handler for one request with one reply."""
        return grpc.unary_unary_rpc_method_handler(
            answer, request_deserializer=self.request.FromString, response_serializer=self.reply.SerializeToString
        )

    def stream(self, answers: Callable[[Any, Any], Any]) -> grpc.RpcMethodHandler[Any, Any]:
        """A handler for one request with replies until it ends."""
        return grpc.unary_stream_rpc_method_handler(
            answers, request_deserializer=self.request.FromString, response_serializer=self.reply.SerializeToString
        )

    def on(self, kind: Any) -> Any:
        """The client's side: `kind` is the unary_unary or the unary_stream of a channel."""
        return kind(self.path, self.request.SerializeToString, self.reply.FromString)


def messages(package: str, fields: Mapping[str, str]) -> dict[str, Any]:
    """Message classes by name, from their fields: one proto3 line each, separated by semicolons."""
    name = f"{package}/{next(iter(fields))}.proto"  # two services have the package "v1"
    file = descriptor_pb2.FileDescriptorProto(name=name, package=package, syntax="proto3")
    for message, text in fields.items():
        described = file.message_type.add(name=message)
        for line in filter(None, (part.strip() for part in text.split(";"))):
            _describe(described, line, f".{package}.")
    _pool.Add(file)
    return {name: message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"{package}.{name}")) for name in fields}


def _describe(message: descriptor_pb2.DescriptorProto, line: str, scope: str) -> None:
    parsed = _FIELD.fullmatch(line)
    if not parsed:
        raise ValueError(f"{message.name}: not a field: {line!r}")
    label, value, plain, name, number = parsed.groups()
    if value:  # on the wire a map is a list of entries
        entry = message.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
        entry.options.map_entry = True
        _describe(entry, "string key = 1", scope)
        _describe(entry, f"{value} value = 2", scope)
        label, plain = "repeated", f"{message.name}.{entry.name}"
    field = message.field.add(name=name, number=int(number), label=_TYPES.LABEL_OPTIONAL)
    if plain in _SCALARS:
        field.type = _SCALARS[plain]
    else:
        field.type, field.type_name = _TYPES.TYPE_MESSAGE, scope + plain
    if label == "repeated":
        field.label = _TYPES.LABEL_REPEATED
    elif label == "optional":  # in proto3 a oneof with one field
        field.proto3_optional = True
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{name}")


class DRAPluginApi:
    """One version of the service that kubelet calls; all versions have the same messages."""

    def __init__(self, version: str) -> None:
        package = f"k8s.io.kubelet.pkg.apis.dra.{version}"
        made = messages(
            package,
            {
                "Claim": "string namespace = 1; string uid = 2; string name = 3",
                "NodePrepareResourcesRequest": "repeated Claim claims = 1",
                "NodePrepareResourcesResponse": "map<string, NodePrepareResourceResponse> claims = 1",
                "NodePrepareResourceResponse": "repeated Device devices = 1; string error = 2",
                "Device": "repeated string request_names = 1; string pool_name = 2; string device_name = 3; "
                "repeated string cdi_device_ids = 4; optional string share_id = 5",
                "NodeUnprepareResourcesRequest": "repeated Claim claims = 1",
                "NodeUnprepareResourcesResponse": "map<string, NodeUnprepareResourceResponse> claims = 1",
                "NodeUnprepareResourceResponse": "string error = 1",
            },
        )
        self.version = f"{version}.DRAPlugin"  # as the registration lists it
        self.prepare = _method(f"{package}.DRAPlugin/NodePrepareResources", made)
        self.unprepare = _method(f"{package}.DRAPlugin/NodeUnprepareResources", made)


class DRAResourceHealth:
    """One version of the stream on which kubelet receives the health of devices; both have the same messages."""

    def __init__(self, version: str) -> None:
        made = messages(
            version,  # the package is just the version
            {
                "NodeWatchResourcesRequest": "",
                "NodeWatchResourcesResponse": "repeated DeviceHealth devices = 1",
                "DeviceHealth": "DeviceIdentifier device = 1; int32 health = 2; int64 last_updated_time = 3; "
                "int64 health_check_timeout_seconds = 4; string message = 5",
                "DeviceIdentifier": "string pool_name = 1; string device_name = 2",
            },
        )
        self.version = f"{version}.DRAResourceHealth"  # as the registration lists it
        self.watch = _method(f"{self.version}/NodeWatchResources", made)


def _method(path: str, made: Mapping[str, Any], messages: str = "") -> Method:
    """The call at a path; its messages are named after it unless `messages` says how."""
    name = messages or path.rpartition("/")[2]
    return Method(f"/{path}", made[f"{name}Request"], made[f"{name}Response"])


V1, V1BETA1 = DRAPluginApi("v1"), DRAPluginApi("v1beta1")
HEALTH_V1, HEALTH_V1ALPHA1 = DRAResourceHealth("v1"), DRAResourceHealth("v1alpha1")

_registration = messages(
    "pluginregistration",
    {
        "InfoRequest": "",
        "PluginInfo": "string type = 1; string name = 2; string endpoint = 3; repeated string supported_versions = 4",
        "RegistrationStatus": "bool plugin_registered = 1; string error = 2",
        "RegistrationStatusResponse": "",
    },
)
GET_INFO = Method("/pluginregistration.Registration/GetInfo", _registration["InfoRequest"], _registration["PluginInfo"])
NOTIFY_STATUS = Method(
    "/pluginregistration.Registration/NotifyRegistrationStatus",
    _registration["RegistrationStatus"],
    _registration["RegistrationStatusResponse"],
)

_pod_resources = messages(
    "v1",
    {
        "ListPodResourcesRequest": "",
        "ListPodResourcesResponse": "repeated PodResources pod_resources = 1",
        "GetPodResourcesRequest": "string pod_name = 1; string pod_namespace = 2",
        "GetPodResourcesResponse": "PodResources pod_resources = 1",
        "PodResources": "string name = 1; string namespace = 2; repeated ContainerResources containers = 3",
        "ContainerResources": "string name = 1; repeated DynamicResource dynamic_resources = 5",
        "DynamicResource": "string claim_name = 2; string claim_namespace = 3; "
        "repeated ClaimResource claim_resources = 4",
        "ClaimResource": "repeated CDIDevice cdi_devices = 1; string driver_name = 2; string pool_name = 3; "
        "string device_name = 4; optional string share_id = 5",
        "CDIDevice": "string name = 1",
    },
)
LIST_POD_RESOURCES = _method("v1.PodResourcesLister/List", _pod_resources, "ListPodResources")
GET_POD_RESOURCES = _method("v1.PodResourcesLister/Get", _pod_resources, "GetPodResources")

_claims = messages(
    "dra_agent.v1",
    {
        "ListClaimsRequest": "",
        "ListClaimsResponse": "repeated HeldClaim claims = 1",
        "HeldClaim": "string uid = 1; string name = 2; string namespace = 3; string phase = 4; "
        "repeated string devices = 5; repeated string pods = 6; string orphan = 7; string unknown = 8",
        "ReleaseClaimRequest": "string uid = 1; bool force = 2",
        "ReleaseClaimResponse": "string error = 1",
    },
)
LIST_CLAIMS = _method("dra_agent.v1.Claims/List", _claims, "ListClaims")
RELEASE_CLAIM = _method("dra_agent.v1.Claims/Release", _claims, "ReleaseClaim")
