"""A client that goes away takes its request with it, and nothing else."""

from tests.server.client import Client
from tests.server.leaving import leave_a_stream


def test_an_aborted_stream_ends_its_request_and_no_other(client: Client) -> None:
    leave_a_stream(client)
