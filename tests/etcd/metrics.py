"""Metrics that the members of a cluster publish."""

from __future__ import annotations

import re
from collections import Counter
from urllib.request import urlopen

from interlock.testing.servers.etcd import EtcdCluster
from tests.patience import PATIENCE

HANDLED = re.compile(
    r'^grpc_server_msg_received_total\{grpc_method="(\w+)",grpc_service="etcdserverpb\.\w+",grpc_type="\w+"\} (\S+)$',
    re.MULTILINE,
)
BACKGROUND = ("Status", "LeaseGrant", "LeaseKeepAlive", "LeaseTimeToLive")


def received(cluster: EtcdCluster) -> Counter[str]:
    """How many messages all members have received from clients, by method."""
    found: Counter[str] = Counter()
    for member in cluster.members:
        with urlopen(f"http://127.0.0.1:{member.port}/metrics", timeout=PATIENCE) as answer:
            for method, number in HANDLED.findall(answer.read().decode()):
                if method not in BACKGROUND:
                    found[method] += int(float(number))
    return found
